"""The checker of streams finds each kind of broken promise in what was broken by hand."""

from tests.chaos.history import event
from tests.chaos.settings import READERS
from tests.chaos.stream_checker import Entry, judged, judged_readers


def stream(*said):
    """Return a stream of (run, attempt, number, kind, value)."""
    total, entries = 0, []
    for place, (run, attempt, number, kind, value) in enumerate(said):
        total += len(value)
        entries.append(Entry(f"5-{place}", run, attempt, number, total, kind, value))
    return entries


FIRST = [("r", 1, 1, "text", "7-1 1"), ("r", 1, 2, "log", "7-1 2")]
SECOND = [("s", 2, 0, "restart", ""), ("s", 2, 1, "text", "8-1 1"), ("s", 2, 2, "text", "8-1 2")]
END = ("s", 2, 3, "end", '{"outcome":"handled"}')
GOOD = [*FIRST, *SECOND, END]


def broken(said, chunks=2):
    return sorted({violation.invariant for violation in judged("a", stream(*said), chunks)})


def test_a_stream_that_kept_its_promises():
    assert broken(GOOD) == []
    assert broken([("", 5, 1, "end", '{"outcome":"buried"}')], None) == []


def test_a_stream_that_did_not(subtests):
    late = ("r", 1, 3, "text", "7-1 3")
    for why, said, chunks, invariants in [
        ("there is none", [], 2, ["S2"]),
        ("a gap", [FIRST[0], *SECOND[:1], SECOND[2], END], 2, ["S1"]),
        ("twice", [FIRST[0], *FIRST, *SECOND, END], 2, ["S1"]),
        ("another order", [*reversed(FIRST), *SECOND, END], 2, ["S1"]),
        ("no mark", [*FIRST, *SECOND[1:], END], 2, ["S1"]),
        ("a lost run goes on", [*FIRST, *SECOND[:2], late, SECOND[2], END], 2, ["S1"]),
        ("another run's chunk", [*FIRST, *SECOND[:2], ("s", 2, 2, "text", "7-1 2"), END], 2, ["S1"]),
        ("no end", GOOD[:-1], 2, ["S2"]),
        ("two ends", [*GOOD, ("s", 2, 4, *END[3:])], 2, ["S2"]),
        ("more behind the end", [*GOOD, ("t", 3, 0, "restart", "")], 2, ["S2"]),
        ("another outcome", GOOD, None, ["S2"]),
        ("chunks are missing", GOOD, 3, ["S2"]),
    ]:
        with subtests.test(why):
            assert broken(said, chunks) == invariants


KNOWN = [entry.said for entry in stream(*GOOD)]


def told(what, **said):
    return event({"at": 1.0, "pid": 9, "what": what, "reader": f"{READERS[0]} m", **said})


def got(*places, after=None):
    return [told("reads", after=after), *(told("read", chunk=KNOWN[place]) for place in places)]


def broken_reader(*events):
    found = judged_readers({"m": stream(*GOOD)}, events)
    return [violation.invariant for violation in found if violation.sentence.startswith(READERS[0])]


def test_a_reader_that_stops_goes_on_and_reads_some_again():
    assert broken_reader(*got(*range(6)), told("read-all")) == []
    assert broken_reader(*got(0, 1), *got(2, 3, after="5-1"), *got(1, 2, 3, 4, 5, after="5-0"), told("read-all")) == []


def test_a_reader_that_got_something_else(subtests):
    for why, events, invariant in [
        ("nothing", [], "S4"),
        ("not the first", got(1), "S3"),
        ("twice", got(0, 0), "S3"),
        ("again after a chunk", got(1, after="5-1"), "S3"),
        ("not the last", [*got(0, 1, 2, 3, 4), told("read-all")], "S4"),
        ("no end of the iterator", got(*range(6)), "S4"),
        ("an error", [*got(0), told("read-failed", error="WaitTimeout()")], "S4"),
    ]:
        with subtests.test(why):
            assert broken_reader(*events) == [invariant]
