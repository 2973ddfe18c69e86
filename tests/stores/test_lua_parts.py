"""Parts of scripts are functions, which are given all that they work with."""

import re
from importlib.resources import files

import pytest

from mq_django.transport import scripts
from tests.stores.lua_files import lua_files
from tests.stores.lua_names import free_names

FOLDER = files("mq_django.transport").joinpath("lua", "parts")
PARTS = sorted(path.name.removesuffix(".lua") for path in FOLDER.iterdir())

#: Parts that take names from the scripts they stand in, and which. None is added.
RELIES_ON = {
    "best": {"careful", "control", "failed", "group", "priority", "read", "ready", "taken", "urgent", "waiting"},
    "jobs": {"ARGV"},
    "limits": {"ARGV", "KEYS"},
    "moves": {"id_of"},
    "parked": {
        *("group", "hash_of", "ms", "parked", "permit_of", "ready", "turns", "unique", "urgent", "waiting"),
    },
    "permits": {
        *("group", "hash_of", "key_most", "key_rate", "key_width", "limits", "ms", "now", "permits", "rates", "ready"),
        "urgent",
    },
    "replaced": {"now_ms"},
    "room": {"limits", "most", "now", "pending_now", "rate", "turn_after", "width", "window"},
    "rsmq_drains": {"zset"},
    "rsmq_receipts": {"ARGV", "hash", "owners", "zset"},
    "rsmq_waits": {"now_ms"},
    "take": {"consumer", "group", "homes"},
    "unique": {"now_ms", "put_body"},
}
#: Parts that do something where they stand.
ACTS = {"limits", "rsmq_drains"}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_takes_no_names_from_the_script_it_stands_in(name):
    assert free_names(scripts._read(f"parts/{name}")) == RELIES_ON.get(name, set())


@pytest.mark.parametrize("name", PARTS)
def test_a_part_does_nothing_where_it_stands(name):
    outside = re.findall(
        r"^(?!--|end\b|[ }]|local function ).*redis\.", FOLDER.joinpath(f"{name}.lua").read_text(), re.M
    )
    assert bool(outside) == (name in ACTS)


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
