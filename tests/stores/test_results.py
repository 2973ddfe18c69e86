import pytest

from mq_django.conf import QueueConfig
from mq_django.core.messages import Ack, Bury, Delivery, Expire, HandBack, Message, Retry, SetAside, Undecodable
from mq_django.core.publication import Publication, PublishOptions
from mq_django.core.retries import MAX_TRACEBACK
from mq_django.errors import WrongKeyType
from mq_django.stores.base import Settlement
from mq_django.stores.results import (
    RunningTask,
    copy_results,
    error_path,
    find_result,
    note_running,
    read_result,
    ready_command,
    results_of_batch,
)
from mq_django.stores.settling import Settling, stream_receipts
from mq_django.transport.sessions import Pooled

DATA_TEXT = b'{"args":[7],"kwargs":{}}'
ENTRIES = [b"1-0", b"2-0", b"5-0", b"6-0", b"9-5", b"20-0"]


@pytest.fixture
def config(namespace):
    return QueueConfig(name="emails", namespace=namespace)


@pytest.fixture
def transport(redis_client):
    return Pooled(redis_client)


def settlement(outcome, *, attempt=1, entry=b"1-0", delay_ms=0, micros=1500, text=DATA_TEXT, keeps_result=True):
    message = Message("m1", "shop.tasks.send", {}, "emails", attempt=attempt, published_ms=1000)
    return Settlement(Delivery(message, 0, entry, text), outcome, delay_ms, micros, keeps_result)


def hold(config, transport, *entries, consumer="c1"):
    """Let a consumer hold these deliveries."""
    key, group = config.keys.ready, config.keys.group
    there = sorted({*ENTRIES, *entries}, key=lambda entry: int(entry.partition(b"-")[0]))
    added = [("XADD", key, entry, "a", "b") for entry in there]
    own = ("XCLAIM", key, group, consumer, 0, *entries, "FORCE", "JUSTID")
    transport.pipeline([("XGROUP", "CREATE", key, group, "0", "MKSTREAM"), *added, own])


def settle(config, transport, *settlements, consumer="c1"):
    own = [stream_receipts(config.keys, stream) for stream in config.keys.streams()]
    return Settling(transport, config, own).settle(consumer, settlements)[0]


def note(config, transport, *settlements, consumer="c1"):
    transport.pipeline([("DEL", config.keys.ready)])
    hold(config, transport, *{one.delivery.entry for one in settlements}, consumer=consumer)
    assert settle(config, transport, *settlements, consumer=consumer) == []


def begin(config, transport, *, priority=0, **options):
    message = Message("m1", "shop.tasks.send", {}, "emails", published_ms=1000, priority=priority)
    transport.pipeline([ready_command(config, Publication(message, DATA_TEXT, PublishOptions(config, **options)))])


def found(config, transport):
    return find_result([transport], [config], "m1")


def test_a_result_is_found_in_whichever_queue_it_is(config, transport, namespace):
    begin(config, transport)
    others = [QueueConfig(name=name, namespace=namespace) for name in ("default", "sms")]
    assert find_result([transport] * 3, [*others, config], "m1").queue == "emails"
    assert find_result([transport] * 2, others, "m1") is None
    assert find_result([], [], "m1") is None


def test_a_queue_that_cannot_be_read_hides_no_result_of_another(config, transport, namespace, redis_client):
    broken = QueueConfig(name="default", namespace=namespace)
    redis_client.hset(broken.keys.result("m1"), "a", "b")
    with pytest.raises(WrongKeyType):
        find_result([transport] * 2, [broken, config], "m1")
    begin(config, transport)
    assert find_result([transport] * 2, [broken, config], "m1").queue == "emails"


def test_a_late_line_of_a_consumer_that_lost_its_delivery_decides_nothing(config, transport):
    begin(config, transport)
    note(config, transport, settlement(Ack(b'"second"'), attempt=2, entry=b"20-0"), consumer="c2")
    note(config, transport, settlement(Retry(error="ValueError: late"), attempt=1, entry=b"9-5"), consumer="c1")
    result = found(config, transport)
    assert result.status == "SUCCESSFUL"
    assert [a.consumer for a in result.attempts] == ["c1", "c2"]


def test_a_redriven_message_begins_to_count_anew(config, transport):
    begin(config, transport)
    note(config, transport, settlement(Bury("ValueError: no"), attempt=3, entry=b"5-0"))
    note(config, transport, settlement(Ack(), attempt=1, entry=b"6-0"))
    assert found(config, transport).status == "SUCCESSFUL"


def test_data_over_several_lines_stay_one_line(config, transport):
    note(config, transport, settlement(Ack(), text=b'{\n "args": [7],\n "kwargs": {}\n}'))
    result = found(config, transport)
    assert result.data == {"args": [7], "kwargs": {}}
    assert result.status == "SUCCESSFUL"


def test_a_line_is_written_whatever_the_data_are(config, transport, subtests, forget):
    for text in (b"[1e999,\n10000000000000000000000]", b"[" * 1015 + b"\n" + b"]" * 1015):
        with subtests.test(text=text):
            forget()
            note(config, transport, settlement(Ack(), text=text))


def test_what_runs_no_task_and_what_settles_nothing_leaves_no_line(config, transport):
    undecodable = Settlement(Undecodable(0, b"1-0", [], "x"), Bury("x", reason="undecodable"))
    others = [settlement(HandBack()), settlement(SetAside()), settlement(Ack(), keeps_result=False)]
    assert results_of_batch(config, "c1", [undecodable, *others]) == ([], [])


def test_what_expired_has_failed_with_an_error_of_its_own(config, transport):
    note(config, transport, settlement(Expire(), micros=None))
    (attempt,) = found(config, transport).attempts
    assert (attempt.status, attempt.error, attempt.started_ms) == ("FAILED", "mq_django.errors.MessageExpired", None)
    assert attempt.traceback == "mq_django.errors.MessageExpired: expired before it was handled"


def test_a_result_lives_for_the_ttl_after_its_end_and_longer_before(config, transport, redis_client):
    key = config.keys.result("m1")
    begin(config, transport, delay_ms=3_600_000)
    week, day, hour = 7 * 86_400_000, 86_400_000, 3_600_000
    assert week < redis_client.pttl(key) <= week + hour
    note(config, transport, settlement(Retry(), delay_ms=2 * hour))
    assert week + hour < redis_client.pttl(key) <= week + 2 * hour
    note(config, transport, settlement(Ack(), attempt=2))
    assert day - hour < redis_client.pttl(key) <= day


def test_a_broken_result_keeps_no_other_back(config, transport, redis_client):
    redis_client.lpush(config.keys.result("m0"), "x")
    both = [settlement(Ack()), settlement(Ack(), entry=b"2-0")]
    both[0] = both[0]._replace(delivery=both[0].delivery._replace(message=both[0].delivery.message._replace(id="m0")))
    hold(config, transport, b"1-0", b"2-0")
    settle(config, transport, *both)
    assert found(config, transport).status == "SUCCESSFUL"
    assert redis_client.lrange(config.keys.result("m0"), 0, -1) == [b"x"]


def test_a_refused_outcome_leaves_no_line(config, transport):
    """The delivery of a consumer that was frozen is with another one, which still runs the task."""
    begin(config, transport)
    hold(config, transport, b"1-0", b"2-0", consumer="c2")
    hold(config, transport, b"2-0")
    settle(config, transport, settlement(Ack(b"1")), settlement(Retry(error="E: no"), entry=b"5-0"))
    assert (found(config, transport).status, found(config, transport).attempts) == ("READY", [])
    settle(config, transport, settlement(Ack(b"1")), settlement(Ack(b"2"), entry=b"2-0"))
    assert [attempt.value for attempt in found(config, transport).attempts] == [2]


def test_a_batch_of_any_size_is_noted(config, transport, redis_client):
    settlements = [
        settlement(Ack())._replace(
            delivery=Delivery(Message(f"m{n}", "t", {}, "emails"), 0, b"%d-0" % (n + 100), DATA_TEXT)
        )
        for n in range(1001)
    ]
    note(config, transport, *settlements)
    assert redis_client.exists(config.keys.result("m0"), config.keys.result("m1000")) == 2


def test_long_tracebacks_keep_their_end_and_many_keep_the_first_and_the_last(config, transport):
    trace = "x" * 10_000 + "the reason"
    for number in range(1, 8):
        note(config, transport, settlement(Retry(error="E: short", traceback=trace), attempt=number))
    note(config, transport, settlement(Bury("E: short", trace), attempt=8))
    kept = [attempt.traceback for attempt in found(config, transport).attempts]
    assert [len(text) for text in kept] == [MAX_TRACEBACK] * 5 + [len("E: short")] * 2 + [MAX_TRACEBACK]
    assert kept[0].endswith("the reason")


def test_text_that_utf_8_does_not_have_is_replaced(config, transport):
    note(config, transport, settlement(Bury("ValueError: \udc80", "Traceback \udc80")))
    (attempt,) = found(config, transport).attempts
    assert attempt.traceback == "Traceback ?"


# While a task is running.


def runs(config, transport, redis_client, *, consumer="c1", attempt=1, entry=b"1-0", is_member=True):
    """Note that the task is running, in a consumer that is a member of the queue, or not any more."""
    if is_member:
        redis_client.hset(config.keys.consumers, f"consumer:{consumer}", "{}")
    delivery = settlement(Ack(), attempt=attempt, entry=entry).delivery
    note_running(transport, config, consumer, [RunningTask(delivery, 5000)])


def test_it_is_ready_when_its_consumer_is_gone(config, transport, redis_client):
    begin(config, transport)
    runs(config, transport, redis_client)
    redis_client.hdel(config.keys.consumers, "consumer:c1")
    result = found(config, transport)
    assert (result.status, result.running, result.runs) == ("READY", None, [])


def test_an_ending_of_the_same_delivery_counts_whichever_was_written_first(config, transport, redis_client):
    begin(config, transport)
    runs(config, transport, redis_client)
    note(config, transport, settlement(Ack(b"5")))
    assert found(config, transport).status == "SUCCESSFUL"
    runs(config, transport, redis_client)
    result = found(config, transport)
    assert (result.status, result.running, [each.value for each in result.attempts]) == ("SUCCESSFUL", None, [5])


def test_a_line_of_an_earlier_delivery_does_not_count(config, transport, redis_client):
    begin(config, transport)
    note(config, transport, settlement(Retry(error="ValueError: no"), attempt=2, entry=b"20-0"), consumer="c2")
    runs(config, transport, redis_client, attempt=1, entry=b"9-5")
    result = found(config, transport)
    assert (result.status, result.running) == ("READY", None)
    assert [each.consumer for each in result.runs] == ["c2"]


def test_a_task_that_was_redriven_is_running_and_has_failed_again_without_its_consumer(config, transport, redis_client):
    begin(config, transport)
    note(config, transport, settlement(Bury("ValueError: no"), attempt=3, entry=b"5-0"))
    runs(config, transport, redis_client, attempt=1, entry=b"6-0")
    assert found(config, transport).status == "RUNNING"
    redis_client.hdel(config.keys.consumers, "consumer:c1")
    assert found(config, transport).status == "FAILED"


def test_a_task_that_was_taken_over_runs_where_it_was_noted_last(config, transport, redis_client):
    begin(config, transport)
    runs(config, transport, redis_client, consumer="dead", is_member=False)
    runs(config, transport, redis_client, consumer="quarantine")
    assert found(config, transport).running.consumer == "quarantine"


def test_entries_without_an_order_are_ordered_by_their_attempts(config, transport, redis_client):
    """Another program may have written them."""

    def status():
        key = config.keys.result("m1")
        redis_client.set(key, redis_client.get(key).replace(b'-0","', b':0","'))
        return found(config, transport).status

    begin(config, transport)
    note(config, transport, settlement(Retry(error="ValueError: no")))
    runs(config, transport, redis_client, attempt=2, entry=b"2-0")
    assert status() == "RUNNING"
    note(config, transport, settlement(Ack(), attempt=2, entry=b"2-0"))
    assert status() == "SUCCESSFUL"


def test_a_result_that_is_missing_or_of_another_type_is_left_alone(config, transport, redis_client):
    begin(config, transport)
    redis_client.lpush(config.keys.result("list"), "x")
    message = settlement(Ack()).delivery.message
    tasks = [
        RunningTask(settlement(Ack()).delivery._replace(message=message._replace(id=each)), 5000)
        for each in ("gone", "list", "m1")
    ]
    note_running(transport, config, "c1", tasks)
    assert not redis_client.exists(config.keys.result("gone"))
    assert redis_client.lrange(config.keys.result("list"), 0, -1) == [b"x"]
    assert b"RUNNING" in redis_client.get(config.keys.result("m1"))


def test_noting_it_changes_no_time_to_live(config, transport, redis_client):
    begin(config, transport)
    for left in (100_000, 10**9):
        redis_client.pexpire(config.keys.result("m1"), left)
        runs(config, transport, redis_client)
        assert left - 50_000 < redis_client.pttl(config.keys.result("m1")) <= left


def test_only_a_result_that_is_running_needs_a_second_round_trip(config, transport, redis_client):
    def commands():
        before = redis_client.info("stats")["total_commands_processed"]
        found(config, transport)
        return redis_client.info("stats")["total_commands_processed"] - before - 1

    begin(config, transport)
    assert commands() == 1
    runs(config, transport, redis_client)
    assert commands() == 2
    note(config, transport, settlement(Ack()))
    assert commands() == 1


def test_a_copy_in_another_queue_is_not_running(config, transport, redis_client, namespace):
    other = QueueConfig(name="default", namespace=namespace)
    begin(config, transport)
    note(config, transport, settlement(Retry(error="ValueError: no")))
    runs(config, transport, redis_client, attempt=2, entry=b"2-0")
    redis_client.hset(other.keys.consumers, "consumer:c1", "{}")
    assert copy_results((config, transport), (other, transport), ["m1"]) == [config.keys.result("m1")]
    result = find_result([transport], [other], "m1")
    assert (result.queue, result.status, [each.number for each in result.attempts]) == ("default", "READY", [1])


def test_a_consumer_that_cannot_be_is_not_there(config, transport, redis_client, subtests, forget):
    for consumer in ('""', "7", '"\\ud800"', '"c\\u0000"'):
        with subtests.test(consumer=consumer):
            forget()
            begin(config, transport)
            line = '{"status":"RUNNING","entry":"1-0","consumer":' + consumer + "}"
            redis_client.append(config.keys.result("m1"), f"\n{line}")
            assert found(config, transport).status == "READY"


def test_the_class_of_an_error_is_read_from_what_is_told_of_it(subtests):
    for told, path in (
        ("ValueError: no", "builtins.ValueError"),
        ("ValueError: ", "builtins.ValueError"),
        ("KeyError", "builtins.KeyError"),
        ("shop.errors.Down: a: b", "shop.errors.Down"),
        ("running when its process died", "builtins.Exception"),
        ("gateway: slow", "builtins.Exception"),
        ("", "builtins.Exception"),
        ("\n", "builtins.Exception"),
    ):
        with subtests.test(told=told, path=path):
            assert error_path(told) == path


def test_what_is_no_result_reads_as_none(subtests):
    for text in (b"", b"x", b"[]", b"{}", b'{"name":"a"}', b'{"name":1,"queue":"q"}', b"\xff", b"[" * 100_000):
        with subtests.test(text=text):
            assert read_result(text) is None


def test_numbers_that_make_no_sense_are_none():
    text = (
        b'{"name":"a","queue":"q","enqueued":"x","due":99999999999999999,"priority":-101}\n'
        b'{"status":"READY","attempt":1000000000000,"entry":"' + b"9" * 5000 + b'-1","started":[],"finished":-1e400}\n'
        b'{"status":"FAILED","attempt":-5,"entry":"1-x","started":1.5,"error":7,"traceback":[1]}'
    )
    result = read_result(text)
    assert (result.enqueued_ms, result.due_ms, result.priority) == (None, None, 0)
    (attempt,) = [attempt for attempt in result.attempts if attempt.status == "FAILED"]
    assert (attempt.number, attempt.started_ms, attempt.error, attempt.traceback) == (1, None, "", "")


def test_a_line_that_is_no_attempt_is_left_out():
    text = b'{"name":"a","queue":"q"}\n{"status":"EVIL"}\n[]\n{"status":"FAILED","attempt":"x"}\n{"status":"SUCC'
    (attempt,) = read_result(text).attempts
    assert (attempt.status, attempt.number) == ("FAILED", 1)
