"""What a page must do in a browser, a function each: it is given a way to open the page, and asserts."""

import re
from itertools import pairwise

CONTRAST = 4.5  # of WCAG's level AA, for text of any size
LAST = "-"  # what has no figure

# What a reader sees of the tables below the filters: title of the section, heads, and the texts of each row.
SEEN = """() => {
  const text = cell => (cell.querySelector("summary") ?? cell).textContent.trim();
  const shown = row => [...row.cells].filter(cell => cell.checkVisibility()).map(text);
  const tables = [...document.querySelectorAll("#filters ~ * table")].filter(table => table.checkVisibility());
  return tables.map(table => [
    table.closest("section")?.querySelector("h2, h3").textContent ?? "",
    shown(table.tHead.rows[0]),
    [...table.tBodies[0].rows].filter(row => row.checkVisibility()).map(shown),
  ]);
}"""
# What a reader sees of one column, how each column of its table says that it is sorted, and whether its texts are.
COLUMN = """head => {
  const cells = [...head.closest("table").tBodies[0].rows].map(row => row.cells[head.cellIndex]);
  const shown = cells.filter(cell => cell.checkVisibility());
  const texts = shown.map(cell => (cell.querySelector("summary") ?? cell).textContent.trim());
  const states = [...head.parentElement.cells].map(cell => cell.getAttribute("aria-sort"));
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const sorted = texts => texts.every((text, place) => place === 0 || order(texts[place - 1], text) <= 0);
  const told = { ascending: sorted(texts), descending: sorted([...texts].reverse()) };
  return { texts, told, kind: head.dataset.kind, own: head.ariaSort, all: states.filter(state => state !== null) };
}"""
# Every colour of text that is shown, with what is painted behind it and a text that has it.
COLOURS = """() => {
  const seen = new Map(), clear = /^rgba\\(.*, 0\\)$/;
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE);
    const text = own.map(node => node.data).join("").trim();
    if (!text || !element.checkVisibility()) continue;
    let behind = element;
    while (behind && clear.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const pair = [getComputedStyle(element).color, behind ? getComputedStyle(behind).backgroundColor : "none"];
    seen.set(pair.join(), [...pair, text]);
  }
  return [...seen.values()];
}"""
OPEN_ALL = "for (const details of document.querySelectorAll('details')) details.open = true"
LOADED = "Promise.all([...document.images].map(image => image.decode().catch(() => {})))"


def sorts_by_click(opened):
    page = opened().page
    for head in page.locator("table.sortable th[data-kind]").all():
        before = head.evaluate(COLUMN)["texts"]
        for direction in ("ascending", "descending"):
            head.get_by_role("button").click()
            assert sorted(_sorted_column(head, direction)) == sorted(before)


def sorts_by_keyboard(opened):
    page = opened().page
    head = page.locator("#filters ~ * th[data-kind=number]").first
    _tab_to(page, head.get_by_role("button"))
    for key, direction in (("Enter", "ascending"), ("Space", "descending"), ("Enter", "ascending")):
        page.keyboard.press(key)
        _sorted_column(head, direction)


def shows_where_the_keyboard_is(opened):
    page = opened().page
    for place in (page.locator("#filters ~ * th button").first, page.locator("#filters ~ * td summary").first):
        _tab_to(page, place)
        outline = place.evaluate(
            "place => [getComputedStyle(place).outlineStyle, getComputedStyle(place).outlineWidth]"
        )
        assert outline == ["solid", "2px"]


def filters_by_norm_and_implementation(opened):
    page = opened().page
    whole = page.evaluate(SEEN)
    norms, impls = (page.locator(f"input[name={name}]") for name in ("norm", "impl"))
    norm, impl = norms.first.get_attribute("value"), impls.first.get_attribute("value")
    assert norms.count() == 2
    norms.first.uncheck()
    _are_left(page, whole, norm, None)
    impls.first.uncheck()
    _are_left(page, whole, norm, impl)
    norms.first.focus()
    page.keyboard.press("Space")
    assert norms.first.is_checked()
    _are_left(page, whole, None, impl)
    impls.first.check()
    _are_left(page, whole, None, None)


def filters_by_case(opened):
    page = opened().page
    whole = page.evaluate(SEEN)
    for text in ("LAYER-", "8192", "no such case", ""):
        page.locator("input[name=case]").fill(text)
        assert page.evaluate(SEEN) == [[title, heads, _with_case(heads, rows, text)] for title, heads, rows in whole]


def shows_the_case_that_is_clicked(opened):
    page = opened().page
    links = page.locator("#cases a")
    if not links.count():
        return  # nothing was timed
    links.last.click()
    name = links.last.inner_text()
    assert page.locator("input[name=case]").input_value() == name
    shown = page.locator("#results tbody tr").filter(visible=True)
    assert shown.count() > 0
    assert {row.get_attribute("data-case") for row in shown.all()} == {name}
    page.wait_for_function("name => document.getElementById(name).getBoundingClientRect().top < innerHeight", arg=name)


def tells_the_reason_on_demand(opened):
    page = opened().page
    cells = page.locator("td[data-status=wrong], tr[data-standing=failed] td.why")
    cell = (cells if cells.count() else page.locator("td:has(details)")).first
    lines, summary = cell.locator("details > div"), cell.locator("summary")
    assert lines.count() > 0
    assert not lines.first.is_visible()
    summary.click()
    assert lines.first.is_visible()
    assert re.search(r"rho \d|Error: ", " ".join(lines.all_inner_texts()))
    summary.press("Enter")
    assert not lines.first.is_visible()


def complains_of_nothing(opened):
    found = opened()
    found.page.locator("th button").last.click()
    found.page.locator("input[name=impl]").first.uncheck()
    assert found.complaints == []


def asks_the_network_for_nothing(opened):
    found = opened()
    found.page.evaluate(OPEN_ALL)
    found.page.evaluate(LOADED)
    found.page.wait_for_load_state("networkidle")  # what a script asks for may be late
    assert found.requests == [found.page.url]


def is_readable_in_light_and_dark(opened):
    grounds = []
    for scheme in ("light", "dark"):
        page = opened(color_scheme=scheme).page
        page.evaluate(OPEN_ALL)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        colours = page.evaluate(COLOURS)
        assert len(colours) > 2
        faint = {(scheme, *pair): ratio for *pair, _ in colours if (ratio := _contrast(*pair)) < CONTRAST}
        assert faint == {}
    assert grounds[0] != grounds[1]


def shows_its_plots(opened):
    page = opened().page
    page.evaluate(LOADED)
    plots = page.evaluate("[...document.images].map(image => [image.alt, image.complete && image.naturalWidth > 0])")
    assert plots
    assert all(name and loaded for name, loaded in plots)


def shows_every_row_without_scripts(opened):
    page = opened(java_script_enabled=False).page
    rows = page.locator("tbody tr")
    assert rows.count() == len(rows.filter(visible=True).all()) > 0
    assert not page.locator("#filters").is_visible()
    summary = page.locator("td summary").first
    summary.click()
    assert summary.locator("xpath=../div").first.is_visible()


CHECKS = (
    sorts_by_click,
    sorts_by_keyboard,
    shows_where_the_keyboard_is,
    filters_by_norm_and_implementation,
    filters_by_case,
    shows_the_case_that_is_clicked,
    tells_the_reason_on_demand,
    complains_of_nothing,
    asks_the_network_for_nothing,
    is_readable_in_light_and_dark,
    shows_its_plots,
    shows_every_row_without_scripts,
)


def _sorted_column(head, direction):
    """What a reader sees of a column: it, and no other of its table, must say that it is sorted this way, and be."""
    column = head.evaluate(COLUMN)
    texts = column["texts"]
    assert (column["own"], column["all"]) == (direction, [direction])
    if column["kind"] == "text":
        assert column["told"][direction], texts
        return texts
    found = [_figure(text) for text in texts]
    known = [figure for figure in found if figure]
    assert found[: len(known)] == known, texts
    for one, other in pairwise(known if direction == "ascending" else known[::-1]):
        assert one[0] < other[1], texts
    return texts


def _figure(text):
    """Between what the first figure of a text may have been before it was rounded; None where there is none."""
    if text in (LAST, "nan"):
        return None
    if text == "base":  # over itself
        return 1.0, 1.0 + 1e-9
    number, decimals, power = re.match(r"(?:< )?(-?(?:\d+(?:\.(\d+))?|inf))(?:e([-+]?\d+))?", text).groups()
    scale = 10.0 ** int(power or 0)
    half = 0.5 * 10.0 ** -len(decimals or "") * scale * (1 + 1e-9)
    return float(number) * scale - half, float(number) * scale + half


def _tab_to(page, place):
    """Go from the filters to a place as a keyboard does, a stop at a time."""
    page.locator("input[name=case]").focus()
    for _ in range(page.locator("a, button, input, summary").count()):
        page.keyboard.press("Tab")
        if place.evaluate("place => place === document.activeElement"):
            return
    raise AssertionError("the keyboard does not get there")


def _are_left(page, whole, norm, impl):
    """That exactly what is not about this norm or implementation is shown, and counted."""
    expected = []
    for title, heads, rows in whole:
        if _begins(title, norm) or (rows and all(_begins(row[0], norm) for row in rows) and heads[0] == "case"):
            continue
        columns = [place for place, head in enumerate(heads) if head != impl]
        kept = [row for row in rows if not _is_about(dict(zip(heads, row, strict=True)), norm, impl)]
        expected.append([title, [heads[c] for c in columns], [[row[c] for c in columns] for row in kept]])
    shown = page.evaluate(SEEN)
    assert shown == expected
    assert page.locator("#count").inner_text().startswith(f"{sum(len(rows) for *_, rows in shown)} of ")


def _is_about(row, norm, impl):
    of_norm = norm is not None and (row.get("norm") == norm or _begins(row.get("case", ""), norm))
    return of_norm or (impl is not None and row.get("impl", "").split(" (")[0] == impl)


def _with_case(heads, rows, text):
    """The rows whose case has this text in its name; all, where they are not about cases."""
    columns = [place for place, head in enumerate(heads) if head in ("case", "inputs", "kind")]
    return [row for row in rows if all(text.lower() in row[column].lower() for column in columns)]


def _begins(name, norm):
    return norm is not None and re.split(r"\W", name)[0] == norm


def _contrast(text, ground):
    """The ratio of luminances as WCAG defines it."""
    light, dark = sorted((_luminance(text), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour):
    red, green, blue = (int(part) / 255 for part in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups())
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
