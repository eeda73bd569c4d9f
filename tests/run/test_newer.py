"""Which libraries have a newer release: asked of a stand-in for the index."""

import pytest

from harness.run import newer


def test_only_newer_releases_of_distributions_are_named():
    here = {"torch": "2.13.0+cpu", "quack-kernels": "0.6.5 (sha256:ab)", "fast_llm": "sha256:cd", "mine.py": "1.0"}
    there = {"torch": "2.13.0", "quack-kernels": "0.10.0", "fast_llm": "9.9", "mine.py": "9.9"}
    assert newer.newer(here, there.get) == {"quack-kernels": "0.10.0"}


def test_no_network_is_no_answer(monkeypatch):
    def offline(*_args, **_options):
        raise OSError("no route to host")

    monkeypatch.setattr(newer, "urlopen", offline)
    assert newer.newer_text({"torch": "2.11.0"}) == ""


@pytest.mark.parametrize(("latest", "said"), [("2.12.0", "newer on PyPI: torch 2.12.0 (here 2.11.0)"), ("2.11.0", "")])
def test_line_says_what_is_here(latest, said, monkeypatch):
    monkeypatch.setattr(newer, "_newest", lambda _name: latest)
    assert newer.newer_text({"torch": "2.11.0"}) == said
