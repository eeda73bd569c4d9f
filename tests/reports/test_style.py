import math
from itertools import combinations
from xml.etree import ElementTree

from matplotlib.colors import to_rgb

from harness.worker.discovery import discover
from reports.plots.style import LIBRARIES, line_style, save, sheet

SVG = "{http://www.w3.org/2000/svg}"


def lab(colour):
    """The colour in CIE Lab, in which a distance of 20 is seen at a glance."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def test_libraries_differ_in_colour_and_their_implementations_in_shade_and_marker():
    styles = {item.name: line_style(item.name) for item in discover()}
    families = {style.family for style in styles.values()}
    assert families == set(LIBRARIES.values())
    pairs = [(a, b) for a, b in combinations(styles.values(), 2) if a.family != b.family]
    assert min(math.dist(lab(a.colour), lab(b.colour)) for a, b in pairs) > 19
    for family in families:
        members = [style for style in styles.values() if style.family == family]
        assert len({style.colour for style in members}) == len({style.marker for style in members}) == len(members)


def test_a_library_is_told_by_its_whole_name():
    assert line_style("quack@head").family == line_style("quack-tuned").family == LIBRARIES["quack"]
    assert line_style("quackery").family not in LIBRARIES.values()


def test_what_torch_stands_behind_looks_like_itself_dashed_otherwise():
    plain, beside = line_style("quack"), line_style("quack + torch")
    assert (plain.colour, plain.marker) == (beside.colour, beside.marker)
    assert plain.dashes != beside.dashes


def test_an_svg_is_text_without_a_date(tmp_path):
    figure, panels = sheet("a title", height=2.0)
    panels[0].plot([1, 2, 3], [1, 4, 9], marker="o")
    save(figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "a title" in [element.text for element in root.iter(f"{SVG}text")]
    assert "date" not in text
