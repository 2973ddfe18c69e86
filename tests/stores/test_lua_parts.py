"""Parts of scripts are functions, which are given all that they work with."""

import re
from importlib.resources import files

import pytest

from mq_django.transport import scripts
from tests.stores.lua_files import lua_files
from tests.stores.lua_names import free_names

FOLDER = files("mq_django.transport").joinpath("lua", "parts")
PARTS = sorted(path.name.removesuffix(".lua") for path in FOLDER.iterdir())

#: What the script of lines is made of shares its names; each stands in this script and its reader only. None is added.
OF_LINES = {"line_keys", "line_permits", "lines", "line_turns", "capacity"}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_takes_no_names_from_the_script_it_stands_in(name):
    assert bool(free_names(scripts._read(f"parts/{name}"))) == (name in OF_LINES)


def test_only_a_part_follows_the_word_that_inserts_it():
    """Programs in other languages insert parts with a shell loop, which does not know a comment from an insertion."""
    folder = files("mq_django.transport").joinpath("lua")
    texts = [
        folder.joinpath(f"{name}.lua").read_text() for name in (*lua_files(), *(f"parts/{part}" for part in PARTS))
    ]
    words = [line for text in texts for line in text.splitlines() if line.startswith("-- with ")]
    assert {line.removeprefix("-- with ") for line in words} <= set(PARTS)


def test_only_one_part_reads_the_clock():
    """Besides, `testing/clock.lua` answers TIME with a moved time, where tests put it before a script."""
    folder = files("mq_django.transport").joinpath("lua")
    texts = {
        name: folder.joinpath(f"{name}.lua").read_text()
        for name in (*lua_files(), *(f"parts/{part}" for part in PARTS))
    }
    called = re.compile(r"""call\(\s*['"]time['"]""", re.IGNORECASE)
    assert [name for name, text in texts.items() if called.search(text)] == ["parts/clock"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_does_nothing_where_it_stands(name):
    outside = re.findall(
        r"^(?!--|end\b|[ }]|local function ).*(?:redis\.|\bnow_[mu]s\()",
        FOLDER.joinpath(f"{name}.lua").read_text(),
        re.M,
    )
    assert bool(outside) == (name == "line_keys")


@pytest.mark.parametrize("name", sorted(lua_files()))
def test_a_script_has_all_parts_that_it_uses(name):
    assert free_names(scripts._read(name)) <= {"KEYS", "ARGV"}


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("return stream", {"stream"}),
        (
            "local function f(entry)\n  return redis.call('xrange', log, entry)\nend\nreturn f(entry)",
            {"log", "entry"},
        ),
        ("local a, b = KEYS[1], nil\na, b = b, c", {"KEYS", "c"}),
        ("for i = 1, #list do\n  print(i)\nend\nreturn i", {"list", "print", "i"}),
        ("for _, one in ipairs({ x = y, [z] = 1, n }) do\n  one.more = one\nend", {"y", "z", "n"}),
        ("if a then\n  local b = 1\nelseif b then\n  return 'c'\nelse\n  return b -- d\nend", {"a", "b"}),
        ("repeat\n  local done = 1\nuntil done", set()),
        ("local t = { f = function(x, ...)\n  x, y = 1, ...\nend }\nreturn t.f(t.z)", {"y"}),
        ("while string.sub(s, 1) ~= 'a\\'b' do\n  local function f(v)\n    return f(v), w\n  end\nend", {"s", "w"}),
    ],
)
def test_free_names_are_found(text, free):
    assert free_names(text) == free
