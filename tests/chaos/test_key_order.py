"""I5: the checker finds each way to break the order of a key in a history that was broken by hand."""

from tests.chaos.checker import Ending, Terms, check
from tests.chaos.history import event, in_order
from tests.chaos.places import Rest

TERMS = Terms(max_attempts=3, recovery=60.0, handover=60.0)
A, B, C, PRODUCER = 11, 12, 13, 10


def at(time, pid, what, **words):
    return event({"at": float(time), "pid": pid, "what": what, **words})


def published(*ids, key="k", first=0, how="ok"):
    return [at(0.1, PRODUCER, "invoke", ids=ids, key=key, first=first), at(0.2, PRODUCER, how, ids=ids)]


def run(message, began, ended, *, by=A, thread=1, how="returned"):
    """A handler that runs; it lives to tell its end unless that is None."""
    events = [
        at(began - 0.02, by, "taken", ids=[message]),
        at(began - 0.01, by, "started", id=message, attempt=1, thread=thread),
        at(began, by, "entered", id=message, thread=thread),
    ]
    if how == "returned":
        events.append(at(began + 0.01, by, "effect", id=message, attempt=1))
    return events if ended is None else [*events, at(ended, by, "left", id=message, thread=thread, how=how)]


def settled(time, *, by=A, began=None, **words):
    return [at(time, by, "settled", began=time - 0.1 if began is None else began, **words)]


def handled(message, began, ended, *, by=A, thread=1):
    return [*run(message, began, ended, by=by, thread=thread), *settled(ended + 0.3, by=by, acked=[message])]


def stopped(pid, began, healed, *, kind="stop-tree"):
    """A process that is stopped for longer than the visibility timeout."""
    return [
        at(began + 0.1, PRODUCER, "fault", fault="f", kind=kind, began=began, pids=[pid]),
        at(healed, PRODUCER, "healed", fault="f"),
    ]


def verdict(*parts, **rest):
    events = in_order(event for part in parts for event in part)
    count = len({found for one in events if one.what == "ok" for found in one.ids})
    return check(events, Ending(rest=Rest(**{"published": count, **rest})), TERMS)


def broken(*parts, **rest):
    return {violation.invariant for violation in verdict(*parts, **rest).violations}


def test_messages_that_run_one_after_another_have_no_violation():
    found = verdict(published("1", "2"), handled("1", 1, 2), handled("2", 3, 4, by=B))

    assert found.violations == []
    assert (found.keys, found.inversions, found.overlaps) == (1, 0, 0)


def test_two_messages_of_a_key_at_the_same_time():
    found = verdict(published("1", "2"), handled("1", 1, 3), handled("2", 2, 4, by=B))

    assert [violation.invariant for violation in found.violations] == ["I5"]
    assert (found.overlaps_without_fault, found.overlaps) == (1, 0)
    assert set(found.violations[0].messages) == {"1", "2"}


def test_a_later_message_that_ended_first():
    found = verdict(published("1", "2", "3"), handled("1", 1, 2), handled("3", 3, 4), handled("2", 5, 6))

    assert [violation.invariant for violation in found.violations] == ["I5"]
    assert found.inversions == 1


def test_a_later_message_that_was_buried_first():
    later = [*run("2", 1, 2, how="Failed"), *settled(3, buried=["2"])]

    assert broken(published("1", "2"), later, handled("1", 4, 5), dead=["2"]) == {"I5"}


def test_a_later_message_that_started_before_the_next_attempt_of_an_earlier_one():
    failed = [*run("1", 1, 2, how="Failed"), *settled(2.2, retried=[["1", 0]])]

    assert broken(published("1", "2"), failed, handled("2", 3, 4), handled("1", 5, 6)) == {"I5"}


def test_messages_of_different_keys_have_no_order():
    others = [at(0.3, PRODUCER, "invoke", ids=["b"], key="other", first=0), at(0.4, PRODUCER, "ok", ids=["b"])]

    assert broken(published("1", "2"), others, handled("1", 1, 2), handled("2", 3, 6), handled("b", 4, 5)) == set()


def test_messages_of_several_publishes_have_the_order_of_these():
    parts = (published("1", "2"), published("3", first=2), handled("1", 1, 2))

    assert broken(*parts, handled("2", 3, 4), handled("3", 5, 6)) == set()
    assert broken(*parts, handled("3", 3, 4), handled("2", 5, 6)) == {"I5"}


def test_what_was_perhaps_not_published_has_no_place(subtests):
    for how in ["unknown", "failed"]:
        with subtests.test(how=how):
            # Redis may carry out a publish whose reply was lost after the next one.
            found = verdict(published("1", how=how), published("2", first=1), handled("2", 1, 2), handled("1", 3, 4))

            assert found.inversions == 0


def test_a_message_that_runs_again_after_its_process_died_is_no_inversion():
    died = [at(5, PRODUCER, "fault", fault="f", kind="kill", began=4.9, pids=[A])]
    found = verdict(published("1", "2"), handled("1", 1, 2), run("2", 3, None), died, handled("2", 6, 7, by=B))

    assert found.violations == []
    assert found.duplicates == 1


def test_what_died_with_its_process_ran_as_long_as_something_is_known_of_that():
    # Another thread notes something when the next message of the key has started already.
    alive = published("x", key="other") + run("x", 5, None, thread=2)
    died = [at(6, PRODUCER, "fault", fault="f", kind="kill", began=5.9, pids=[A])]
    again = handled("x", 7, 8, by=B)

    assert broken(published("1"), alive, run("1", 3, None), died, handled("1", 6.5, 7, by=B), again) == set()
    assert broken(published("1"), alive, run("1", 3, None), died, handled("1", 4, 4.5, by=B), again) == {"I5"}


def test_a_handler_that_could_not_note_its_end_had_ended_when_its_outcome_was_sent():
    interrupted = [*run("1", 1, None), *settled(3, began=2, back=["1"]), at(2.9, PRODUCER, "removed", ids=["1"])]

    assert broken(published("1", "2"), interrupted, handled("2", 2.5, 4, by=B)) == set()
    assert broken(published("1", "2"), interrupted, handled("2", 1.5, 4, by=B)) == {"I5"}


def test_a_stopped_process_that_was_taken_for_dead_may_go_on_beside_others():
    parts = (published("1", "2"), stopped(A, 1.5, 8), run("1", 1, 9), settled(9.5, stale=["1"]))
    found = verdict(*parts, handled("1", 5, 6, by=B), handled("2", 7, 8.5, by=B))

    assert found.violations == []
    assert (found.overlaps, found.overlaps_without_fault, found.stale) == (1, 0, 1)


def test_the_outcome_of_a_process_that_was_taken_for_dead_does_not_count():
    parts = (published("1", "2"), stopped(A, 1.5, 8), run("1", 1, 9), settled(9.5, began=9.1, back=["1"]))

    assert broken(*parts, handled("1", 5, 6, by=B), handled("2", 7, 8.5, by=B)) == {"I5"}


def test_a_stopped_process_may_begin_late_what_it_had_taken():
    early = [at(1.4, A, "taken", ids=["1"])]
    late = [*run("1", 8.3, 8.6), *settled(8.9, stale=["1"])]
    parts = (published("1", "2"), early, stopped(A, 1.5, 8), handled("1", 5, 6, by=B), handled("2", 6.5, 7, by=B))

    assert broken(*parts, late) == set()
    # Long after it went on it has no such reason, nor has the second that a thread begins.
    assert "I5" in broken(*parts, run("1", 12, 13), settled(14, stale=["1"]))
    third = published("3", key="other")
    assert "I5" in broken(*parts, third, handled("3", 8.05, 8.1), late)


def test_a_stopped_consumer_whose_supervisor_lives_is_not_taken_for_dead():
    parts = (published("1", "2"), stopped(A, 1.5, 8, kind="stop-long"), handled("1", 1, 9))

    assert broken(*parts, handled("2", 7, 8.5, by=B)) == {"I5"}


def test_what_somebody_deleted_leaves_its_place_to_the_next():
    gone = [at(0.5, PRODUCER, "removed", ids=["2"])]

    assert broken(published("1", "2", "3"), gone, handled("1", 1, 2), handled("3", 3, 4)) == set()
