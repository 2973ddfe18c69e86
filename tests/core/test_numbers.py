import ast
import math
import re
import time
from pathlib import Path

import pytest

import mq_django
from mq_django.core.numbers import LARGEST, LAST_MS, score, score_ms, whole

NONSENSE = [
    None,
    b"",
    b"-1",
    b"+1",
    b" 1",
    b"1_0",
    b"1.0",
    b"inf",
    b"nan",
    b"\xff",
    b"0x1",
    "²",
    "\u0663",
    b"9" * 5000,
    b"9" * 10_000_000,
    str(2**63),
    2**63,
    -1,
    [1],
    {},
    1.5,
]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: repr(value)[:20])
def test_what_is_no_number_is_none_at_once(value):
    # Only what this computes: others may have the processor meanwhile.
    began = time.thread_time()
    assert whole(value) is None
    score(value)
    score_ms(value)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize("value", [0, 7, LARGEST, b"0", b"7", b"007", "7", str(LARGEST)])
def test_a_number_is_what_it_says(value):
    assert whole(value) == int(value)


def test_a_number_may_have_a_bound_of_its_own():
    assert whole(str(LAST_MS), LAST_MS) == LAST_MS
    assert whole(str(LAST_MS + 1), LAST_MS) is None


@pytest.mark.parametrize("value", [b"inf", b"-inf", b"nan", b"1e999", b"", b"x", None, b"9" * 5000, math.inf])
def test_a_score_that_is_not_finite_is_none(value):
    assert score(value) is None
    assert score_ms(value) is None


def test_a_score_is_a_moment_only_where_there_are_dates():
    assert score(b"-1.5") == -1.5
    assert score_ms(b"1.7e12") == 1_700_000_000_000
    assert score_ms(b"-1") is None
    assert score_ms(str(LAST_MS + 1)) is None
    assert score_ms(b"1.7976931348623157e+308") is None


#: What int() and float() are called with where Redis is read: clocks, what Redis itself counts or has checked to be a
#: number, and text whose length was looked at before.
CHECKED = re.compile(
    r"clock\.now|now|reply_or_raise|self\._run|deleted$|not |score$|start \+"
    r"|(cursor|part|found\[\d\]|flat\[at \+ 2\])$"
)


@pytest.mark.parametrize("folder", ["stores", "inspector"])
def test_what_redis_holds_is_read_as_a_number_in_one_place(folder):
    """A call of int() or float() on what anybody may have written belongs into mq_django.core.numbers."""
    wrong = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in (Path(mq_django.__file__).parent / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("int", "float")
        and not (CHECKED.match(ast.unparse(node.args[0])) or "hexdigest" in ast.unparse(node))
    ]
    assert wrong == []
