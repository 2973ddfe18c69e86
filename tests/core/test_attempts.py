"""What is kept of attempts: bounded, whole lines, and nothing that somebody else wrote breaks it."""

from mq_django.core.retries import HISTORY_LENGTH, MAX_TRACEBACK, Attempt, read_history, with_attempt

TRACEBACK = "Traceback ...\nValueError: no"


def told(history="", number=1, *, error="ValueError: no", traceback=TRACEBACK, consumer="web1-1"):
    return with_attempt(history, Attempt("READY", number, consumer, 3000, 5000, error, traceback))


def test_an_attempt_is_told_with_its_consumer_times_and_traceback():
    (attempt,) = read_history(told())

    assert attempt == Attempt("READY", 1, "web1-1", 3000, 5000, "ValueError: no", TRACEBACK)


def test_the_last_ten_are_kept():
    history = ""
    for number in range(1, 26):
        history = told(history, number)

    assert [attempt.number for attempt in read_history(history)] == list(range(16, 26))
    assert len(read_history(history)) == HISTORY_LENGTH


def test_the_same_traceback_is_kept_once():
    history = ""
    for number in range(1, 26):
        history = told(history, number, traceback="x" * 4000)

    assert len(history) < 2 * 4000 + 10 * 200
    assert any(attempt.traceback for attempt in read_history(history))


def test_a_traceback_that_comes_again_after_another_is_told_again():
    history = told(told(told(traceback="a"), 2, traceback="b"), 3, traceback="a")

    assert [attempt.traceback for attempt in read_history(history)] == ["a", "b", "a"]


def test_of_a_long_traceback_the_end_is_kept():
    (attempt,) = read_history(told(traceback="x" * 10_000 + "é" * 100 + "\nValueError"))

    assert len(attempt.traceback.encode()) <= MAX_TRACEBACK
    assert attempt.traceback.endswith("é\nValueError")


def test_text_that_cannot_travel_is_replaced():
    (attempt,) = read_history(told(error="half \ud800", traceback="half \udfff", consumer="\ud800"))

    assert attempt.error == "half ?"
    assert attempt.traceback == "half ?"


def test_what_a_stranger_told_breaks_nothing(subtests):
    for nonsense in [
        *("nonsense", "{", "[]", "1", "\n\n", '{"ending":"exploded"}', "x" * 300_000, '{"ending":[]}'),
        '{"status":"RUNNING"}',
        '{"ending":"retried","attempt":"x","began":1e99,"ended":true,"consumer":{},"error":[],"traceback":1}',
        f'{{"ending":"retried","error":{"[" * 1010}{"]" * 1010}}}',
    ]:
        with subtests.test(nonsense=nonsense):
            assert all(attempt.status == "READY" for attempt in read_history(nonsense))
            assert read_history(told(nonsense))[-1].error == "ValueError: no"
