from xml.etree import ElementTree

from harness.worker.discovery import discover
from reports.plots.style import FAMILIES, line_style, save, sheet

SVG = "{http://www.w3.org/2000/svg}"


def test_every_implementation_of_the_project_has_a_look_of_its_own():
    names = [item.name for item in discover()]
    assert {member for members in FAMILIES.values() for member in members} <= set(names)
    assert len({(line_style(name).colour, line_style(name).marker) for name in names}) == len(names)


def test_members_of_a_family_differ_in_colour_and_marker():
    for family, members in FAMILIES.items():
        styles = [line_style(member) for member in members]
        assert {style.family for style in styles} == {family}
        assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == len(members)


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
