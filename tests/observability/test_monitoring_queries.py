"""The queries of the dashboard and the alerts run in a Prometheus that scrapes the view of the metrics."""

import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.handlers.wsgi import WSGIHandler

from mq_django import topics
from mq_django.conf import get_config
from mq_django.inspector import actions
from mq_django.stores.counters import Slots
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import reply_or_raise
from tests import places, seeding
from tests.observability.monitoring_files import ALERTS, ALERTS_TEST, DASHBOARD, panels, rules, with_values
from tests.observability.prometheus_program import VARIABLE, PrometheusProgram, program
from tests.optional import needs_prometheus
from tests.seeding import opened
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (program("prometheus") and program("promtool")),
        reason=f"prometheus and promtool are neither on PATH nor in the folder {VARIABLE}",
    ),
]

#: What the seeded queues have at once. The other alerts need Redis or a server to fail, or consumers for a quarter of
#: an hour: `promtool test rules` tries them all.
HAPPENED = {
    "MQConsumersDie",
    "MQDeadLetters",
    "MQGroupNearRetention",
    "MQMessagesLost",
    "MQNoConsumer",
    "MQPaused",
    "MQScheduleBroken",
    "MQScheduleOverdue",
    "MQUnhandledMessages",
}


def promtool(*arguments: str, folder: Path) -> str:
    found = [program("promtool") or "", *arguments]
    done = subprocess.run(found, cwd=folder, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_alerts():
    checked = promtool("check", "rules", ALERTS.name, folder=ALERTS.parent)
    assert f"{len(rules())} rules found" in checked


def test_each_alert_fires_when_it_should_and_only_then():
    assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST.name, folder=ALERTS_TEST.parent)


def happen(times: int) -> None:
    """Let messages be published, handled, retried, buried, recovered and lost."""
    counts = {(what, "welcome"): times for what in ("published", "handled", "retried", "expired", "t7", "w4")}
    seeding.tally("orders", counts)
    command = Slots(get_config().queue("orders").keys).add_total("recovered", times)
    reply_or_raise(open_transport("produce").pipeline([command])[0])
    seeding.bury("orders")


def seed(client: Any) -> None:
    """Make queues of all states, a group that has nearly lost messages, and schedules that do not fire."""
    seeding.beat("orders", consumers=2)
    happen(1)
    seeding.set_aside("orders", "unknown")
    seeding.publish("emails", "welcome")
    seeding.publish("emails", "welcome", delay=600)
    actions.pause("paused", who="ann", reason="a test")
    now_ms = places.now_ms(client)
    client.hset(get_config().queue("emails").keys.schedules, "last:digest", now_ms - 3_600_000)
    client.hset(get_config().queue("emails").keys.runtime_schedules, "definition:broken", b"{")
    opened("events:billing")
    topics["events"].publish_many([("paid", n) for n in range(90)], on_commit=False)


class SilentHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def target(mq_settings, settings) -> Iterator[str]:
    """The address of a server of the view.

    That of Django's tests does not wait for its threads: one could still read Redis when Python ends.
    """
    settings.ROOT_URLCONF = "tests.observability.metrics_urls"
    with make_server("127.0.0.1", 0, WSGIHandler(), handler_class=SilentHandler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def watched(mq_settings, redis_client, target, tmp_path):
    """A Prometheus that has scraped queues twice: what is counted has grown in between."""
    from tests.observability.metrics_urls import DURATIONS, TOKEN  # noqa: PLC0415 - needs prometheus-client

    mq_settings(
        QUEUES={"orders": {}, "emails": {}, "paused": {}},
        TOPICS={"events": {"RETENTION_COUNT": 100}},
        SCHEDULES={"digest": {"queue": "emails", "message": "digest", "every": 60}},
    )
    seed(redis_client)
    handled = DURATIONS.labels(queue="orders", handler="welcome", outcome="ack")
    handled.observe(0.1)
    control = get_config().queue("events:billing").keys.control
    with PrometheusProgram(tmp_path, target=target, token=TOKEN, rules=ALERTS) as prometheus:
        for times in range(1, 5):
            count = f'mq_django_messages_recovered_total{{queue="orders"}} == {times}'
            wait_until(lambda query=count: prometheus.query(query), timeout=30)
            happen(1)
            handled.observe(0.2)
            redis_client.hset(control, "lost", times)
        wait_until(lambda: prometheus.query('mq_django_messages_recovered_total{queue="orders"} == 5'), timeout=30)
        wait_until(lambda: prometheus.query("mq_django_topic_group_lost_messages_total == 4"), timeout=30)
        yield prometheus


def values_of(prometheus: PrometheusProgram, query: str) -> list[float]:
    """Return the values of the series of a query that have one."""
    found = [float(series["value"][1]) for series in prometheus.query(with_values(query))]
    return [value for value in found if not math.isnan(value)]


@needs_prometheus
@pytest.mark.django_db
def test_each_panel_shows_something(watched):
    queries = [(panel["title"], each["expr"]) for panel in panels() for each in panel["targets"]]
    assert [(title, query) for title, query in queries if not values_of(watched, query)] == []
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            found = watched.get(f"label/{label}/values", **{"match[]": with_values(metric)})
            assert {"mq_django", "orders"}.intersection(found), variable["name"]


@needs_prometheus
@pytest.mark.django_db
def test_each_alert_can_be_evaluated_and_those_whose_condition_is_true_are_active(watched):
    def active() -> set[str]:
        (group,) = watched.get("rules")["groups"]
        assert [rule for rule in group["rules"] if rule["health"] == "err"] == []
        assert {rule["name"] for rule in group["rules"]} == {rule["alert"] for rule in rules()}
        return {rule["name"] for rule in group["rules"] if rule["state"] != "inactive"}

    wait_until(lambda: active() == HAPPENED, timeout=30, message=f"active: {active()}")
    for rule in rules():
        watched.query(rule["expr"])
