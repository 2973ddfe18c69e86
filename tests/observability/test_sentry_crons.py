"""What Sentry's cron monitors are told about the messages of schedules."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mq_django import RetryPolicy, handler, queues
from mq_django.conf import get_config
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.core.schedules import Cron, Scheduled, every
from mq_django.stores import open_store
from mq_django.stores.schedules import Firing, Schedules, scheduled
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import places
from tests.optional import needs_croniter
from tests.waiting import wait_until

sentry_sdk = pytest.importorskip("sentry_sdk")

from sentry_sdk.consts import DEFAULT_OPTIONS  # noqa: E402

from mq_django.observability import sentry_events  # noqa: E402
from mq_django.observability.sentry_events import monitor_schedule, slug  # noqa: E402
from tests.observability.sentry_transport import Kept  # noqa: E402

#: So that it would be seen if check-ins had the data of messages.
SENDS_DATA = (
    {"data_collection": {"queues": True}} if "data_collection" in DEFAULT_OPTIONS else {"send_default_pii": True}
)
MIDDLEWARE = [f"mq_django.observability.sentry.{name}" for name in ("report_burials", "report_schedules")]
NIGHTLY = {"queue": "emails", "message": "report", "data": {"street": "Elm Street"}, "every": timedelta(hours=1)}


def at_once(message):
    if message.attempt < 2:
        raise LookupError("not there yet")


def never(message):
    raise LookupError("never there")


@pytest.fixture
def project(mq_settings, handlers):
    """Configure the schedule `Shop: nightly`, and return a function that changes its options."""
    handler("emails", "report")(lambda message: None)
    handler("emails", "again", retry=RetryPolicy(max_attempts=3, delay=0, jitter=0))(at_once)
    handler("emails", "refuse", retry=RetryPolicy(max_attempts=1))(never)

    def configure(**options):
        mq_settings(SCHEDULES={"Shop: nightly": {**NIGHTLY, **options}}, MIDDLEWARE=MIDDLEWARE)

    configure()
    return configure


@pytest.fixture
def kept(project):
    """Initialise the SDK, and return what it sends."""
    kept = Kept()
    with sentry_sdk.isolation_scope():
        sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=kept, default_integrations=False, **SENDS_DATA)
        yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


def fire(client):
    """Publish the message of the schedule's latest tick."""
    config = get_config().queue("emails")
    (entry,) = [found for found in scheduled() if found.name == "Shop: nightly"]
    now = places.now_ms(client)
    client.hset(config.keys.schedules, f"last:{entry.name}", now - 60_000)
    assert Schedules(config, Pooled(get_client("consume"))).fire(entry, now - 10)[0] is Firing.FIRED


def handle(attempts=1):
    """Handle messages until so many attempts have been settled."""
    shared_state = SharedState.create(slots(1))
    consumer = Consumer("c1", [get_config().queue("emails")], threads=1, shared_state=shared_state)
    store = open_store(get_config().queue("emails"), Pooled(get_client("consume")))
    consumer.start()
    try:
        wait_until(lambda: store.promote(limit=10) and consumer.settled() >= attempts, timeout=30)
    finally:
        assert consumer.stop(Grace(60))
        shared_state.close()


def statuses(kept):
    return [check_in["status"] for check_in in kept.of("check_in")]


def test_a_run_is_two_check_ins_of_a_monitor_that_knows_the_schedule(kept, redis_client, settings):
    settings.TIME_ZONE = "Europe/Berlin"
    fire(redis_client)
    handle()
    first, second = kept.of("check_in")
    assert (first["status"], second["status"]) == ("in_progress", "ok")
    assert first["monitor_slug"] == second["monitor_slug"] == "shop-nightly"
    assert UUID(first["check_in_id"]) == UUID(second["check_in_id"])
    assert first["monitor_config"] == {
        "schedule": {"type": "interval", "value": 1, "unit": "hour"},
        "timezone": "Europe/Berlin",
    }
    assert "Elm Street" not in str(kept.items)


def test_an_attempt_that_is_retried_decides_nothing(kept, project, redis_client):
    project(message="again")
    fire(redis_client)
    handle(attempts=2)
    assert statuses(kept) == ["in_progress", "ok"]
    assert len({check_in["check_in_id"] for check_in in kept.of("check_in")}) == 1


def test_a_dead_letter_is_a_failed_run(kept, project, redis_client):
    project(message="refuse")
    fire(redis_client)
    handle()
    assert statuses(kept) == ["in_progress", "error"]
    assert [event["tags"]["mq.reason"] for event in kept.events] == ["attempts"]


def test_what_is_no_tick_is_no_run(kept, redis_client):
    queues["emails"].publish("report", None)
    handle()
    assert statuses(kept) == []


def test_a_schedule_that_only_redis_knows_has_a_monitor_without_a_schedule(kept, mq_settings, redis_client):
    fire(redis_client)
    mq_settings(MIDDLEWARE=MIDDLEWARE)
    handle()
    assert [check_in.get("monitor_config") for check_in in kept.of("check_in")] == [None, None]
    assert statuses(kept) == ["in_progress", "ok"]


@pytest.mark.parametrize("options", [{"every": timedelta(seconds=90)}, {"ends": "2100-01-01T00:00:00Z"}])
def test_a_schedule_that_no_monitor_can_expect_has_none(kept, project, redis_client, options):
    project(**options)
    fire(redis_client)
    handle()
    assert statuses(kept) == []


def test_an_error_of_the_sdk_fails_no_attempt(kept, redis_client, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("of the SDK")

    monkeypatch.setattr(sentry_events, "capture_checkin", fail)
    fire(redis_client)
    handle()
    assert kept.events == []


def entry(when, **options):
    return Scheduled(name="n", queue="emails", message="report", data=None, when=when, **options)


def test_intervals_are_in_the_longest_unit_that_fits():
    for period, value, unit in (
        ({"minutes": 1}, 1, "minute"),
        ({"minutes": 90}, 90, "minute"),
        ({"hours": 36}, 36, "hour"),
        ({"days": 2}, 2, "day"),
    ):
        assert monitor_schedule(entry(every(**period))) == {"type": "interval", "value": value, "unit": unit}


@needs_croniter
def test_cron_expressions_are_those_of_sentry():
    for expression, value in (("0 7 * * mon-fri", "0 7 * * mon-fri"), ("@midnight", "@daily")):
        assert monitor_schedule(entry(Cron(expression))) == {"type": "crontab", "value": value}


def test_a_schedule_with_an_end_cannot_be_expected():
    assert monitor_schedule(entry(every(hours=1), ends=datetime(2100, 1, 1, tzinfo=UTC))) is None


def test_a_monitor_has_the_name_of_its_schedule():
    monitors = {
        "nightly": "nightly",
        "shop.tasks.report": "shop-tasks-report",
        "a" * 60 + ".tasks.report": ("a" * 60 + "-tasks-report")[-50:],
        "Zählung!": "z-hlung",
        "日報": "schedule",
    }
    assert {name: slug(name) for name in monitors} == monitors
