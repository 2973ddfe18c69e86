"""What holds on every page: hostile content, no inline code, Redis away, other admin sites."""

import json
import re
import time
from html import unescape
from itertools import takewhile

import pytest
from django.test import Client

from mq_django.conf import get_config
from mq_django.core.messages import Bury
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, PLACES, world
from tests.seeding import beat, bury, bury_many, dead_entry, publish, settle, take, tally

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

#: Answers that are no pages.
NO_PAGES = {
    "stats",
    "find_stats",
    "queue_stats",
    "topic_stats",
    "consumers_stats",
    "dead_export",
    "metrics_json_export",
    "metrics_csv_export",
    "metrics_rows_export",
    "activity_export",
    "stacks_stats",
    "workflows_stats",
    "workflow_run_stats",
    "line_stats",
}

#: Printable, so it may be a name; and with what hides or reorders, so it may only be text.
NASTY = "\"'><script>alert(1)</script>{{ 7 }}"
HOSTILE = f"{NASTY}\u202e\u0007\u2028"


def addresses() -> list[str]:
    """Return the addresses of all pages that show something."""
    PLACES["dead"] = dead_entry("emails")
    return [
        visit.path.format(**PLACES)
        for visit in LOOKS
        if visit.name not in NO_PAGES and not visit.name.startswith("old_")
    ]


@pytest.fixture
def hostile(mq_settings, redis_client) -> None:
    """Fill a queue with messages that foreign producers made to break pages."""
    keys = get_config().queue("emails").keys
    data = json.dumps({HOSTILE: [HOSTILE, {"x": HOSTILE}], "deep": json.loads("[" * 200 + "]" * 200)})
    fields = {"id": NASTY, "type": NASTY, "data": data, "partitionkey": HOSTILE}
    body = json.dumps({**fields, "data": json.loads(data), "unique": HOSTILE})
    redis_client.zadd(
        keys.due, {NASTY: time.time() * 1000 + 90_000, HOSTILE: time.time() * 1000 + 60_000, f"u:{HOSTILE}": 1}
    )
    redis_client.hset(keys.waiting, mapping={NASTY: body, HOSTILE: "{", f"u:{HOSTILE}": body})
    redis_client.zadd(keys.unhandled, {f"x{HOSTILE}": 1})
    redis_client.hset(keys.waiting, f"x{HOSTILE}", body)
    redis_client.xadd(keys.ready, {**fields, "type": HOSTILE, HOSTILE: HOSTILE, "nonsense": b"\xff" + HOSTILE.encode()})
    settle("emails", take("emails", 1), Bury(error=HOSTILE, reason=HOSTILE))
    redis_client.xadd(keys.ready, fields)
    settle("emails", take("emails", 1), Bury(error=HOSTILE, traceback=HOSTILE, reason=HOSTILE))
    tally("emails", {("handled", HOSTILE): 1, ("t3", HOSTILE): 1})
    told = {"host": HOSTILE, "pid": HOSTILE, "version": HOSTILE, "since_ms": 10**30, "supervisor": HOSTILE}
    redis_client.hset(keys.consumers, f"consumer:{HOSTILE}", json.dumps(told))
    redis_client.hset(keys.consumers, f"supervisor:{HOSTILE}", "no json")
    redis_client.hset(keys.consumers, f"seen:{HOSTILE}", "9" * 18)


def every_page(client: Client) -> dict[str, str]:
    """Return the pages of all addresses, and of all messages they link to."""
    pages = {}
    for address in addresses():
        response = client.get(BASE + address)
        # What is not there, as in an empty queue, leads back to the list.
        assert response.status_code in (200, 302), address
        pages[address] = response.content.decode()
    for address in list(pages):
        for link in re.findall(rf'<th scope="row"[^>]*><a href="({BASE}emails/[^"]+)"', pages[address]):
            response = client.get(unescape(link))
            assert response.status_code == 200, link
            pages[link] = response.content.decode()
    return pages


@pytest.mark.usefixtures("hostile")
def test_hostile_content_is_shown_and_harmless(operator):
    pages = every_page(operator)

    assert len(pages) >= 14
    for address, page in pages.items():
        assert "<script>alert" not in page, address
        assert not re.search("[\u202e\u0007\u2028]", page), address
    assert "U+202E" in pages["consumers/"]
    dead = pages["emails/dead/"]
    assert "&lt;script&gt;alert(1)" in dead
    assert '<span class="mq-odd">U+202E</span>' in dead
    assert '<span class="mq-odd">U+2028</span>' in dead


@pytest.mark.usefixtures("hostile")
def test_hostile_messages_can_be_cancelled_redriven_and_deleted(operator, redis_client):
    keys = get_config().queue("emails").keys
    delayed = [row["ref"] for row in operator.get(f"{BASE}emails/delayed/").context["rows"]]
    dead = [row["ref"] for row in operator.get(f"{BASE}emails/dead/").context["rows"]]

    assert (
        operator.post(f"{BASE}emails/delayed/chosen/", {"action": "cancel", "_selected_action": delayed}).status_code
        == 200
    )
    operator.post(
        f"{BASE}emails/delayed/chosen/", {"action": "cancel", "_selected_action": delayed, "confirmed": "yes"}
    )
    chosen = {"_selected_action": dead, "confirmed": "yes"}
    operator.post(f"{BASE}emails/dead/chosen/", {"action": "redrive", **chosen})
    operator.post(f"{BASE}emails/dead/chosen/", {"action": "delete", **chosen})

    assert redis_client.zcard(keys.due) == 0
    assert redis_client.xlen(keys.dead) == 0
    ((_, fields),) = redis_client.xrange(keys.ready)
    assert fields[b"id"] == NASTY.encode()
    history = operator.get(f"{BASE}emails/history/").content.decode()
    assert "\u202e" not in history
    assert "<script>alert" not in history


def test_the_overview_names_what_is_wrong_first(operator):
    publish("default", "welcome", 1)

    page = operator.get(BASE).content.decode()

    assert "1 problem found." in page
    problem = page.index("has 1 message and no running consumer")
    assert problem < page.index('id="result_list"')
    beat("default")
    assert "No problems found." in operator.get(BASE).content.decode()


def test_the_overview_shows_rates_errors_and_consumers(operator):
    beat("emails", consumers=3)
    tally("emails", {("published", "welcome"): 40, ("handled", "welcome"): 30, ("retried", "welcome"): 10})

    page = operator.get(BASE).content.decode()

    row = re.sub(r"<svg.*?</svg>|<[^>]*>", " ", page[page.index("emails</a> <button") :]).split()
    assert row[:8] == ["emails", "☆", "failing", "0", "0", "0", "0", "3"]
    assert row[9:13] == ["40/min", "30/min", "25", "%"]


def test_live_parts_are_those_of_the_page(operator):
    world()
    for page, stats in {
        "": "stats.json",
        "emails/change/": "emails/stats.json",
        "orders/change/": "orders/topic.json",
        "orders:billing/change/": "orders:billing/stats.json",
    }.items():
        html = operator.get(BASE + page).content.decode()
        answer = operator.get(BASE + stats).json()
        assert answer["summary"] in html
        assert ("position" in answer["parts"]) == ("billing" in page)
        for name in answer["parts"]:
            assert f'data-mq-part="{name}"' in html


def test_settings_that_are_wrong_are_a_sentence(operator, mq_settings):
    mq_settings(CONNECTION="no-such-alias")

    response = operator.get(BASE)

    assert response.status_code == 503
    assert "Run manage.py check" in response.content.decode()


def test_one_unreadable_queue_does_not_hide_the_others(operator, redis_client):
    redis_client.set(get_config().queue("default").keys.ready, "mine")
    publish("emails", "welcome", 1)

    page = operator.get(BASE)

    assert page.status_code == 200
    assert "default</a> cannot be read" in page.content.decode()


def test_a_queue_that_is_not_configured_leads_to_the_overview(operator):
    response = operator.get(f"{BASE}nope/dead/", follow=True)

    assert response.redirect_chain[-1][0] == BASE
    assert "There is no queue “nope” in the settings." in response.content.decode()
    assert operator.get(f"{BASE}nope/stats.json").status_code == 404


def test_names_with_an_underscore_keep_their_links(operator, mq_settings):
    mq_settings(QUEUES={"order_items": {}, "stats": {}, "add": {}})
    bury("order_items")

    page = operator.get(BASE).content.decode()
    for link in re.findall(rf'<th scope="row"[^>]*><a href="({BASE}[^"]+)"', page):
        assert operator.get(link).status_code == 200, link
    chosen = {"action": "delete", "_selected_action": dead_entry("order_items"), "confirmed": "yes"}
    operator.post(f"{BASE}order_items/dead/chosen/", chosen)
    assert "Deleted 1 dead letter" in operator.get(f"{BASE}order_5Fitems/history/").content.decode()


#: The beginnings of addresses of pages about all queues.
SHOW_ALL = ("consumers", "problems", "metrics/?by", "metrics/f", "metrics/e", "schedules")


def test_pages_send_few_commands(operator, redis_client, mq_settings):
    """At most 20, and 2 a queue shown: a look at a queue is one script. A search looks into all places of each."""
    mq_settings(QUEUES={"emails": {}, **{f"q{n}": {} for n in range(29)}})
    bury_many("emails", 60)
    for _ in range(60):
        publish("emails", "welcome", 1, delay=60)
    operator.get(BASE)

    for address in [*addresses(), "stats.json", "emails/stats.json"]:
        shown = (
            30
            if address.split("?")[0] in ("", "stats.json", "pause/", "resume/") or address.startswith(SHOW_ALL)
            else 1
        )
        with redis_client.monitor() as monitor:
            operator.get(BASE + address)
            redis_client.echo("that was it")
            sent = list(takewhile(lambda seen: "that was it" not in seen["command"], monitor.listen()))
        count = sum(seen["client_type"] != "lua" for seen in sent)
        # Counters of two times, each in up to two hashes.
        a_queue = 5 if "compare" in address else 2
        most = 10 * 30 if address.startswith("find/") else a_queue * shown
        assert count <= 20 + most, address
        is_silent = address.endswith("/history/") or address.startswith(("outbox", "problems/unmute", "problems/mute"))
        assert count >= (0 if is_silent else shown), address
