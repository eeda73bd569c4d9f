from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import impls
from reports.plots.style import look, page, save
from reports.plots.svg import compact

SVG = "{http://www.w3.org/2000/svg}"


def test_every_implementation_of_the_project_has_a_look_of_its_own():
    names = [path.stem for path in Path(impls.__file__).parent.glob("*.py")]
    assert "quack" in names
    known = ["triton-inhouse", "cudnn", "quack", "torch-compiled", "liger", "apex-fast", "apex-fused", "torch-eager"]
    assert len({look(name).colour for name in known}) == len(known)


def test_the_look_of_a_stranger_is_its_own_and_stays():
    assert look("my-kernel") == look("my-kernel")
    assert look("my-kernel") != look("your-kernel")


def test_a_page_keeps_its_panels_apart_and_below_the_title():
    sheet = page("title", 5, across=3)
    boxes = [axes.get_position() for axes in sheet.panels]
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes[:3]))
    assert boxes[3].y1 < boxes[0].y0
    assert boxes[0].y1 < sheet.figure.texts[0].get_position()[1]


def test_an_svg_is_small_text_without_a_date(tmp_path):
    sheet = page("a title", 1)
    sheet.panels[0].plot([1, 2, 3], [1, 4, 9], marker="o")
    save(sheet.figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "a title" in [each.text for each in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}use"))) >= 3
    assert "date" not in text
    assert "sans-serif" in next(root.iter(f"{SVG}style")).text
    assert len(text) < 12_000


def test_what_is_compacted_says_the_same():
    markers = """<g clip-path="url(#p)">
    <use xlink:href="#m" x="1.23456" y="2" style="fill: #fff"/>
    <use xlink:href="#m" x="3" y="4" style="fill: #fff"/>
    </g>
"""
    assert compact(markers) == (
        '<g clip-path="url(#p)" style="fill: #fff">\n<use xlink:href="#m" x="1.23" y="2"/>\n'
        '<use xlink:href="#m" x="3" y="4"/>\n</g>\n'
    )
    unequal = markers.replace("#fff", "#000", 1)
    assert compact(unequal).count("style=") == 2
