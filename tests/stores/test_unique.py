import pytest

from mq_django.core.keys import GROUP
from mq_django.core.messages import ACK, Bury, CancelResult, Expire, HandBack, LookupState, Retry, Undecodable
from mq_django.errors import AlreadyPublished
from mq_django.stores.base import Settlement
from tests import places
from tests.stores.acts import make_due, settle, take_all
from tests.stores.contracts.frozen import NOW_MS, freeze


def test_adding_again_replaces_data_and_due_time_under_a_new_id(emails, keys, redis_client):
    first = emails.publish("remind", 1, delay=60, unique="cart:7")
    second = emails.publish("remind", 2, delay=600, unique="cart:7")
    assert first != second
    assert redis_client.zcard(keys.due) == redis_client.hlen(keys.waiting) == 1
    assert emails.find(unique="cart:7").message.data == emails.find(second).message.data == 2
    assert emails.find(second).due_ms >= places.now_ms(redis_client) + 500_000
    assert emails.find(first).state is LookupState.REPLACED
    assert emails.cancel(first) is CancelResult.REPLACED
    assert emails.reschedule(first, delay=1) is CancelResult.REPLACED
    assert emails.cancel(second) is CancelResult.CANCELLED
    assert emails.cancel(second) is CancelResult.NOT_WAITING
    assert not redis_client.exists(keys.due, keys.waiting, keys.unique)


def test_who_was_replaced_is_forgotten_after_a_day(emails, keys, redis_client):
    first = emails.publish("remind", 1, delay=60, unique="cart:7")
    emails.publish("remind", 2, delay=60, unique="cart:7")
    assert 0 < redis_client.ttl(keys.replaced) <= 86_400
    redis_client.zadd(keys.replaced, {first: places.now_ms(redis_client) - 86_400_001})
    assert emails.find(first).state is LookupState.NOT_WAITING


def test_a_conflict_is_decided_by_its_policy(emails, monkeypatch, subtests, forget):
    freeze(monkeypatch)
    for policy, delay, kept in (
        ("replace", 30, 2),
        ("replace", 90, 2),
        ("keep", 30, 1),
        ("keep", 90, 1),
        ("earliest", 30, 2),
        ("earliest", 90, 1),
    ):
        with subtests.test(policy=policy, delay=delay, kept=kept):
            forget()
            first = emails.publish("remind", 1, delay=60, unique="cart:7")
            second = emails.publish("remind", 2, delay=delay, unique="cart:7", on_conflict=policy)
            found = emails.find(unique="cart:7")
            assert found.message.data == kept
            assert found.message.id == second
            assert (first == second) == (kept == 1)
            expected = 60 if kept == 1 else delay
            assert found.due_ms == NOW_MS + expected * 1000


def test_publishes_postpone_a_message_at_most_for_the_time_from_the_first_on(
    emails, keys, store, redis_client, monkeypatch
):
    freeze(monkeypatch)
    emails.publish("sync", 1, delay=5, at_most=60, unique="cart:7")
    first_ms = emails.find(unique="cart:7").due_ms
    emails.publish("sync", 2, delay=30, at_most=60, unique="cart:7")
    assert first_ms + 25_000 <= emails.find(unique="cart:7").due_ms < first_ms + 55_000
    # Whatever a later one says, also one without a limit.
    for options in ({"delay": 60, "at_most": 60}, {"delay": 90, "at_most": 600}, {"delay": 3600}):
        emails.publish("sync", 3, unique="cart:7", **options)
        assert emails.find(unique="cart:7").due_ms == first_ms + 55_000
    emails.publish("sync", 4, delay=1, unique="cart:7", on_conflict="earliest")
    assert emails.find(unique="cart:7").due_ms < first_ms

    # By hand any time can be set. The next publish keeps to the limit again.
    emails.reschedule(unique="cart:7", delay=3600)
    assert emails.find(unique="cart:7").due_ms > first_ms + 3_000_000
    emails.publish("sync", 5, delay=600, unique="cart:7")
    assert emails.find(unique="cart:7").due_ms == first_ms + 55_000

    emails.reschedule(unique="cart:7", delay=0)
    store.promote(limit=10)
    assert not redis_client.exists(keys.unique)
    emails.publish("sync", 6, delay=600, at_most=600, unique="cart:7")
    assert emails.find(unique="cart:7").due_ms > first_ms + 500_000


def test_a_smaller_limit_of_a_later_publish_counts(emails, monkeypatch):
    freeze(monkeypatch)
    emails.publish("sync", 1, delay=5, at_most=3600, unique="cart:7")
    emails.publish("sync", 2, delay=5, at_most=5, unique="cart:7")
    latest = emails.find(unique="cart:7").due_ms
    emails.publish("sync", 3, delay=60, at_most=3600, unique="cart:7")
    assert emails.find(unique="cart:7").due_ms == latest


def test_a_limit_ends_with_its_message_however_that_goes(emails, keys, redis_client):
    for cancels in (True, False):
        emails.publish("sync", 1, delay=5, at_most=5, unique="cart:7")
        if cancels:
            emails.cancel(unique="cart:7")
            assert not redis_client.exists(keys.unique)
        else:
            # As a program removes it that knows no limits.
            redis_client.delete(keys.due, keys.waiting)
        emails.publish("sync", 2, delay=60, unique="cart:7")
        emails.publish("sync", 2, delay=600, unique="cart:7")
        assert emails.find(unique="cart:7").due_ms > places.now_ms(redis_client) + 500_000
        assert emails.cancel(unique="cart:7")


def test_a_promoted_message_leaves_its_unique_key_free(emails, keys, store, redis_client):
    first = emails.publish("remind", 1, delay=0, unique="cart:7")
    store.promote(limit=500)
    second = emails.publish("remind", 2, delay=60, unique="cart:7", on_conflict="error")
    assert emails.find(first).state is LookupState.NOT_WAITING
    assert [message["id"] for message in places.ready(redis_client, keys)] == [first]
    assert emails.find(unique="cart:7").message.id == second


def test_a_retry_of_a_unique_message_waits_under_its_own_id_beside_a_newer_one(emails, keys, store, redis_client):
    first = emails.publish("remind", 1, delay=0, unique="cart:7")
    store.promote(limit=500)
    second = emails.publish("remind", 2, delay=60, unique="cart:7")
    settle(store, Retry(), delay_ms=60_000)
    assert {member: body["data"] for member, body in places.delayed(redis_client, keys).items()} == {
        first: 1,
        "u:cart:7": 2,
    }
    make_due(redis_client, keys, first)
    store.promote(limit=500)
    (again,) = settle(store, ACK)
    assert (again.id, again.attempt, again.unique) == (first, 2, "cart:7")
    assert emails.find(unique="cart:7").message.id == second


def test_a_foreign_id_is_not_taken_for_a_unique_key(emails, keys, store, redis_client):
    emails.publish("remind", 1, delay=60, unique="cart:7")
    redis_client.xadd(keys.ready, {"id": "u:cart:7", "type": "welcome", "data": "2"})
    (foreign,) = store.take("c1", count=1)
    assert isinstance(foreign, Undecodable)
    store.settle("c1", [Settlement(foreign, Bury(foreign.reason))])
    assert emails.find(unique="cart:7").message.data == 1


def test_a_claimed_key_refuses_a_second_publish_until_the_first_is_handled(emails, store):
    first = emails.publish("sync", 1, unique="shop:7", unique_for="handled")
    with pytest.raises(AlreadyPublished, match=first):
        emails.publish("sync", 2, unique="shop:7", unique_for="handled")
    (held,) = take_all(store)
    with pytest.raises(AlreadyPublished):
        emails.publish("sync", 2, unique="shop:7", unique_for="handled")
    assert emails.publish("sync", 2, unique="shop:8", unique_for="handled") != first
    store.settle("c1", [Settlement(held, ACK)])
    assert emails.publish("sync", 3, unique="shop:7", unique_for="handled") != first


def test_what_ends_a_message_frees_the_key_it_claims(emails, store, keys, redis_client, subtests, forget):
    for outcome in (ACK, Bury("no"), Expire()):
        with subtests.test(outcome=outcome):
            forget()
            store.create_groups()
            emails.publish("sync", 1, unique="shop:7", unique_for="handled")
            settle(store, outcome)
            assert not redis_client.exists(keys.claims)


def test_what_gives_a_message_another_turn_keeps_its_key(emails, store, keys, redis_client, subtests, forget):
    for outcome in (HandBack(), Retry()):
        with subtests.test(outcome=outcome):
            forget()
            store.create_groups()
            first = emails.publish("sync", 1, unique="shop:7", unique_for="handled")
            settle(store, outcome)
            assert emails.publish("sync", 2, unique="shop:7", unique_for="handled", on_conflict="keep") == first
            store.promote(limit=500)
            settle(store, ACK)
            assert not redis_client.exists(keys.claims)


def test_a_consumer_that_lost_a_delivery_does_not_free_its_key(emails, store, keys, redis_client):
    emails.publish("sync", 1, unique="shop:7", unique_for="handled")
    (held,) = take_all(store)
    redis_client.xclaim(keys.ready, GROUP, "c2", 0, [held.entry])
    assert store.settle("c1", [Settlement(held, ACK)]) == [held.message.id]
    with pytest.raises(AlreadyPublished):
        emails.publish("sync", 2, unique="shop:7", unique_for="handled")


def test_a_delayed_claim_is_cancelled_by_its_id_or_by_its_key(emails, keys, redis_client):
    first = emails.publish("sync", 1, unique="shop:7", unique_for="handled", delay=60)
    assert emails.find(unique="shop:7").message.id == first
    assert emails.reschedule(unique="shop:7", delay=5) is CancelResult.RESCHEDULED
    assert emails.cancel(unique="shop:7") is CancelResult.CANCELLED
    second = emails.publish("sync", 2, unique="shop:7", unique_for="handled", delay=60)
    assert emails.cancel(second) is CancelResult.CANCELLED
    assert not redis_client.exists(keys.claims, keys.due, keys.waiting)


def test_a_claim_for_a_time_ends_with_it_or_with_the_message(emails, store, keys, redis_client):
    first = emails.publish("sync", 1, unique="shop:7", unique_for=3600)
    with pytest.raises(AlreadyPublished):
        emails.publish("sync", 2, unique="shop:7", unique_for=3600)
    redis_client.hset(keys.claims, "k:shop:7", f"1:{first}")
    second = emails.publish("sync", 2, unique="shop:7", unique_for=3600)
    first_held, second_held = take_all(store)
    store.settle("c1", [Settlement(first_held, ACK)])
    assert emails.publish("sync", 3, unique="shop:7", unique_for=3600, on_conflict="keep") == second
    store.settle("c1", [Settlement(second_held, ACK)])
    assert not redis_client.exists(keys.claims)


@pytest.mark.parametrize("delay", [None, 3600])
def test_a_claim_whose_message_was_settled_by_others_ends_a_week_after_it_was_due(
    emails, store, keys, redis_client, monkeypatch, delay
):
    freeze(monkeypatch)
    first = emails.publish("sync", 1, unique="shop:7", unique_for="handled", delay=delay)
    if delay is None:
        (held,) = take_all(store)
        # As a program does that knows no claims.
        redis_client.xack(keys.ready, GROUP, held.entry)
        redis_client.xdel(keys.ready, held.entry)
    ends, _, holder = redis_client.hget(keys.claims, "k:shop:7").decode().partition(":")
    week = 7 * 86_400_000
    assert holder == first
    assert int(ends) == NOW_MS + (delay or 0) * 1000 + week
    with pytest.raises(AlreadyPublished):
        emails.publish("sync", 2, unique="shop:7", unique_for="handled")
    redis_client.hset(keys.claims, "k:shop:7", f"{int(ends) - (delay or 0) * 1000 - week - 1}:{first}")
    assert emails.publish("sync", 3, unique="shop:7", unique_for="handled") != first
    assert not redis_client.hexists(keys.claims, f"i:{first}")


def test_claims_that_nobody_asks_for_again_are_removed(emails, keys, redis_client, monkeypatch):
    # By this clock each claim looks for others whose time is over, not only one in 16.
    freeze(monkeypatch)
    for n in range(500):
        redis_client.hset(keys.claims, mapping={f"k:old-{n}": f"1:id-{n}", f"i:id-{n}": f"old-{n}"})
    claim = f"{NOW_MS + 60_000}:kept"
    redis_client.hset(keys.claims, mapping={"k:kept": claim, "i:kept": "kept"})

    for _ in range(30):
        emails.publish("sync", 1, delay=60, unique="k", unique_for="handled")
        assert emails.cancel(unique="k")
    assert redis_client.hgetall(keys.claims) == {b"k:kept": claim.encode(), b"i:kept": b"kept"}


def test_an_old_id_that_a_program_left_does_not_lead_to_the_new_message(emails, keys, redis_client):
    first = emails.publish("remind", 1, delay=60, unique="cart:7")
    # The first id still leads to the key.
    body = redis_client.hget(keys.waiting, "u:cart:7").replace(first.encode(), b"second")
    redis_client.hset(keys.waiting, "u:cart:7", body)
    redis_client.hset(keys.unique, mapping={"u:cart:7": "second", "second": "u:cart:7"})
    assert not emails.find(first)
    assert not emails.reschedule(first, delay=5)
    assert not emails.cancel(first)
    assert emails.find("second").message.id == "second"
    assert emails.cancel("second")
