"""Metrics of queues in the formats of Prometheus."""

import logging
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import RequestFactory

from mq_django import inspect
from mq_django.errors import ConfigurationError
from mq_django.inspector import actions
from mq_django.producers import queues, topics
from mq_django.stores.counters import RECOVERED, Slots
from mq_django.stores.log import Log
from mq_django.stores.members import Members
from mq_django.transport.connections import open_session
from mq_django.transport.private_server import PrivateServer
from tests.optional import needs_prometheus
from tests.seeding import CONSUMER, beat, bury_many, publish, publish_many, set_aside, take, tally

try:
    from prometheus_client import CollectorRegistry, Counter
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
    from prometheus_client.parser import text_string_to_metric_families as parse_text

    from mq_django.observability.prometheus import QueueCollector, metrics_view, queue_metrics, queue_registry
except ImportError:
    pass

pytestmark = [needs_prometheus, pytest.mark.usefixtures("mq_settings")]

TOKEN = "0123456789abcdef"


def value(name, **labels):
    """Return the value of a metric, None without it."""
    return queue_registry().get_sample_value(name, labels)


class TestQueues:
    def test_messages_are_shown_by_state(self):
        publish_many("emails", [("welcome", n) for n in range(3)])
        publish("emails", "welcome", delay=60)
        set_aside("default", "nobody.knows")
        states = {"ready": 3, "delayed": 1, "pending": 0, "unhandled": 0, "parked": 0, "dead": 0}
        found = {state: value("mq_django_queue_messages", queue="emails", state=state) for state in states}
        assert found == states
        assert value("mq_django_queue_messages", queue="default", state="unhandled") == 1

    def test_dead_letters_are_shown_by_the_class_of_their_error(self):
        bury_many("emails", 2)
        assert value("mq_django_queue_dead_letters", queue="emails", error="ValueError") == 2

    def test_a_queue_shows_its_problems_while_it_has_them(self):
        actions.pause("emails", who="ops")
        assert value("mq_django_queue_problem", queue="emails", problem="paused") == 1
        assert value("mq_django_queue_paused", queue="emails") == 1
        actions.resume("emails")
        assert value("mq_django_queue_problem", queue="emails", problem="paused") is None

    def test_a_queue_shows_what_people_and_breakers_hold(self):
        inspect.hold("emails", name="welcome")
        inspect.open_breaker("emails")
        states = ("held", "open", "ramp")
        found = [value("mq_django_queue_holds", queue="emails", state=state) for state in states]
        assert found == [1, 1, 0]
        assert value("mq_django_queue_problem", queue="emails", problem="breaker") == 1

    def test_consumers_count_once_for_all_their_queues(self):
        for queue in ("emails", "default"):
            beat(queue)
        assert value("mq_django_queue_consumers", queue="emails") == 1
        assert value("mq_django_consumers") == 1

    def test_the_age_of_the_oldest_ready_message_is_in_seconds(self):
        assert value("mq_django_queue_oldest_ready_age_seconds", queue="emails") == 0
        open_session("produce").pipeline(
            [("XADD", queues["emails"].config.keys.ready, "1000-0", "type", "a", "data", "{}")]
        )
        assert value("mq_django_queue_oldest_ready_age_seconds", queue="emails") > 1e9

    def test_messages_that_a_consumer_has_fetched_and_not_started_wait_as_well(self):
        open_session("produce").pipeline(
            [("XADD", queues["emails"].config.keys.ready, "1000-0", "type", "a", "data", "{}")]
        )
        take("emails", 1)
        publish("emails", "welcome")
        Members(queues["emails"].config, open_session("produce")).beat("s1", {}, {CONSUMER: {"running": []}})
        assert value("mq_django_queue_messages", queue="emails", state="ready") == 1
        assert value("mq_django_queue_not_started_messages", queue="emails") == 2
        assert value("mq_django_queue_oldest_ready_age_seconds", queue="emails") > 1e9

    def test_a_schedule_that_nobody_fires_is_late(self, mq_settings, redis_client):
        mq_settings(SCHEDULES={"nightly": {"queue": "emails", "message": "report", "every": timedelta(minutes=1)}})
        assert value("mq_django_schedules", queue="emails", state="active") == 1
        assert value("mq_django_schedule_lateness_seconds", queue="emails") == 0
        redis_client.hset(queues["emails"].config.keys.schedules, "last:nightly", 1000)
        assert value("mq_django_schedule_lateness_seconds", queue="emails") > 1e9

    def test_a_queue_that_cannot_be_read_does_not_hide_the_others(self, redis_client):
        redis_client.set(queues["emails"].config.keys.ready, "no stream")
        assert value("mq_django_queue_up", queue="emails") == 0
        assert value("mq_django_queue_up", queue="default") == 1
        assert value("mq_django_queue_messages", queue="emails", state="ready") is None
        assert value("mq_django_queue_problem", queue="emails", problem="unreadable") == 1


class TestTopics:
    def test_a_group_shows_its_lag(self, mq_settings):
        mq_settings(TOPICS={"orders": {}})
        for number in range(3):
            topics["orders"].publish("paid", {"n": number}, on_commit=False)
        assert value("mq_django_topic_messages", topic="orders") == 3
        Log(topics["orders"].config, open_session("produce")).subscribe("billing", start="beginning")
        assert value("mq_django_topic_group_lag", topic="orders", group="billing") == 3
        assert value("mq_django_topic_messages_published_total", topic="orders") == 3


class TestTotals:
    def test_they_count_what_happened(self):
        publish_many("emails", [("welcome", n) for n in range(3)])
        tally("emails", {("handled", "welcome"): 5, ("expired", "welcome"): 1})
        slots = Slots(queues["emails"].config.keys)
        open_session("produce").pipeline([slots.add_total(RECOVERED, 2)])
        kinds = {"published": 3, "handled": 5, "retried": 0, "expired": 1, "recovered": 2}
        found = {kind: value(f"mq_django_messages_{kind}_total", queue="emails") for kind in kinds}
        assert found == kinds

    def test_histograms_have_the_buckets_of_the_counters(self):
        tally("emails", {("t0", "welcome"): 1, ("t4", "welcome"): 2, ("t23", "welcome"): 4, ("w0", "welcome"): 3})
        bounds = {"0.0001": 1, "0.0008": 1, "0.0016": 3, "419.4304": 3, "+Inf": 7}
        found = {le: value("mq_django_queue_handling_seconds_bucket", queue="emails", le=le) for le in bounds}
        assert found == bounds
        assert value("mq_django_queue_latency_seconds_bucket", queue="emails", le="0.001") == 3


class TestFormats:
    def test_both_formats_are_valid(self):
        content_type, text = queue_metrics()
        assert content_type.startswith("text/plain")
        names = {metric.name for metric in parse_text(text.decode())}
        answer = metrics_view(token=TOKEN)
        assert {"mq_django_up", "mq_django_queue_latency_seconds"} < names
        request = _request(f"Bearer {TOKEN}", accept="application/openmetrics-text; version=1.0.0")
        content = answer(request).content.decode()
        assert {metric.name for metric in parse_openmetrics(content)} == {name.removesuffix("_total") for name in names}

    def test_names_of_queues_cannot_break_the_text(self, mq_settings, redis_client):
        odd = 'no "class"\n\\'
        redis_client.hset(queues["emails"].config.keys.dead_groups, f"{odd}|welcome", "3 1000")
        redis_client.xadd(queues["emails"].config.keys.dead, {"type": "welcome"})
        (metric,) = [each for each in parse_text(queue_metrics()[1].decode()) if each.name.endswith("dead_letters")]
        assert [(sample.labels["error"], sample.value) for sample in metric.samples] == [(odd, 3)]

    def test_rare_errors_are_counted_together(self, redis_client):
        groups = {f"Error{n}|welcome": f"{n + 1} 1000" for n in range(30)}
        redis_client.hset(queues["emails"].config.keys.dead_groups, mapping=groups)
        redis_client.xadd(queues["emails"].config.keys.dead, {"type": "welcome"})
        (metric,) = [each for each in parse_text(queue_metrics()[1].decode()) if each.name.endswith("dead_letters")]
        found = {sample.labels["error"]: sample.value for sample in metric.samples}
        assert len(found) == 21
        assert found["other"] == sum(range(1, 11))


class TestView:
    def test_a_token_opens_it(self):
        view = metrics_view(token=TOKEN)
        assert view(_request(f"Bearer {TOKEN}")).status_code == 200
        answer = view(_request())
        assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert {view(_request(f"{scheme} {given}")).status_code for scheme, given in WRONG} == {401}

    def test_without_a_token_no_token_opens_it(self):
        assert metrics_view()(_request("Bearer None")).status_code == 401
        assert metrics_view()(_request("Bearer ")).status_code == 401

    def test_a_token_that_can_be_guessed_opens_nothing(self):
        assert metrics_view(token="")(_request("Bearer ")).status_code == 401
        assert metrics_view(token="short")(_request("Bearer short")).status_code == 401

    def test_a_token_of_another_type_is_refused(self):
        with pytest.raises(ConfigurationError, match="is a str, not bytes"):
            metrics_view(token=b"0123456789abcdef")

    @pytest.mark.django_db
    def test_users_need_the_permission_of_the_admin(self):
        user = User.objects.create_user("ann")
        assert metrics_view()(_request(user=user)).status_code == 403
        user.user_permissions.add(Permission.objects.get(codename="view_queue"))
        assert metrics_view()(_request(user=User.objects.get(pk=user.pk))).status_code == 200

    def test_it_serves_the_metrics_of_another_registry(self):
        own = CollectorRegistry()
        Counter("shop_orders", "Orders.", registry=own).inc()
        assert b"shop_orders_total 1.0" in metrics_view(token=TOKEN, registry=own)(_request(f"Bearer {TOKEN}")).content

    def test_answers_are_not_cached_and_only_for_get(self):
        view = metrics_view(token=TOKEN)
        assert "no-store" in view(_request(f"Bearer {TOKEN}"))["Cache-Control"]
        assert view(RequestFactory().post("/metrics/")).status_code == 405


class TestWithoutRedis:
    def test_a_scrape_says_that_redis_does_not_answer(self, mq_settings, caplog):
        with PrivateServer() as server:
            gone = server.url
        mq_settings(CONNECTION=gone)
        with caplog.at_level(logging.WARNING, "mq_django"):
            found = list(parse_text(queue_metrics()[1].decode()))
        assert [(metric.name, metric.samples[0].value) for metric in found] == [("mq_django_up", 0)]
        assert "No metrics of queues" in caplog.text

    def test_registering_the_collector_does_not_read_redis(self, mq_settings):
        with PrivateServer() as server:
            gone = server.url
        mq_settings(CONNECTION=gone)
        CollectorRegistry(auto_describe=True).register(QueueCollector())


WRONG = [("Bearer", TOKEN.upper()), ("Bearer", ""), ("Basic", TOKEN), ("", TOKEN), ("Bearer", "\u00fc" * 16)]


def _request(authorization="", accept="", user=None):
    headers = {"Authorization": authorization, "Accept": accept}
    request = RequestFactory().get("/metrics/", headers={name: text for name, text in headers.items() if text})
    if user is not None:
        request.user = user
    return request
