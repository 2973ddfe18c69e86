"""The factory of publications: what it makes, and what it refuses before anything is sent."""

from collections import UserDict
from datetime import UTC, datetime, timedelta

import pytest

from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.publication import PublishOptions, publication, publications, resubmission
from mq_django.core.queue_configs import GroupConfig, QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.rsmq_format import MESSAGE_ID
from mq_django.core.schedules import SCHEDULE_HEADER, TICK_HEADER, Scheduled, every
from mq_django.errors import InvalidMessage, MessageTooLarge, MQError, NotSupported

QUEUE = QueueConfig(name="emails", max_size=1000)
TOPIC = TopicConfig(name="orders")
GROUP = GroupConfig(name="orders:billing", topic="orders", group="billing")
RSMQ = RsmqConfig(name="jobs")
RSMQ_ID = "0123456789abcdefghijklmnopqrstuv"
#: The time at which everything here is published, in milliseconds since 1970.
NOW = 2_000_000_000_000


@pytest.fixture(autouse=True)
def now(monkeypatch):
    monkeypatch.setattr("mq_django.core.clock.now_ms", lambda: NOW)


def test_a_message_with_all_that_it_can_be_given():
    made = publication(
        QUEUE,
        "welcome",
        {"n": 1},
        delay=timedelta(seconds=1.5),
        key="user:7",
        headers={"source": "shop"},
        priority=-5,
        unique="u",
        unique_for=60,
        on_conflict="keep",
        expires=timedelta(hours=1),
        message_id="m1",
    )
    assert made.message == Message(
        id="m1",
        name="welcome",
        data={"n": 1},
        queue="emails",
        key="user:7",
        published_ms=NOW,
        expires_ms=NOW + 3_600_000,
        priority=-5,
        unique="u",
        headers={"source": "shop"},
        claims=True,
    )
    assert made.data_text == b'{"n":1}'
    assert made.options == PublishOptions(QUEUE, delay_ms=1500, claim_ms=60_000, on_conflict="keep")


def test_a_message_with_nothing_but_a_name(subtests):
    for destination in [QUEUE, TOPIC, GROUP, RSMQ]:
        with subtests.test(destination=destination):
            made = publication(destination, "welcome", None)
            assert made.message == Message(made.message.id, "welcome", None, destination.name, published_ms=NOW)
            assert made.options == PublishOptions(destination)


def test_options(subtests):
    for options, found in [
        ({"delay": 0}, {"delay_ms": 0}),
        # Never early holds for parts of a millisecond, too.
        ({"delay": 0.0001}, {"delay_ms": 0.1}),
        ({"deliver_at": datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)}, {"due_ms": NOW}),
        ({"unique": "u", "delay": 1}, {"delay_ms": 1000}),
        ({"unique": "u", "delay": 1, "on_conflict": "earliest"}, {"delay_ms": 1000, "on_conflict": "earliest"}),
        ({"unique": "u", "delay": 1, "at_most": 1.5}, {"delay_ms": 1000, "postpone_ms": 500}),
        ({"unique": "u", "delay": 1, "at_most": 1}, {"delay_ms": 1000, "postpone_ms": 0}),
        ({"unique": "u", "unique_for": "handled"}, {"claim_ms": 0, "on_conflict": "error"}),
        # Zero would mean until it is handled.
        ({"unique": "u", "unique_for": 0.0001}, {"claim_ms": 1, "on_conflict": "error"}),
        ({"once": True}, {"once": True}),
        ({"runs_task": True}, {"keeps_result": True}),
        ({"runs_task": True, "delay": 1}, {"delay_ms": 1000, "keeps_result": True}),
    ]:
        with subtests.test(options=options):
            assert publication(QUEUE, "welcome", 1, **options).options == PublishOptions(QUEUE, **found)


def test_priorities_have_names(subtests):
    for name, number in (("high", 10), ("normal", 0), ("low", -10)):
        with subtests.test(name=name):
            assert publication(QUEUE, "welcome", 1, priority=name).message.priority == number
            (made,) = publications(QUEUE, [("welcome", 1)], priority=name)
            assert made.message.priority == number
            assert (
                made.message.published_ms == (publications(QUEUE, [("n", 1)], priority=number)[0]).message.published_ms
            )
            if number:
                with pytest.raises(NotSupported, match="priorities"):
                    publication(RSMQ, "welcome", 1, priority=name)


def test_no_result_is_kept_where_none_are(subtests):
    for destination in [QueueConfig(name="q", result_ttl=timedelta(0)), RSMQ, TOPIC]:
        with subtests.test(destination=destination):
            assert publication(destination, "welcome", 1, runs_task=True).options == PublishOptions(destination)


def test_an_expiry_counts_from_the_publish(subtests):
    for expires, ms in [
        (timedelta(milliseconds=7), 5007),
        (datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC), NOW),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
    ]:
        with subtests.test(expires=expires):
            assert publication(QUEUE, "welcome", 1, expires=expires, published_ms=5000).message.expires_ms == ms


def test_many_share_what_was_checked_once():
    made = publications(
        QUEUE, (("welcome", n) for n in range(3)), delay=2, key="k", priority=5, expires=timedelta(seconds=3)
    )
    one = publication(QUEUE, "welcome", 0, delay=2, key="k", priority=5, expires=timedelta(seconds=3))
    assert [item.message._replace(id="", data=0) for item in made] == [one.message._replace(id="")] * 3
    assert [item.data_text for item in made] == [b"0", b"1", b"2"]
    assert len({item.message.id for item in made}) == 3
    assert {id(item.options) for item in made} == {id(made[0].options)}
    assert made[0].options == one.options


def test_many_that_are_ready_are_as_old_as_their_entries():
    (made,) = publications(QUEUE, [("welcome", 1)])
    assert made.message.published_ms is None
    assert publications(QUEUE, []) == []


def test_headers_that_change_after_the_call_change_nothing():
    headers = {"source": "shop"}
    made = publication(QUEUE, "welcome", 1, headers=headers)
    headers["source"] = "\ud800"
    assert made.message.headers == {"source": "shop"}
    assert publication(QUEUE, "welcome", 1, headers=UserDict(a="b")).message.headers == {"a": "b"}


def test_an_rsmq_id_has_rsmq_s_form():
    assert MESSAGE_ID.fullmatch(publication(RSMQ, "welcome", 1).message.id)
    assert publication(RSMQ, "welcome", 1, message_id=RSMQ_ID).message.id == RSMQ_ID


def test_what_is_resubmitted_keeps_all_but_what_ended_with_it():
    old = Message(
        "m1", "welcome", 1, "emails", 7, "user:7", 5, NOW - 1, 9, "u", {"a": "b"}, claims=True
    )  # its key is that of another program, which no publish would take
    made = resubmission(QUEUE, old._replace(key="two\nlines"), {"n": 2})
    assert made.message.id != "m1"
    assert made.message == Message(
        made.message.id, "welcome", {"n": 2}, "emails", 1, "two\nlines", None, None, 9, "u", {"a": "b"}
    )
    assert (made.data_text, made.options) == (b'{"n":2}', PublishOptions(QUEUE))


def test_data_that_cannot_be_resubmitted(subtests):
    for data in [{1}, "x" * 1000, float("nan")]:
        with subtests.test(data=data), pytest.raises(InvalidMessage):
            resubmission(QUEUE, Message("m1", "welcome", 1, "emails"), data)


def test_the_publication_of_a_tick():
    entry = Scheduled(
        name="n", queue="emails", message="report", data=1, when=every(hours=1), key="k", expires=timedelta(seconds=2)
    )
    made, outside = entry.publication(QUEUE, NOW - 5000).message, entry.publication(QUEUE).message
    assert (made.name, made.key, made.published_ms, made.expires_ms) == ("report", "k", NOW - 5000, NOW - 3000)
    assert made.headers == {TICK_HEADER: "2033-05-18T03:33:15.000Z", SCHEDULE_HEADER: "n"}
    assert (outside.published_ms, outside.expires_ms, outside.headers) == (NOW, NOW + 2000, NO_HEADERS)


class Unlike:
    pass


DEEP = []
for _ in range(501):
    DEEP = [DEEP]
WIDE = QueueConfig(name="wide", max_size=1_000_000)

NAN, LONG = float("nan"), "x" * 256
MOMENT = datetime(2033, 1, 1, tzinfo=UTC)
HEADERS = [{"Upper": "x"}, {"type": "x"}, {"a": 1}, {"a": "\ud800"}, {"": "x"}, {7: "x"}, 7, "ab", [("a", "b")]]
MANY_HEADERS, LONG_HEADER = {f"h{n}": "" for n in range(600)}, {"h": "x" * 2_000_000}

#: An argument of publication(), what no publish takes for it, with what other options, and a word of what is said.
BAD = [
    ("name", ["", LONG, "two\nlines", "\ud800", None, 7, b"n", ["n"]], {}, "name"),
    ("data", [{1, 2}, Unlike(), NAN, float("inf"), "\ud800", b"x", {"a": [Unlike()]}, Unlike], {}, "JSON"),
    ("delay", [-1, True, "5", NAN, float("inf"), timedelta(days=4000), timedelta(seconds=-1), []], {}, "delay"),
    ("delay", [5], {"deliver_at": MOMENT}, "not both"),
    ("deliver_at", [2_000_000_000, "2033-05-18", timedelta(1)], {}, "datetime"),
    ("priority", [101, -101, True, 1.0, "1", None, "High", "urgent", "", ["high"]], {}, "100, or high, normal, low"),
    ("key", ["", 7, "a\nb", LONG, b"k"], {}, "key"),
    ("message_id", ["", 7, "u:cart:7", "p:1", LONG, "a\nb"], {}, "id"),
    ("headers", HEADERS, {}, "[Hh]eader"),
    ("headers", [MANY_HEADERS, LONG_HEADER], {}, "headers"),
    ("expires", ["5", "tomorrow", True, timedelta.max, timedelta.min, datetime(1960, 1, 1, tzinfo=UTC)], {}, "expires"),
    ("expires", [300, timedelta(hours=1), datetime(2032, 1, 1, tzinfo=UTC)], {"delay": 3600}, "before it is due"),
    ("expires", [MOMENT], {"deliver_at": MOMENT}, "before it is due"),
    ("unique", ["u"], {}, "needs delay="),
    ("unique", ["", 7, LONG, "a\nb"], {"delay": 1}, "unique"),
    ("unique_for", [5], {}, "needs unique="),
    ("unique_for", ["done", -1, True, [], NAN], {"unique": "u"}, "unique_for|delay"),
    ("on_conflict", ["merge"], {}, "on_conflict"),
    ("on_conflict", ["merge", 7, []], {"unique": "u", "delay": 1}, "on_conflict"),
    ("on_conflict", ["replace", "earliest"], {"unique": "u", "unique_for": 5}, "on_conflict"),
]
EACH_BAD = [({option: value, **others}, word) for option, values, others, word in BAD for value in values]
OF_MANY = {"name", "data", "delay", "deliver_at", "key", "priority", "expires"}


def test_what_cannot_be_sent_is_refused_by_a_sentence_that_says_what(subtests):
    for given, word in EACH_BAD:
        with subtests.test(given=given):
            with pytest.raises(InvalidMessage, match=word) as refused:
                publication(WIDE, **{"name": "n", "data": 1, **given})
            assert len(str(refused.value)) < 700


def test_many_are_refused_for_what_one_is_refused(subtests):
    for given, word in [(given, word) for given, word in EACH_BAD if given.keys() <= OF_MANY]:
        with subtests.test(given=given):
            options = {option: value for option, value in given.items() if option not in ("name", "data")}
            with pytest.raises(InvalidMessage, match=word):
                publications(WIDE, [("n", 1), (given.get("name", "n"), given.get("data", 1))], **options)


def test_data_that_is_too_long_or_too_deep():
    with pytest.raises(MessageTooLarge, match="1002 bytes of data are more than the 1000"):
        publication(QUEUE, "n", "x" * 1000)
    with pytest.raises(MessageTooLarge, match="1002 bytes"):
        publications(QUEUE, [("n", "x" * 1000)])
    with pytest.raises(InvalidMessage, match="nested deeper"):
        publication(WIDE, "n", DEEP)


def test_what_a_destination_lacks_is_refused(subtests):
    for destination, options, sentence in [
        (RSMQ, {"priority": 1}, "Queue 'jobs' has RSMQ's format, which has no priorities"),
        (RSMQ, {"unique": "u", "delay": 1}, "Queue 'jobs' has RSMQ's format, which has no unique keys"),
        (RSMQ, {"unique": "u", "unique_for": 1}, "Queue 'jobs' has RSMQ's format, which has no unique keys"),
        (RSMQ, {"message_id": "short"}, "which has no ids such as 'short': they have 32 letters and digits"),
        (RSMQ, {"message_id": "{config}" + "x" * 24}, "no ids such as '{config}xxx"),
        (GROUP, {"priority": 1}, "Topic 'orders' is read in one order, so there are no priorities"),
        (TOPIC, {"priority": 1}, "Topic 'orders' is read in one order, so there are no priorities"),
        (TOPIC, {"delay": 1}, "Topic 'orders' is read in one order, so there are no delays"),
        (TOPIC, {"unique": "u", "unique_for": 1}, "Topic 'orders' is read in one order, so there are no unique keys"),
    ]:
        with subtests.test(destination=destination):
            with pytest.raises(NotSupported) as refused:
                publication(destination, "n", 1, **options)
            assert sentence in str(refused.value)
            if {"priority", "delay"} >= options.keys():
                with pytest.raises(MQError):
                    publications(destination, [("n", 1)], **options)
