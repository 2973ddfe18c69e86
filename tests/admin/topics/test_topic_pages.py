"""The pages of topics and their groups."""

import json
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import topics
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Retry
from mq_django.inspector import topics as inspected
from mq_django.registry import subscriber
from mq_django.stores import open_log
from mq_django.stores.base import Settlement
from mq_django.stores.log import Log
from mq_django.transport.connections import get_client, open_transport
from mq_django.transport.sessions import Pooled
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import beat, opened, publish

pytestmark = pytest.mark.django_db

TOPIC, GROUP = f"{BASE}events/change/", f"{BASE}events%3Abilling/change/"
SEEK, LOG, UNSUBSCRIBE = f"{BASE}events:billing/seek/", f"{BASE}events/log/", f"{BASE}events:billing/unsubscribe/"
ME = "host-1-me"
NASTY = "\"'><script>alert(1)</script>\u202e"


@pytest.fixture
def events(mq_settings):
    mq_settings(TOPICS={"events": {"RETENTION_COUNT": 100}})
    return topics["events"]


@pytest.fixture
def billing(events):
    """Ten messages, of which the group was given six: it holds two, retries one and has buried one."""
    store = opened("events:billing")
    events.publish_many([("paid", {"n": n, "password": "x"}) for n in range(10)], on_commit=False)
    one, two, *others = store.take(ME, count=4)
    settlements = [Settlement(one, Bury("ValueError: no")), Settlement(two, Retry(), 60_000)]
    store.settle(ME, settlements + [Settlement(other, ACK) for other in others])
    store.take(ME, count=2)
    beat("events:billing")
    return store


def offsets(events, redis_client):
    return [entry.decode() for entry, _ in redis_client.xrange(events.config.keys.log)]


def place(name="billing"):
    return inspected.topic("events").group(name)


def test_the_overview_shows_topics_with_their_groups(operator, billing):
    response = operator.get(BASE)

    topic, group = response.context["topics"]
    assert (topic["name"], topic["messages"], topic["is_topic"]) == ("events", "10", True)
    assert (group["name"], group["lag"], group["pending"], group["waiting"], group["dead"]) == (
        *("billing", "4", "2"),
        *("1", "1"),
    )
    assert group["alive"] == "1"
    assert "kept: 7 d, 100 messages" in main_of(response)
    # A group is no row among the queues.
    assert "events:billing" not in [row["name"] for row in response.context["rows"]]
    assert GROUP.replace("%3A", "_3A") in main_of(response)


def test_a_topic_has_a_page_with_its_groups_and_what_it_keeps(operator, billing):
    page = main_of(operator.get(TOPIC))

    for said in ("billing", "Retention used", "kept: 7 d, 100 messages", "10 messages were published."):
        assert said in page
    assert SEEK in page


def test_the_page_of_a_group_says_where_it_is_in_the_log(operator, billing, events, redis_client):
    page = main_of(operator.get(GROUP))

    assert "Position in the log" in page
    assert offsets(events, redis_client)[5] in page
    assert "4 messages, " in page
    assert "Move…" in page


def test_an_alarm_and_losses_come_first(operator, billing, events):
    Log(events.config, Pooled(get_client("produce"))).set_alarm("billing", 95)
    control = events.config.keys.group("billing").control
    get_client("produce", key=control).hset(control, "lost", 3)

    for address in (BASE, TOPIC, GROUP):
        first, second, *_ = operator.get(address).context["problems"]
        assert first["sentence"] == "lost 3 messages to retention before delivery."
        assert second["what"] == "retention"
        assert "of the retention" in second["sentence"]


def test_a_group_that_nobody_subscribed_says_so(operator, events):
    """It exists by a message of its own."""
    publish("events:billing", "welcome", 1, delay=60)
    page = main_of(operator.get(GROUP))

    assert "not subscribed" in page
    assert "Move…" not in page
    assert "not subscribed" not in main_of(operator.get(TOPIC))
    assert "This topic has no groups." in main_of(operator.get(TOPIC))


def test_a_topic_that_cannot_be_read_hides_no_other(operator, mq_settings, redis_client):
    mq_settings(TOPICS={"events": {}, "orders": {}})
    redis_client.set(topics["events"].config.keys.log, "mine")

    assert "orders" in main_of(operator.get(BASE))
    assert "cannot be read" in main_of(operator.get(TOPIC))


def test_a_seek_says_what_it_would_do_and_does_it_once_confirmed(operator, billing, events, redis_client):
    at = offsets(events, redis_client)
    for fields, said in (
        ({"to": "beginning"}, "6 messages are handled again."),
        ({"to": "end"}, "4 messages are skipped and never handled."),
        ({"to": "moment", "moment": "2001-01-01T00:00:00"}, "6 messages are handled again."),
        ({"to": "offset", "offset": at[2]}, "4 messages are handled again."),
        ({"to": "offset", "offset": at[6]}, "0 messages are handled again, and 0 are skipped."),
        ({"to": "offset", "offset": at[7]}, "1 message is skipped and never handled."),
    ):
        preview = operator.post(SEEK, fields)
        assert said in main_of(preview)
        assert "2 messages of the log are being handled" in main_of(preview)
    assert (place().lag, place().pending) == (4, 2)
    assert not LogEntry.objects.exists()

    done = operator.post(SEEK, dict(preview.context["fields"]), follow=True)

    assert said in done.content.decode()
    assert (place().lag, place().pending) == (3, 0)
    entry = LogEntry.objects.get()
    assert entry.object_id == "events:billing"
    assert entry.change_message.startswith("Moved the group to ")


def test_a_moment_of_the_form_is_one_in_the_zone_of_the_site(operator, billing, settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    in_an_hour = datetime.now(UTC) + timedelta(hours=9, minutes=-1)
    # On a clock in Tokyo that is a minute ago.
    written = in_an_hour.replace(tzinfo=None).isoformat(timespec="seconds")

    assert "6 messages are handled again." in main_of(operator.post(SEEK, {"to": "moment", "moment": written}))


def test_the_last_moment_is_a_position_although_it_has_no_date_in_the_zone_of_the_site(operator, billing, settings):
    settings.TIME_ZONE = "Pacific/Kiritimati"
    asked = {"to": "moment", "moment": "9999-12-31T23:59:59Z"}
    assert "9999-12-31 23:59:59+00:00" in operator.post(SEEK, asked).content.decode()


def test_a_place_that_is_none_is_asked_for_again_and_moves_nothing(operator, billing):
    for fields, said in (
        ({"to": "offset", "offset": "tomorrow"}, "An offset is two numbers with a dash"),
        ({"to": "offset"}, "Enter a position"),
        ({"to": "moment", "moment": "2026-13-45"}, "Enter a position"),
        ({"to": "moment", "moment": "9999-12-31T23:59:59-12:00"}, "Enter a position"),
        ({"to": "hell"}, "Enter a position"),
        ({}, "Enter a position"),
    ):
        page = main_of(operator.post(SEEK, {**fields, "confirmed": "yes"}))
        assert said in page, fields
        assert "Preview…" in page
        assert place().lag == 4


def test_a_group_that_is_gone_meanwhile_cannot_be_moved(operator, events):
    publish("events:billing", "welcome", 1, delay=60)
    done = operator.post(SEEK, {"to": "end", "confirmed": "yes"}, follow=True)

    assert "it cannot be moved" in done.content.decode()


def test_a_form_of_a_message_in_the_log_is_filled_with_its_offset(operator, billing, events, redis_client):
    entry = offsets(events, redis_client)[3]
    page = main_of(operator.get(f"{LOG}{entry}/"))

    assert "delivered" in page
    link = f"{SEEK}?to=offset&amp;offset={entry}"
    assert link in page
    assert f'value="{entry}"' in main_of(operator.get(link.replace("&amp;", "&")))


def test_a_group_is_unsubscribed_once_that_is_confirmed(operator, billing):
    page = main_of(operator.post(UNSUBSCRIBE))

    assert "1 waiting messages and 1 dead letters" in page
    assert "1 running consumers" in page
    assert place().subscribed
    operator.post(UNSUBSCRIBE, {"confirmed": "yes"})
    assert not place().subscribed
    assert LogEntry.objects.get().change_message == "Unsubscribed the group with 1 dead letters and 1 retries"


def test_a_queue_is_no_group_that_can_be_moved(operator, billing):
    for verb in ("seek", "unsubscribe"):
        done = operator.post(f"{BASE}emails/{verb}/", {"to": "end", "confirmed": "yes"}, follow=True)
        assert "There is no queue" in done.content.decode()


def test_the_log_is_shown_newest_first_and_page_by_page(operator, events):
    events.publish_many([("paid", n) for n in range(120)], on_commit=False)
    seen, address = [], LOG
    while address:
        response = operator.get(address)
        seen.append([row["data"] for row in response.context["rows"]])
        address = LOG + response.context["go_on"] if response.context["go_on"] else ""

    assert [len(rows) for rows in seen] == [50, 50, 20]
    assert [row for rows in seen for row in rows] == [f"<bdi>{n}</bdi>" for n in range(119, -1, -1)]


def test_any_range_of_the_log_is_looked_into(operator, events, redis_client):
    events.publish_many([("paid", n) for n in range(10)], on_commit=False)
    events.publish("sent", 10, key="order:3", on_commit=False)
    at = offsets(events, redis_client)

    def found(**fields):
        return [int(row["data"][5:-6]) for row in operator.get(LOG, fields).context["rows"]]

    assert found(first=at[2], last=at[4], order="oldest") == [2, 3, 4]
    assert found(first=at[8]) == [10, 9, 8]
    assert found(name="sent") == found(key="order:3") == [10]
    assert found(**{"from": "2001-01-01T00:00", "to": "2001-01-02T00:00"}) == []
    assert len(found(**{"from": "2001-01-01T00:00"})) == 11
    assert "An offset is two numbers" in operator.get(LOG, {"first": "x"}, follow=True).content.decode()
    assert operator.get(LOG, {"after": "x"}).status_code == 302


def test_the_log_says_which_groups_were_not_given_a_message(operator, billing):
    rows = operator.get(LOG, {"order": "oldest"}).context["rows"]

    assert ["billing" in row["delivered"] for row in rows] == [False] * 6 + [True] * 4


def test_data_in_the_log_is_for_those_who_may_see_it(viewer, operator, events):
    events.publish("paid", {"x": "rumpelstiltskin", "password": "hunter2"}, key="rumpelstiltskin", on_commit=False)
    entry = inspected.topic("events").last

    for address in (LOG, f"{LOG}{entry}/"):
        assert "rumpelstiltskin" in main_of(operator.get(address))
        assert "hunter2" not in main_of(operator.get(address))
        assert "rumpelstiltskin" not in main_of(viewer.get(address))
    # Nor may who cannot see a key guess it.
    assert viewer.get(LOG, {"key": "no such key"}).status_code == 400


def test_hostile_messages_and_groups_of_strangers_are_harmless(operator, billing, events, redis_client):
    log = events.config.keys.log
    redis_client.xadd(log, {"id": NASTY, "type": NASTY, "data": json.dumps(NASTY), NASTY: NASTY})
    redis_client.xadd(log, {"nonsense": b"\xff" + NASTY.encode()})
    redis_client.xgroup_create(log, NASTY, "0")
    redis_client.xgroup_create(log, b"\xff\xfe", "0")
    addresses = [TOPIC, LOG, BASE, *(f"{LOG}{entry}/" for entry in offsets(events, redis_client)[-2:])]

    for address in addresses:
        response = operator.get(address)
        assert response.status_code == 200, address
        page = response.content.decode()
        assert "<script>alert" not in page, address
        assert "\u202e" not in page, address


@pytest.mark.single_server(why="counts the commands of one server")
def test_pages_of_many_groups_send_few_commands(operator, mq_settings, redis_client):
    """Two for each topic and group that is shown, and twenty."""
    mq_settings(QUEUES={"emails": {}}, TOPICS={f"t{n}": {"RETENTION_COUNT": 100} for n in range(10)})
    for n in range(10):
        for name in ("a", "b", "c", "d"):
            topics[f"t{n}"].group(name).subscribe()
        topics[f"t{n}"].publish_many([("paid", 1)] * 5, on_commit=False)
    for address, shown in ((BASE, 51), (f"{BASE}t1/change/?span=week", 5), (f"{BASE}t1%3Aa/change/?span=week", 1)):
        operator.get(address)
        with redis_client.monitor() as monitor:
            operator.get(address)
            redis_client.echo("that was it")
            sent = list(takewhile(lambda seen: "that was it" not in seen["command"], monitor.listen()))
        assert sum(seen["client_type"] != "lua" for seen in sent) <= 22 + 2 * shown, address


def test_a_topic_that_is_not_configured_leads_to_the_overview(operator, log_in, events):
    assert operator.get(f"{BASE}nope/log/").url == BASE
    assert operator.get(f"{BASE}nope:billing/change/").url == BASE
    assert operator.get(f"{BASE}nope/topic.json").status_code == 404
    assert log_in().get(f"{BASE}nope/log/").status_code == 403


def test_a_page_says_how_many_groups_it_leaves_out(mq_settings, operator, redis_client, handlers, monkeypatch):
    monkeypatch.setattr("mq_django.stores.topic_stats.MAX_GROUPS", 3)
    monkeypatch.setattr("mq_django.stores.log.MAX_COUNTED", 3)
    mq_settings(QUEUES={"default": {}}, TOPICS={"orders": {"RETENTION_COUNT": 10}})
    subscriber("orders", group="zebra")(lambda message: None)
    log = get_config().topic("orders").keys.log
    redis_client.xadd(log, {"id": "1"})
    for name in ("a", "b", "c", "d", "zebra"):
        redis_client.xgroup_create(log, name, "0")
    for url in (BASE, f"{BASE}orders/change/"):
        page = main_of(operator.get(url))
        assert "has 2 more groups, which are not shown" in page
        # Those with a subscriber in this project come first.
        assert "zebra" in page
    assert {group.position.name for group in topics["orders"].groups()} == {"zebra", "a", "b"}
    assert open_log(get_config().topic("orders"), open_transport("chores", "")).trim().removed == 0
