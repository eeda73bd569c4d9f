"""Makes an svg of matplotlib's small: says once what it repeats, and drops digits that no eye sees."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\.\d\d)\d+")  # beyond a hundredth of a point, where machines may differ too
_INDENTED = re.compile(r"\n\s*")
_UNTURNED = re.compile(r' transform="rotate\(-0 [^"]*"')
_FAMILY = re.compile(r"font-family: ([^;]*); ")
_NAMED = re.compile(r'<g id="[^"]*"(?= |>)')  # nothing refers to a group
_ALONE = re.compile(r"<g>\n(<(?:text|path) [^<]*(?:</text>|/>)\n)</g>\n")
_LINES = re.compile(r" ?\n([LCQz])")  # of a path
_MARKERS = re.compile(r'<g( [^>]*)?>\n((?:<use [^>]*style="[^"]*"/>\n)+)</g>')
_STYLE = re.compile(r' style="([^"]*)"')


def compact(text: str) -> str:
    """The same picture in half the bytes."""
    for pattern, by in ((_INDENTED, "\n"), (_DIGITS, r"\1"), (_UNTURNED, ""), (_NAMED, "<g"), (_LINES, r"\1")):
        text = pattern.sub(by, text)
    for _ in range(2):  # a tick's line stands in two groups
        text = _ALONE.sub(r"\1", text)
    if family := _FAMILY.search(text):
        text = _FAMILY.sub("", text).replace("</style>", f" text{{font-family: {family[1]}}}</style>", 1)
    return _MARKERS.sub(_with_one_style, text)


def _with_one_style(markers: re.Match[str]) -> str:
    """A group of equal markers, styled as a group."""
    attributes, uses = markers[1] or "", markers[2]
    styles = set(_STYLE.findall(uses))
    if len(styles) != 1 or "style=" in attributes:
        return markers[0]
    return f'<g{attributes} style="{styles.pop()}">\n{_STYLE.sub("", uses)}</g>'
