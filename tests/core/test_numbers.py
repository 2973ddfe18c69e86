import math

from mq_django.core.jsontext import LARGEST, LAST_MS, score, score_ms, whole

NONSENSE = [
    *(None, b"", b"-1", b"+1", b" 1", b"1_0", b"1.0", b"inf", b"nan", b"\xff", b"0x1", "²", "\u0663"),
    *(b"9" * 5000, b"9" * 10_000_000, str(2**63), 2**63, -1, [1], {}, 1.5),
]


def test_what_is_no_number_is_none():
    assert [value for value in NONSENSE if whole(value) is not None] == []
    for value in NONSENSE:
        score(value)
        score_ms(value)


def test_a_number_is_what_it_says():
    for value in (0, 7, LARGEST, b"0", b"7", b"007", "7", str(LARGEST)):
        assert whole(value) == int(value)


def test_a_number_may_have_a_bound_of_its_own():
    assert whole(str(LAST_MS), LAST_MS) == LAST_MS
    assert whole(str(LAST_MS + 1), LAST_MS) is None


def test_a_score_that_is_not_finite_is_none():
    values = [b"inf", b"-inf", b"nan", b"1e999", b"", b"x", None, b"9" * 5000, math.inf]
    assert [value for value in values if score(value) is not None or score_ms(value) is not None] == []


def test_a_score_is_a_moment_only_where_there_are_dates():
    assert score(b"-1.5") == -1.5
    assert score_ms(b"1.7e12") == 1_700_000_000_000
    assert score_ms(b"-1") is None
    assert score_ms(str(LAST_MS + 1)) is None
    assert score_ms(b"1.7976931348623157e+308") is None
