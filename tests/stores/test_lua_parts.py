"""Parts of scripts are functions, which are given all that they work with."""

import re
from importlib.resources import files

from mq_django.transport import scripts
from tests.stores.lua_names import free_names

FOLDER = files("mq_django.transport").joinpath("lua")
#: The texts of all scripts and of all parts, by their names.
SCRIPTS, PARTS = (
    {path.name.removesuffix(".lua"): path.read_text() for path in folder.iterdir() if path.name.endswith(".lua")}
    for folder in (FOLDER, FOLDER.joinpath("parts"))
)

#: What each script is given.
GIVEN = {"KEYS", "ARGV"}

#: Texts of Lua, each with the names that it uses and does not declare.
FREE = {
    "return stream": {"stream"},
    "local function f(entry)\n  return redis.call('xrange', log, entry)\nend\nreturn f(entry)": {"log", "entry"},
    "local a, b = KEYS[1], nil\na, b = b, c": {"KEYS", "c"},
    "for i = 1, #list do\n  print(i)\nend\nreturn i": {"list", "print", "i"},
    "for _, one in ipairs({ x = y, [z] = 1, n }) do\n  one.more = one\nend": {"y", "z", "n"},
    "if a then\n  local b = 1\nelseif b then\n  return 'c'\nelse\n  return b -- d\nend": {"a", "b"},
    "repeat\n  local done = 1\nuntil done": set(),
    "local t = { f = function(x, ...)\n  x, y = 1, ...\nend }\nreturn t.f(t.z)": {"y"},
    "while string.sub(s, 1) ~= 'a\\'b' do\n  local function f(v)\n    return f(v), w\n  end\nend": {"s", "w"},
}


def test_parts_take_no_names_from_the_script_they_stand_in():
    assert {name for name in PARTS if free_names(scripts._read(f"parts/{name}")) - GIVEN} == set()


def test_scripts_have_all_parts_that_they_use():
    found = {name: free_names(scripts._read(name)) - GIVEN for name in SCRIPTS}
    assert {name: names for name, names in found.items() if names} == {}


def test_parts_do_nothing_where_they_stand():
    outside = re.compile(r"^(?!--|end\b|[ }]|local function ).*(?:redis\.|\bnow_[mu]s\()", re.MULTILINE)
    assert {name for name, text in PARTS.items() if outside.search(text)} == {"line_keys"}


def test_only_a_part_follows_the_word_that_inserts_it():
    """Programs in other languages insert parts with a shell loop, which does not know a comment from an insertion."""
    lines = [line for text in (*SCRIPTS.values(), *PARTS.values()) for line in text.splitlines()]
    assert {line.removeprefix("-- with ") for line in lines if line.startswith("-- with ")} <= set(PARTS)


def test_only_one_part_reads_the_clock():
    """Besides, `testing/clock.lua` answers TIME with a moved time, where tests put it before a script."""
    called = re.compile(r"""call\(\s*['"]time['"]""", re.IGNORECASE)
    assert [name for name, text in {**SCRIPTS, **PARTS}.items() if called.search(text)] == ["clock"]


def test_free_names_are_found():
    assert {text: free_names(text) for text in FREE} == FREE
