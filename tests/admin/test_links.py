"""Links between pages: back to the queue, back to a filter, and none to groups that do not exist."""

import html
import re

import pytest

from mq_django import inspector, topics
from mq_django.conf import get_config
from mq_django.inspector.message_lists import messages
from tests.admin.conftest import BASE
from tests.admin.pages import YES
from tests.seeding import beat, bury, publish

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

FILTER = {"name": "welc"}
QUERY = "?name=welc"


def crumbs_of(response):
    """Return the breadcrumbs of a page: the labels of the links, and the one of the page itself."""
    page = response.content.decode()
    crumbs = page[page.index('class="breadcrumbs"') : page.index('id="content-main"')]
    crumbs = crumbs[: crumbs.index("</ol>" if "</ol>" in crumbs else "</div>")]
    links = re.findall(r"<a [^>]*>([^<]*)</a>", crumbs)
    here = re.split(r"&rsaquo;|<li [^>]*>", crumbs)[-1].partition("<")[0]
    return [html.unescape(label) for label in (*links, here)]


#: What stands behind “Message queues”, by page.
CRUMBS = {
    "": ["Queues"],
    "find/": ["Queues", "Find messages"],
    "outbox/": ["Queues", "Outbox"],
    "consumers/s1-c0/stacks/": ["Queues", "Consumers", "Stacks"],
    "consumers/": ["Queues", "Consumers"],
    "emails/change/": ["Queues", "emails"],
    "emails/ready/?name=a": ["Queues", "emails", "Ready messages"],
    "emails/message/delayed/later/": ["Queues", "emails", "Delayed", "Message"],
    "emails/figures/": ["Queues", "emails", "Figures"],
    "orders/change/": ["Queues", "orders"],
    "orders:billing/change/": ["Queues", "orders", "billing"],
    "orders:billing/dead/": ["Queues", "orders", "billing", "Dead letters"],
    "events.1:audit/dead/": ["Queues", "events", "audit", "events.1:audit", "Dead letters"],
}


def test_every_crumb_but_the_last_is_a_link_and_the_last_is_the_page(operator, mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {}}, TOPICS={"orders": {}, "events": {"PARTITIONS": 2}})
    publish("emails", "welcome", 1, delay=3600, message_id="later")
    beat("emails", "s1", consumers=1)
    topics["orders"].group("billing").subscribe()
    topics["events"].group("audit").subscribe()
    shown = {path: [label.strip() for label in crumbs_of(operator.get(BASE + path))] for path in CRUMBS}
    assert shown == {path: ["Home", "Message queues", *crumbs] for path, crumbs in CRUMBS.items()}


def test_each_list_links_back_to_its_queue_or_topic(viewer):
    lists = ("ready/", "pending/", "delayed/", "dead/", "dead/groups/", "figures/")
    for path in (*(f"emails/{path}" for path in lists), "orders/log/"):
        response = viewer.get(BASE + path)
        assert path.partition("/")[0] in crumbs_of(response)[:-1], path
        assert f'href="{BASE}{path.partition("/")[0]}/change/"' in response.content.decode(), path


def test_dead_letters_stay_filtered_after_an_action(operator):
    bury("emails", "other")
    for action in ("move", "delete", "redrive"):
        bury("emails", "welcome")
        shown = operator.get(f"{BASE}emails/dead/", FILTER)
        (row,) = shown.context["rows"]
        chosen = {"action": action, "_selected_action": row["ref"]}

        asked = operator.post(shown.context["act_url"], chosen)
        assert asked.context["back_url"] == f"{BASE}emails/dead/{QUERY}"
        done = operator.post(asked.context["act_url"], {**chosen, **YES, "target": "default"})

        assert done.url == f"{BASE}emails/dead/{QUERY}"
        assert inspector.queue("emails").dead == 1


def test_a_dead_letter_found_by_a_filter_leads_back_to_it(operator):
    bury("emails", "welcome")
    (row,) = operator.get(f"{BASE}emails/dead/", FILTER).context["rows"]

    letter = operator.get(row["url"])
    done = operator.post(letter.context["act_url"], {"action": "redrive", "_selected_action": row["ref"], **YES})

    assert done.url == f"{BASE}emails/dead/{QUERY}"


def test_delayed_messages_stay_filtered_after_one_is_cancelled(operator):
    publish("emails", "welcome", 1, delay=60)
    publish("emails", "other", 1, delay=60)
    shown = operator.get(f"{BASE}emails/delayed/", FILTER)
    (row,) = shown.context["rows"]
    chosen = {"action": "cancel", "_selected_action": row["ref"]}

    asked = operator.post(shown.context["act_url"], chosen)
    assert asked.context["back_url"] == f"{BASE}emails/delayed/{QUERY}"
    done = operator.post(asked.context["act_url"], {**chosen, **YES})

    assert done.url == f"{BASE}emails/delayed/{QUERY}"
    assert len(messages("emails", "delayed", limit=5).rows) == 1


def test_a_group_that_does_not_exist_has_no_page_and_is_not_paused(operator, redis_client, namespace):
    response = operator.get(f"{BASE}orders:typo/change/", follow=True)
    assert "There is no queue “orders:typo”" in response.content.decode()
    operator.post(f"{BASE}orders:typo/pause/", YES)

    assert not [*redis_client.scan_iter(f"{namespace}*typo*")]
    assert operator.get(f"{BASE}orders:typo/history/").status_code == 302


def test_a_group_in_redis_alone_has_a_page_also_when_its_log_is_gone(operator, redis_client):
    topics["orders"].group("forgotten").subscribe()
    assert operator.get(f"{BASE}orders:forgotten/change/").status_code == 200
    publish("orders:forgotten", "welcome", 1, delay=60)
    redis_client.delete(get_config().queue("orders:forgotten").keys.topic.log)

    assert operator.get(f"{BASE}orders:forgotten/delayed/").status_code == 200
