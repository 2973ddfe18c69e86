from dataclasses import replace
from datetime import UTC

import pytest

from mq_django import registry
from mq_django.core.jsontext import LAST_MS
from mq_django.core.schedules import Scheduled, every
from mq_django.errors import WrongKeyType
from mq_django.stores.schedule_status import statuses
from mq_django.stores.schedules import MAX_SKIPS, Firing, Schedules
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import places
from tests.stores.acts import take_all
from tests.waiting import now_ms_within


@pytest.fixture
def schedules(emails):
    return Schedules(emails.config, Pooled(get_client("consume")))


REPORT = Scheduled(name="nightly", queue="emails", message="report", data={"for": "all"}, when=every(minutes=1))


def seen_since(client, keys, ms):
    client.hset(keys.schedules, f"last:{REPORT.name}", ms)


def plan_of(emails):
    (found,) = statuses(emails.config, Pooled(get_client("consume"))).found
    return found


def test_a_new_schedule_begins_now(schedules, keys, redis_client):
    before = places.now_ms(redis_client)
    now_ms, (found,) = schedules.read_states([REPORT])
    last = found.last_ms
    assert before <= now_ms == last
    assert schedules.read_states([REPORT])[1][0].last_ms == last


def test_a_tick_publishes_its_message_once(schedules, keys, store, redis_client):
    tick = places.now_ms(redis_client) - 10
    seen_since(redis_client, keys, tick - 60_000)
    assert schedules.fire(REPORT, tick)[0] is Firing.FIRED
    assert schedules.fire(REPORT, tick)[0] is Firing.DONE
    (taken,) = take_all(store)
    message = taken.message
    assert (message.name, message.data, message.published_ms) == ("report", {"for": "all"}, tick)
    assert message.headers["scheduledtime"].endswith("Z")


def test_ticks_that_were_missed_together_are_made_up_for_once(schedules, keys, redis_client):
    now = places.now_ms(redis_client)
    seen_since(redis_client, keys, now - 3_600_000)
    missed = [now - 3_000_000, now - 2_000_000, now - 1_000_000]
    assert [schedules.fire(REPORT, tick)[0] for tick in missed] == [Firing.FIRED, Firing.DONE, Firing.DONE]
    assert redis_client.xlen(keys.ready) == 1


def test_no_tick_is_early_by_the_server_s_clock(schedules, keys, redis_client):
    seen_since(redis_client, keys, 0)
    before = places.now_ms(redis_client)
    firing, now_ms, _ = schedules.fire(REPORT, before + 500_000)
    assert firing is Firing.EARLY
    assert before <= now_ms <= places.now_ms(redis_client)
    assert not redis_client.exists(keys.ready)


def test_a_paused_schedule_lets_its_ticks_pass_and_does_not_make_up_for_them(emails, schedules, keys, redis_client):
    tick = places.now_ms(redis_client) - 10
    seen_since(redis_client, keys, 0)
    schedules.pause(REPORT.name)
    assert plan_of(emails).paused
    assert schedules.fire(REPORT, tick)[0] is Firing.PAUSED
    schedules.resume(REPORT.name)
    assert schedules.fire(REPORT, tick)[0] is Firing.DONE
    assert not redis_client.exists(keys.ready)


def test_what_a_paused_schedule_let_pass_is_not_made_up_for_when_nobody_was_there(schedules, keys, redis_client):
    seen_since(redis_client, keys, 1000)
    schedules.pause(REPORT.name)
    before = places.now_ms(redis_client)
    schedules.resume(REPORT.name)
    assert schedules.read_states([REPORT])[1][0].last_ms >= before
    assert schedules.fire(REPORT, before - 10)[0] is Firing.DONE
    seen_since(redis_client, keys, 1000)
    schedules.resume(REPORT.name)
    assert schedules.read_states([REPORT])[1][0].last_ms == 1000


def test_a_schedule_can_be_fired_at_once_even_when_it_is_paused(emails, schedules, keys, store, redis_client):
    seen_since(redis_client, keys, 1000)
    schedules.pause(REPORT.name)
    made = schedules.fire_now(REPORT)
    (taken,) = take_all(store)
    assert (taken.message.id, dict(taken.message.headers)) == (made.message.id, {})
    plan = plan_of(emails)
    assert (plan.last_ms, plan.paused) == (1000, True)
    assert abs(plan.fired_ms - places.now_ms(redis_client)) < 60_000


def test_what_nobody_has_seen_has_no_state(emails, keys, redis_client):
    assert statuses(emails.config, Pooled(get_client("consume"))).found == []
    redis_client.hset(keys.schedules, mapping={"last:a:b": "7", "last:c": "junk", "odd": "x"})
    _, found, *_ = statuses(emails.config, Pooled(get_client("consume")))
    told = {plan.name: (plan.entry, plan.last_ms, plan.fired_ms, plan.paused) for plan in found}
    assert told == {"a:b": (None, 7, None, False), "c": (None, None, None, False), "": (None, None, None, False)}


def test_a_scheduled_message_has_its_priority_its_key_and_its_end(schedules, keys, store, redis_client, emails):
    entry = Scheduled(
        name="n",
        queue="emails",
        message="m",
        data=1,
        when=every(minutes=1),
        priority=7,
        key="k",
        expires=every(hours=1).period,
    )
    tick = places.now_ms(redis_client) - 10
    schedules.fire(entry, tick)
    (taken,) = take_all(store)
    assert (taken.message.priority, taken.message.key, taken.message.expires_ms) == (7, "k", tick + 3_600_000)


def test_a_key_that_holds_something_else_stops_a_tick_before_it_is_done(schedules, keys, redis_client):
    redis_client.set(keys.ready, "mine")
    with pytest.raises(WrongKeyType):
        schedules.fire(REPORT, places.now_ms(redis_client) - 10)
    assert not redis_client.exists(keys.schedules)


@pytest.fixture
def in_code(monkeypatch):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(REPORT)


@pytest.mark.usefixtures("in_code")
def test_every_schedule_is_listed_with_its_next_tick(emails, schedules, keys, redis_client):
    now_ms, (found,), *_ = statuses(emails.config, Pooled(get_client("consume")))
    assert (found.name, found.queue, found.entry, found.last_ms, found.paused) == (
        "nightly",
        "emails",
        REPORT,
        None,
        False,
    )
    assert now_ms < found.next_ms <= now_ms + 60_000
    assert found.next_ms % 60_000 == 0


@pytest.mark.usefixtures("in_code")
def test_a_tick_that_nobody_fires_is_listed_as_over(emails, keys, redis_client):
    seen_since(redis_client, keys, 30_000)
    _, (found,), *_ = statuses(emails.config, Pooled(get_client("consume")))
    assert (found.last_ms, found.next_ms) == (30_000, 60_000)


def test_a_schedule_that_left_the_code_is_listed_until_it_is_forgotten(emails, schedules, keys, redis_client):
    transport = Pooled(get_client("consume"))
    schedules.read_states([replace(REPORT, name="old")])
    schedules.pause("old")
    (found,) = statuses(emails.config, transport).found
    assert (found.name, found.entry, found.next_ms, found.paused) == ("old", None, None, True)
    schedules.forget("old")
    assert statuses(emails.config, transport).found == []
    assert not redis_client.exists(keys.schedules)


MINUTE = 60_000


def skipped_in(client, keys, *ticks):
    """Let ticks have been skipped when they were still to come."""
    client.hset(keys.schedules, f"skips:{REPORT.name}", "\n".join(f"{tick} 5 ann" for tick in ticks))


@pytest.fixture
def ticks(redis_client, keys):
    """Return the last ticks, of which the first is the first that was missed."""
    now = now_ms_within(redis_client, MINUTE)
    found = [now - now % MINUTE - MINUTE * ago for ago in (2, 1, 0)]
    seen_since(redis_client, keys, found[0] - 1)
    return found


def test_a_skipped_tick_passes_and_is_forgotten(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2], ticks[2] + 10 * MINUTE)
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.SKIPPED
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.DONE
    assert not redis_client.exists(keys.ready)
    assert redis_client.hget(keys.schedules, "skips:nightly") == b"%d 5 ann" % (ticks[2] + 10 * MINUTE)
    skipped_in(redis_client, keys, ticks[2])
    seen_since(redis_client, keys, ticks[2] - 1)
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.SKIPPED
    assert not redis_client.hexists(keys.schedules, "skips:nightly")


def test_a_text_that_is_too_long_to_be_parsed_skips_nothing_and_is_dropped(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, *ticks, *range(5000))
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.FIRED
    assert not redis_client.hexists(keys.schedules, "skips:nightly")


def test_an_earlier_tick_that_was_missed_fires_although_the_last_one_is_skipped(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2])
    assert schedules.fire(REPORT, ticks[2], is_first=False)[0] is Firing.SKIPPED
    assert redis_client.hexists(keys.schedules, "skips:nightly")
    assert schedules.fire(REPORT, ticks[1], is_first=False)[0] is Firing.FIRED
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.DONE
    assert not redis_client.hexists(keys.schedules, "skips:nightly")


def test_a_skipped_tick_of_a_paused_schedule_is_forgotten_with_the_tick(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2])
    schedules.pause(REPORT.name)
    assert schedules.fire(REPORT, ticks[2], is_first=False)[0] is Firing.PAUSED
    assert not redis_client.hexists(keys.schedules, "skips:nightly")


def test_firing_now_skips_nothing_and_forgets_nothing(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2])
    assert schedules.fire_now(REPORT)
    assert redis_client.hexists(keys.schedules, "skips:nightly")


@pytest.mark.usefixtures("in_code")
def test_a_tick_is_skipped_once_and_fires_after_all(emails, schedules, redis_client):
    now_ms, _ = schedules.read_states([REPORT])
    tick = REPORT.next_ms(now_ms, UTC) + MINUTE
    assert schedules.skip(REPORT, tick, who="ann\nben") == "SKIPPED"
    assert schedules.skip(REPORT, tick, who="eve") == "WAS_SKIPPED"
    (found,) = plan_of(emails).skips
    assert (found.tick_ms, found.skipped_by) == (tick, "ann<U+000A>ben")
    assert now_ms <= found.skipped_ms <= places.now_ms(redis_client)
    assert found.tick_at.timestamp() * 1000 == tick
    assert schedules.unskip(REPORT.name, tick + MINUTE) == "MISSING"
    assert schedules.unskip(REPORT.name, tick) == "FIRES"
    assert schedules.unskip(REPORT.name, tick) == "MISSING"
    assert list(plan_of(emails).skips) == []


def test_what_has_passed_is_neither_skipped_nor_not_skipped(schedules, keys, redis_client, ticks):
    assert schedules.skip(REPORT, ticks[2]) == "PASSED"
    skipped_in(redis_client, keys, ticks[2])
    assert schedules.unskip(REPORT.name, ticks[2]) == "PASSED"
    assert schedules.fire(REPORT, ticks[2])[0] is Firing.SKIPPED


@pytest.mark.parametrize("change", ["skip", "unskip"])
def test_a_tick_that_passed_while_no_consumer_ran_stays_skipped_when_others_change(
    schedules, keys, redis_client, ticks, change
):
    other = ticks[2] + 10 * MINUTE
    skipped_in(redis_client, keys, *ticks, *[other][: change == "unskip"])
    assert schedules.skip(REPORT, other) == "SKIPPED" if change == "skip" else schedules.unskip(REPORT.name, other)
    assert schedules.fire_last(REPORT, ticks[0], ticks[2]).firing is Firing.SKIPPED
    assert not redis_client.exists(keys.ready)


@pytest.mark.parametrize("last", [None, "x", LAST_MS + 1])
def test_a_tick_is_skipped_whatever_another_program_wrote_about_the_last_one(
    schedules, keys, redis_client, ticks, last
):
    redis_client.hdel(keys.schedules, "last:nightly")
    if last is not None:
        seen_since(redis_client, keys, last)
    skipped_in(redis_client, keys, *ticks)
    assert schedules.skip(REPORT, ticks[2] + 10 * MINUTE) == "SKIPPED"
    assert redis_client.hget(keys.schedules, "skips:nightly").count(b"\n") == (3 if last == "x" else 0)


def test_few_ticks_are_skipped_at_a_time_and_those_that_have_fired_do_not_count(schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, *ticks)
    seen_since(redis_client, keys, ticks[2])
    later = [ticks[2] + MINUTE * count for count in range(1, MAX_SKIPS + 2)]
    assert [schedules.skip(REPORT, tick) for tick in later] == ["SKIPPED"] * MAX_SKIPS + ["FULL"]
    assert redis_client.hget(keys.schedules, "skips:nightly").count(b"\n") == MAX_SKIPS - 1


@pytest.mark.usefixtures("in_code")
def test_the_next_tick_is_the_first_that_is_not_skipped(emails, schedules, keys, redis_client, ticks):
    later = [ticks[2] + MINUTE * count for count in (1, 2, 3)]
    for tick in later[1:]:
        schedules.skip(REPORT, tick)
    assert plan_of(emails).next_ms == ticks[0]
    seen_since(redis_client, keys, later[0])
    found = plan_of(emails)
    assert (found.next_ms, [skipped.tick_ms for skipped in found.skips]) == (later[2] + MINUTE, later[1:])


@pytest.mark.usefixtures("in_code")
def test_a_missed_tick_that_is_skipped_is_not_overdue(emails, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2])
    seen_since(redis_client, keys, ticks[1])
    found = plan_of(emails)
    assert (found.next_ms, list(found.skips)) == (ticks[2] + MINUTE, [])


@pytest.mark.usefixtures("in_code")
def test_what_is_no_tick_since_the_code_has_changed_is_not_shown(emails, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2] + MINUTE + 1)
    assert list(plan_of(emails).skips) == []


@pytest.mark.usefixtures("in_code")
def test_skips_that_another_program_wrote_stop_no_tick(emails, schedules, keys, redis_client, ticks, subtests, forget):
    for text in (b"", b"x", b"\xff\n\n", b"-5 5 ann", b"9" * 400, b"1e3", b" 7"):
        with subtests.test(text=text):
            forget()
            redis_client.hset(keys.schedules, "skips:nightly", text)
            assert list(plan_of(emails).skips) == []
            assert schedules.fire(REPORT, ticks[2])[0] is Firing.FIRED
            assert not redis_client.hexists(keys.schedules, "skips:nightly")


def test_the_skips_of_a_schedule_that_left_the_code_are_forgotten_with_it(emails, schedules, keys, redis_client, ticks):
    skipped_in(redis_client, keys, ticks[2] + MINUTE)
    assert list(plan_of(emails).skips) == []
    schedules.forget(REPORT.name)
    assert not redis_client.exists(keys.schedules)
