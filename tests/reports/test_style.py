from itertools import pairwise
from xml.etree import ElementTree

import pytest

from harness.worker.discovery import discover
from reports.plots.style import FAMILIES, FURTHER, as_svg, look, save, sheet

SVG = "{http://www.w3.org/2000/svg}"


def test_every_implementation_of_the_project_has_a_look_of_its_own():
    names = [item.name for item in discover()]
    known = {member for members in FAMILIES.values() for member in members} | set(FURTHER)
    assert known == set(names)
    assert len({(look(name).colour, look(name).marker) for name in names}) == len(names)


def test_members_of_a_family_differ_in_colour_and_marker():
    for family, members in FAMILIES.items():
        looks = [look(member) for member in members]
        assert {look.family for look in looks} == {family}
        assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(members)


def test_the_look_of_a_stranger_is_its_own_and_stays():
    assert look("my-kernel") == look("my-kernel")
    assert look("my-kernel") != look("your-kernel")


def test_what_torch_stands_behind_looks_like_itself_dashed_otherwise():
    plain, beside = look("quack"), look("quack + torch")
    assert (plain.colour, plain.marker) == (beside.colour, beside.marker)
    assert plain.dashes != beside.dashes


def test_a_sheet_keeps_its_panels_apart_and_below_the_title():
    figure, panels = sheet("title", 5, across=3, height=2.0, caption="one line\nanother")
    figure.draw_without_rendering()
    boxes = [axes.get_position() for axes in panels]
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes[:3]))
    assert boxes[3].y1 < boxes[0].y0
    title = figure.get_suptitle()
    assert title == "title"
    height = figure.bbox.height
    assert boxes[0].y1 * height <= figure._suptitle.get_window_extent().y0 + 1
    assert figure._supxlabel.get_window_extent().y1 <= boxes[3].y0 * height + 1


def test_an_svg_is_text_without_a_date(tmp_path):
    figure, panels = sheet("a title", height=2.0)
    panels[0].plot([1, 2, 3], [1, 4, 9], marker="o")
    save(figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "a title" in [element.text for element in root.iter(f"{SVG}text")]
    assert "date" not in text


@pytest.mark.parametrize("panels", [1, 2, 5])
def test_panels_have_the_height_that_was_asked_for(panels):
    figure, drawn = sheet("title", panels, height=0.4, caption="one line\nanother")
    for axes in drawn:
        axes.set_title("name")
        axes.set_xlabel("label")
    as_svg(figure)
    heights = [axes.get_position().height * figure.get_figheight() for axes in drawn]
    assert min(heights) >= 0.36
