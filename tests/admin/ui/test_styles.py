"""The style sheets, where the admin's variables are missing: in an admin of another look."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

SHEETS = sorted((Path(__file__).parents[3] / "mq_django/static").rglob("*.css"))
USE = re.compile(r"var\(\s*(--[\w-]+)\s*(,?)")
COLOUR = re.compile(r"(?<![\w-])(?:#[0-9a-fA-F]{3,8}\b(?![^{};]*\{)|(?:rgb|hsl|light-dark|color-mix)\()")


def fallbacks(text):
    """Return each variable of a style sheet with its fallback, which is empty if there is none, and what is left."""
    found, rest, at = [], "", 0
    while (use := USE.search(text, at)) is not None:
        depth, end = 1, use.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        fallback = text[use.end() : end - 1].strip()
        found += [(use[1], fallback if use[2] else ""), *fallbacks(fallback)[0]]
        rest, at = rest + text[at : use.start()], end
    return found, rest + text[at:]


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_each_variable_has_a_fallback_and_each_colour_is_a_variable(sheet):
    found, rest = fallbacks(re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL))
    assert [name for name, fallback in found if not fallback] == []
    assert COLOUR.findall(rest) == []


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_sides_follow_the_direction_of_the_language(sheet):
    assert (
        re.findall(r"^\s*(?:[\w-]+-)?(?:left|right)(?:-[\w-]+)?:|text-align: (?:left|right)", sheet.read_text(), re.M)
        == []
    )


def test_a_variable_has_the_same_fallback_everywhere():
    known = defaultdict(set)
    for sheet in SHEETS:
        for name, fallback in fallbacks(sheet.read_text())[0]:
            known[name].add(fallback)
    assert {name: found for name, found in known.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a { color: var(--x) }", [("--x", "")]),
        ("a { color: var(--x, #abc) }", [("--x", "#abc")]),
        ("a { color: var( --x , light-dark(#abc, #def)) }", [("--x", "light-dark(#abc, #def)")]),
        ("a { color: var(--x, var(--y)) }", [("--x", "var(--y)"), ("--y", "")]),
    ],
)
def test_fallbacks_are_found(text, expected):
    assert fallbacks(text)[0] == expected
