"""Messages that come again by a seek, a replay, a republish or another number of partitions; and passes."""

import io

import pytest
from django.core.management import call_command

from mq_django import Ack, Bury, exactly_once, handler, queues, subscriber, topics
from mq_django.conf import get_config
from mq_django.consumers.worker.databases import databases_within
from mq_django.core import clock
from mq_django.core.messages import ACK, Message
from mq_django.core.retries import READY, Attempt, with_attempt
from mq_django.errors import ConfigurationError, InvalidOffset, UnknownGroup
from mq_django.inbox.entries import Identity
from mq_django.models import InboxMessage, InboxPass
from mq_django.testing.faults import SingleRun
from mq_django.testing.runs import ensure_groups
from tests.inbox.conftest import ALIAS, on_each_database
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers")

#: In milliseconds.
DAY = 86_400_000


@pytest.fixture(autouse=True)
def _settings(mq_settings, handlers, using):
    mq_settings(
        QUEUES={"default": {}, "spread": {"PARTITIONS": 4}},
        TOPICS={"orders": {}, "wide": {"PARTITIONS": 2}},
    )


@pytest.fixture
def group(effects):
    """A group whose subscriber has handled two messages."""
    subscriber("orders", group="billing")(exactly_once(using=ALIAS)(effects_of(effects)))
    ensure_groups()
    for number in range(2):
        topics["orders"].publish("paid", number, message_id=f"m{number}")
    run("orders:billing")
    assert effects.all() == ["m0", "m1"]
    return topics["orders"].group("billing")


def effects_of(effects):
    def add(message):
        effects.add(message)

    return add


def mq(*arguments):
    call_command("mq", *arguments, stdout=io.StringIO())


def outcomes():
    return [handled.outcome for handled in run("orders:billing")]


def seek(group, **options):
    group.seek("beginning", **options)
    assert outcomes() == [ACK, ACK]


def seek_by_command(group, *, repeat=False):
    mq("topics", "seek", "orders:billing", "beginning", *["--repeat"] * repeat)
    assert outcomes() == [ACK, ACK]


def replay(group, **options):
    assert len(group.replay(**options).handled) == 2


def replay_by_command(group, *, repeat=False):
    mq("topics", "replay", "orders:billing", *["--repeat"] * repeat)


@pytest.fixture
def days_later():
    """Move the clock, and put it back."""
    yield lambda days: clock.set_shift(days * 86400.0)
    clock.set_shift(0)


class TestIdentity:
    def test_a_partition_is_no_part_of_it(self):
        message = Message("m", "n", 1, "spread", key="k")
        assert Identity.of(message, "spread.3", "n") == Identity.of(message, "spread", "n")

    def test_values_are_never_taken_for_others(self):
        found = {
            Identity("q", "m", None, "n").digest(),
            Identity("q", "m", "", "n").digest(),
            Identity("q", "mn", None, "").digest(),
            Identity("q", "m", None, "n", 1).digest(),
            Identity("q:m", "", None, "n").digest(),
        }
        assert len(found) == 5

    def test_a_group_differs_from_the_others_of_its_topic(self, effects):
        for name in ("billing", "shipping"):
            subscriber("orders", group=name)(exactly_once(using=ALIAS)(effects_of(effects)))
        ensure_groups()
        topics["orders"].publish("paid", 1, message_id="m")
        run()
        assert effects.all() == ["m", "m"]


def test_a_message_that_is_published_again_has_no_second_effect(effects):
    handler("default", "n")(exactly_once(using=ALIAS)(effects_of(effects)))
    for _ in range(2):
        queues["default"].publish("n", 1, message_id="m")
        assert [handled.outcome for handled in run("default")] == [ACK]
    assert effects.all() == ["m"]


def test_in_partitions_an_id_belongs_to_its_key(effects):
    handler("spread", "n")(exactly_once(using=ALIAS)(effects_of(effects)))
    for _ in range(2):
        for key in ("a", "b", "c"):
            queues["spread"].publish("n", 1, message_id="m", key=key)
        run("spread")
    assert effects.all() == ["m", "m", "m"]


@pytest.mark.versions
@pytest.mark.cluster
@on_each_database
def test_what_comes_again_has_effects_only_when_it_is_asked_to_and_then_once(group, effects):
    for passes, again in enumerate((seek, replay, seek_by_command, replay_by_command), 1):
        again(group)
        assert effects.all() == ["m0"] * passes + ["m1"] * passes
        again(group, repeat=True)
        again(group)
        assert effects.all() == ["m0"] * (passes + 1) + ["m1"] * (passes + 1)


def test_a_dry_run_repeats_nothing(group, effects):
    mq("topics", "seek", "orders:billing", "beginning", "--repeat", "--dry-run")
    assert outcomes() == []
    replay(group, repeat=True, dry=True)
    seek(group)
    assert effects.all() == ["m0", "m1"]


class TestSeek:
    def test_partitions_have_one_pass(self, effects):
        subscriber("wide", group="all")(exactly_once(using=ALIAS)(effects_of(effects)))
        topics["wide"].group("all").subscribe()
        for number in range(4):
            topics["wide"].publish("paid", number, message_id=f"m{number}", key=str(number))
        run("wide:all")
        topics["wide"].group("all").seek("beginning")
        assert len(run("wide:all")) == 4
        assert effects.all() == ["m0", "m1", "m2", "m3"]
        topics["wide"].group("all").seek("beginning", repeat=True)
        run("wide:all")
        assert len(effects.all()) == 8

    def test_nothing_is_raised_before_everything_is_checked(self, group):
        with pytest.raises(InvalidOffset):
            group.seek("nowhere", repeat=True)
        with pytest.raises(ConfigurationError, match="repeat must be"):
            group.seek("beginning", repeat="yes")
        group.unsubscribe()
        with pytest.raises(UnknownGroup):
            group.seek("beginning", repeat=True)
        assert not InboxPass.objects.using(ALIAS).exists()

    def test_a_group_without_the_mark_cannot_repeat(self):
        subscriber("orders", group="plain")(lambda message: None)
        ensure_groups()
        with pytest.raises(ConfigurationError, match="'orders:plain' has none"):
            topics["orders"].group("plain").seek("beginning", repeat=True)


class TestReplay:
    def test_it_does_what_was_not_done(self, group, effects, rows):
        InboxMessage.objects.using(ALIAS).filter(message_id="m1").delete()
        group.replay()
        assert effects.all() == ["m0", "m1", "m1"]
        assert len(rows()) == 2

    def test_a_failure_leaves_no_row(self, group, effects, rows):
        InboxMessage.objects.using(ALIAS).all().delete()
        subscriber("orders", group="billing", name="paid")(exactly_once(using=ALIAS)(lambda message: Bury("no")))
        assert [error for _, error in group.replay().failed] == ["no", "no"]
        assert rows() == []

    def test_a_given_handler_cannot_repeat(self, group):
        with pytest.raises(ConfigurationError, match="is for the subscribers"):
            group.replay(print, repeat=True)

    def test_what_may_be_forgotten_is_not_run(self, group, effects, days_later):
        InboxMessage.objects.using(ALIAS).filter(message_id="m1").delete()
        days_later(31)
        done = group.replay()
        assert [message.id for message in done.handled] == ["m0"]
        assert "INBOX_RETENTION" in done.failed[0][1]
        assert effects.all() == ["m0", "m1"]


class TestUncertain:
    def test_a_seek_over_what_may_be_forgotten_buries_it(self, group, effects, days_later):
        InboxMessage.objects.using(ALIAS).filter(message_id="m1").delete()
        days_later(31)
        group.seek("beginning")
        known, forgotten = outcomes()
        assert known == ACK
        assert (type(forgotten), forgotten.reason) == (Bury, "uncertain")
        assert effects.all() == ["m0", "m1"]

    def test_a_new_pass_forgets_nothing(self, group, effects, days_later):
        days_later(31)
        group.seek("beginning", repeat=True)
        assert outcomes() == [ACK, ACK]
        assert effects.all() == ["m0", "m0", "m1", "m1"]

    def test_a_group_that_was_never_moved_handles_old_messages(self, effects, days_later):
        topics["orders"].publish("paid", 1, message_id="old")
        days_later(31)
        subscriber("orders", group="new")(exactly_once(using=ALIAS)(effects_of(effects)))
        ensure_groups()
        assert [handled.outcome for handled in run("orders:new")] == [ACK]
        assert effects.all() == ["old"]

    def test_an_old_message_that_may_be_a_repeat_is_buried(self, consumer, effects, using):
        consumer.handle(effects.add, once=using)
        published = {age: clock.now_ms() - age * DAY for age in (29, 31)}
        assert consumer.run("first", attempt=1, published_ms=published[31]) == ACK
        assert consumer.run("young", attempt=2, published_ms=published[29]) == ACK
        outcome = consumer.run("old", attempt=2, published_ms=published[31])
        assert (type(outcome), outcome.reason) == (Bury, "uncertain")
        assert effects.all() == ["first", "young"]

    def test_one_that_is_known_is_acked(self, consumer, effects, using):
        consumer.handle(effects.add, once=using)
        old = clock.now_ms() - 31 * DAY
        assert [consumer.run(attempt=attempt, published_ms=old) for attempt in (1, 2)] == [ACK, ACK]
        assert effects.all() == ["m"]

    def test_a_message_that_was_delayed_is_as_old_as_its_first_attempt(self, consumer, effects, using):
        consumer.handle(effects.add, once=using)
        for name, age, expected in (("lately", 29, Ack), ("long ago", 31, Bury)):
            published, started = (clock.now_ms() - days * DAY for days in (60, age))
            history = with_attempt("", Attempt(READY, 1, "me", started, started, "ValueError: broken"))
            assert isinstance(consumer.run(name, attempt=2, published_ms=published, history=history), expected)
        assert effects.all() == ["lately"]


class TestMessagesWithoutId:
    """Other programs may write them. The id of an entry is that of another one in another partition, too."""

    FIELDS = {"type": "n", "data": "1"}

    def test_two_partitions_may_have_the_same_entry(self, effects, redis_client):
        handler("spread", "n")(exactly_once(using=ALIAS)(effects_of(effects)))
        for part in get_config().queue("spread").parts:
            redis_client.xadd(part.keys.ready, self.FIELDS, id="5-1")
        run("spread")
        assert effects.all() == [f"5-1.{number}" for number in range(4)]

    def test_the_id_stays_when_the_delivery_is_lost(self, effects, redis_client):
        handler("spread", "n")(exactly_once(using=ALIAS)(effects_of(effects)))
        part = get_config().queue("spread").parts[2]
        redis_client.xadd(part.keys.ready, self.FIELDS, id="5-1")
        with databases_within() as databases:
            SingleRun(part, databases).lose_outcome()
        assert [handled.message.id for handled in run("spread")] == ["5-1.2"]
        assert effects.all() == ["5-1.2"]

    def test_those_of_a_topic_too(self, effects, redis_client):
        subscriber("wide", group="all")(exactly_once(using=ALIAS)(effects_of(effects)))
        for part in get_config().topic("wide").parts:
            redis_client.xadd(part.keys.log, self.FIELDS, id="5-1")
        topics["wide"].group("all").subscribe()
        run("wide:all")
        assert effects.all() == ["5-1.0", "5-1.1"]
        assert len(topics["wide"].group("all").replay().handled) == 2
        assert effects.all() == ["5-1.0", "5-1.1"]
