"""Golden texts, and a headless Chromium for tests of pages: each is opened from a file, and has no network."""

import os
import shutil
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",  # it runs as root in a container, on pages that we wrote
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000  # nothing waits for it unless something is broken


@pytest.fixture
def golden():
    """Compare a text with the file of that name; NORMBWD_WRITE_GOLDEN=1 writes it instead, for a person to review."""

    def check(name, text):
        path = GOLDEN / name
        if os.environ.get("NORMBWD_WRITE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


class Opened:
    """A page opened from a file, with all that it asked for and all that it complained of; it gets nothing else."""

    def __init__(self, browser, path, options):
        self.requests, self.complaints, self._own = [], [], path.as_uri()
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.route("**/*", self._answer)
        self.page = self.context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.goto(self._own)

    def _answer(self, route):
        self.requests.append(route.request.url)
        if route.request.url == self._own:
            route.continue_()
        else:
            route.abort()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # only where these tests run

    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert path, f"no Chromium: none of {', '.join(CHROMIUM)} is on the path"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def opener(browser):
    """Gives the way to open a file that a check is handed; what was opened is closed."""
    contexts = []

    def of(path):
        def opened(**options):
            contexts.append(Opened(browser, path, options))
            return contexts[-1]

        return opened

    yield of
    for each in contexts:
        each.context.close()
