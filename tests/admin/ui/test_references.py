"""Who may not see the data of messages sees nothing that may quote it, on no page, in no address, and in no log."""

import json
import re
from html import unescape
from urllib.parse import parse_qs

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.keys import WorkflowKeys
from mq_django.core.limits import key_hash
from mq_django.core.messages import Bury, Retry
from mq_django.inspector import actions, dead_letters, jobs, message_lists
from mq_django.inspector.holds import hold
from mq_django.stores.base import Settlement
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, main_of, world
from tests.outbox_rows import set_aside_row
from tests.seeding import (
    CONSUMER,
    beat,
    bury,
    bury_garbage,
    dead_entry,
    end_steps,
    handle,
    opened,
    publish,
    set_aside,
    start_run,
    store,
    take,
)

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

#: Stands in everything that may quote data.
CANARY = "rumpelstiltskin"
#: Nothing that quotes data is in other queues and topics.
WITHOUT_CANARY = (f"{BASE}orders", f"{BASE}default")
DELAYED = f"{BASE}emails/delayed/"
CANCEL = f"{BASE}emails/delayed/chosen/"
DEAD = f"{BASE}emails/dead/"
#: Pages that quote data for those who may see it.
SHOW_DATA = ("emails/change/", "emails/delayed/", "emails/dead/", "emails/handled/", "activity/", "outbox/")


@pytest.fixture
def clerk(log_in):
    """Return a client of a user who may do everything but see data."""
    return log_in("view_queue", "operate_queue", "purge_queue")


def quoting(redis_client) -> str:
    """Put the canary wherever users put what quotes data; return the run that has it."""
    handle("emails", "handled", {"x": CANARY}, key=CANARY)
    # A message that failed with one word, for the third time; before the others, which would be taken with it.
    publish("emails", "retried", {"x": CANARY}, key=CANARY, headers={"h": CANARY})
    settled = [Settlement(item, Retry(error=CANARY, traceback=CANARY), 60_000) for item in take("emails", 10)]
    store("emails").settle(CONSUMER, settled)
    for error in (CANARY, f"{CANARY}: no", f"ValueError: {CANARY}", f"{CANARY}.{CANARY}: no"):
        bury("emails", "welcome", {"x": CANARY}, key=CANARY, headers={"h": CANARY}, error=error)
    bury_garbage(redis_client, "emails", {"x": CANARY, "type": CANARY, "attempt": "0"})
    set_aside("emails", "nobody", CANARY)
    publish("emails", "short", {"x": CANARY}, delay=60, unique=CANARY)
    publish("emails", "long", CANARY * 5000, delay=60, unique=f"{CANARY}-long")
    publish("emails", "claims", CANARY, delay=60, unique=f"{CANARY}-claim", unique_for="handled")
    publish("emails", "broken", CANARY, delay=60, unique=f"{CANARY}-broken")
    keys = get_config().queue("emails").keys
    redis_client.hset(keys.waiting, f"u:{CANARY}-broken", "{")
    redis_client.zadd(keys.due, {f"u:{CANARY}-of-nobody": 5e12})
    # Nobody's code has checked what another program writes.
    odd = {"key": {"message": "m", "key": [CANARY]}, "args": {"task": "tests.testapp.tasks.add", "args": CANARY}}
    for name, options in odd.items():
        redis_client.hset(keys.runtime_schedules, f"definition:{name}", json.dumps({"every": 60, **options}))
    publish("emails", "held", {"x": CANARY}, key=CANARY, headers={"h": CANARY})
    take("emails", 10)
    publish("emails", "ready", {"x": CANARY}, key=CANARY, headers={"h": CANARY})
    publish("emails", "ranked", {"x": CANARY}, key=CANARY, priority=5)
    set_aside_row(error=f"ValueError: {CANARY}", key=CANARY)
    hold("emails", key=CANARY, who="ann")
    publish("emails", "cancelled", CANARY, delay=60, unique=f"{CANARY}-cancelled")
    actions.cancel("emails", [f"u:{CANARY}-cancelled"])
    run_id = start_run({1: []}, unique=CANARY)
    end_steps(run_id, Bury(error="ValueError: no", reason="attempts"), 1)
    redis_client.hset(WorkflowKeys(get_config().namespace, "0").run(run_id), "failure", f"1 ValueError: {CANARY}")
    beat("emails")
    return run_id


def told(client, address: str, **fields: str) -> str:
    response = client.post(address, fields) if fields else client.get(address)
    assert response.status_code in (200, 302), address
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return str(response.headers) + content.decode()


def test_no_page_and_no_page_that_it_links_to_quotes_data(clerk, operator, redis_client):
    world()
    run_id = quoting(redis_client)
    jobs.begin("emails", "redrive", who="ann", criteria=Filter(key=CANARY, error=CANARY))
    jobs.cancel("emails")
    bases = [re.sub(r"/(dead|log|entry|waiting)/[^/]+/\{?\w+\}?/?$", r"/\1/", visit.path) for visit in LOOKS]
    seen = crawl(clerk, [base for base in bases if "{" not in base and visit_is_free(base)])
    # They would have been there to see.
    assert len(seen) > 40
    for path in (*SHOW_DATA, f"workflows/run/{run_id}/"):
        assert BASE + path in seen, path
        assert CANARY in told(operator, BASE + path), path
    assert "Step 1: <bdi>ValueError</bdi>" in told(clerk, f"{BASE}workflows/run/{run_id}/")


def crawl(client, paths) -> set[str]:
    """Visit pages and all that they link to or renew themselves from, of which none quotes data.

    A page is visited once with each set of parameters, and not in every order of its rows.
    """
    seen: set[str] = set()
    visited: set[tuple[str, frozenset[str]]] = set()
    found = [BASE + path for path in paths]
    while found:
        address = found.pop()
        path, _, query = address.partition("?")
        visit = (path, frozenset(parse_qs(query, keep_blank_values=True)))
        if visit in visited or not address.startswith(BASE) or address.startswith(WITHOUT_CANARY):
            continue
        visited.add(visit)
        seen.add(address)
        page = told(client, address)
        assert CANARY not in page, address
        links = re.findall(r'(?:href|data-mq-live)="(/admin/mq_django/queue/[^"]+)"', page)
        found += [unescape(link) for link in links]
        found += [path + unescape(link) for link in re.findall(r'href="(\?[^"]+)"', page)]
    return seen


def visit_is_free(path: str) -> bool:
    """Tell whether a page needs neither data nor a message of a test."""
    return not any(word in path for word in ("export", "find.json", "edit", "schedule/add", "schedule/change"))


def test_a_message_under_a_unique_key_is_named_by_its_id(clerk, redis_client):
    quoting(redis_client)
    rows = clerk.get(DELAYED).context["rows"]

    members = [row["ref"] for row in rows if row["ref"]]
    assert len(members) == len(rows) - 1
    for row in rows:
        if row["ref"]:
            page = clerk.get(row["url"])
            assert (page.status_code, CANARY in page.content.decode()) == (200, False)
    asked = clerk.post(CANCEL, {"action": "cancel", "_selected_action": members})
    assert CANARY not in asked.content.decode()
    done = clerk.post(CANCEL, {"action": "cancel", "_selected_action": members, "confirmed": "yes"}, follow=True)

    assert CANARY not in done.content.decode()
    # Nobody knows the id of one that somebody put there by hand.
    assert [view.ref for view in message_lists.messages("emails", "delayed", limit=9).rows] == [f"u:{CANARY}-of-nobody"]


def test_a_message_that_another_one_replaced_is_not_cancelled_in_its_place(operator):
    publish("emails", "first", 1, delay=60, unique="cart:7")
    ((row,),) = [operator.get(DELAYED).context["rows"]]
    publish("emails", "second", 2, delay=60, unique="cart:7")

    operator.post(CANCEL, {"action": "cancel", "_selected_action": row["ref"], "confirmed": "yes"})

    assert inspector.queue("emails").delayed == 1


def test_messages_of_one_id_are_not_mistaken_for_each_other(clerk, operator):
    for unique in ("cart:7", "cart:8"):
        publish("emails", "welcome", unique, delay=60, unique=unique, message_id="m1")

    rows = clerk.get(DELAYED).context["rows"]

    # The id leads to one of them, and the other has no name that says nothing.
    assert sorted(row["ref"] for row in rows) == ["", "m1"]
    assert sorted(bool(row["url"]) for row in rows) == [False, True]
    clerk.post(CANCEL, {"action": "cancel", "_selected_action": "m1", "confirmed": "yes"})
    (left,) = operator.get(DELAYED).context["rows"]
    operator.post(CANCEL, {"action": "cancel", "_selected_action": left["ref"], "confirmed": "yes"})
    assert inspector.queue("emails").delayed == 0


def test_unique_keys_are_not_guessed(clerk, operator):
    message_id = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    assert clerk.get(DELAYED, {"id": message_id}).url == f"{BASE}emails/message/delayed/{message_id}/"

    for guess in ("cart:7", "u:cart:7"):
        assert clerk.get(DELAYED, {"id": guess}).status_code == 200
        assert operator.get(DELAYED, {"id": guess}).status_code == 302
    for address in (f"{BASE}emails/message/delayed/u_3Acart_3A7/", f"{BASE}emails/message/delayed/u_3Acart_3A8/"):
        assert clerk.get(address).status_code == 403
    for guess in ("u_3Acart_3A7", "u_3Acart_3A8"):
        assert (
            clerk.post(CANCEL, {"action": "cancel", "_selected_action": guess, "confirmed": "yes"}).status_code == 403
        )
    assert inspector.queue("emails").delayed == 1


def test_the_log_has_no_values_of_filters_and_no_unique_keys(operator, clerk, redis_client):
    quoting(redis_client)
    filters = {"key": CANARY, "error": CANARY, "name": "welcome"}
    for terms in (filters, {"of_name": "welcome", "of_error": CANARY}):
        b"".join(operator.get(f"{DEAD}export/", terms).streaming_content)
        assert CANARY in told(operator, f"{DEAD}all/redrive/", **terms)
        operator.post(f"{DEAD}all/redrive/", {**terms, "confirmed": "yes"})
        operator.post(f"{DEAD}all/delete/", {**terms, "confirmed": "yes"})
    members = [row["ref"] for row in operator.get(DELAYED).context["rows"]]
    operator.post(CANCEL, {"action": "cancel", "_selected_action": members, "confirmed": "yes"})

    said = list(LogEntry.objects.values_list("change_message", flat=True))
    assert len(said) == 7
    assert CANARY not in str(said)
    assert "name contains “welcome”, key is “…”, error contains “…”" in str(said)
    assert CANARY not in told(clerk, f"{BASE}emails/history/")


def test_errors_that_are_no_class_are_one_group_each_that_only_those_who_see_data_can_ask_for(clerk, operator):
    bury("emails", "welcome", error=CANARY)
    bury("emails", "welcome", error="john.Smith")
    bury("emails", "welcome", error="tests.testapp.tasks.Refused: no")

    shown = {str(row["error"]): row for row in clerk.get(f"{DEAD}groups/").context["rows"]}

    assert set(shown) == {"…", "<bdi>tests.testapp.tasks.Refused</bdi>"}
    assert "redrive_url" not in shown["…"]
    assert len(clerk.get(unescape(shown["<bdi>tests.testapp.tasks.Refused</bdi>"]["url"])).context["rows"]) == 1
    for guess in (CANARY, "other"):
        assert clerk.get(DEAD, {"of_name": "welcome", "of_error": guess}).status_code == 400
    assert len(operator.get(DEAD, {"of_name": "welcome", "of_error": CANARY}).context["rows"]) == 1


def test_parked_messages_are_named_by_their_place(clerk, mq_settings):
    mq_settings(QUEUES={"emails": {"CONCURRENCY": {"key": 1}}})
    for number in range(3):
        publish("emails", "welcome", {"n": number}, key=CANARY, unique=f"{CANARY}-{number}", unique_for="handled")
    found = opened("emails")
    found.take("c1", count=10)
    beat("emails")

    rows = clerk.get(f"{BASE}emails/parked/").context["rows"]

    assert len(rows) == 2
    line = f"{BASE}emails/line/{key_hash(CANARY)}/"
    lists = [f"{BASE}emails/change/", f"{BASE}emails/parked/", line, f"{line}stats.json"]
    assert [address for address in lists if CANARY in told(clerk, address)] == []
    for row in rows:
        shown = told(clerk, row["url"])
        assert "The limit for key “…” is reached" in shown
        assert line in shown
        assert CANARY not in shown
    fields = {"action": "cancel", "_selected_action": [row["ref"] for row in rows], "confirmed": "yes"}
    clerk.post(f"{BASE}emails/parked/chosen/", fields)
    assert inspector.queue("emails").parked == 0


def test_what_those_who_see_data_are_shown_is_still_there(operator, redis_client):
    quoting(redis_client)
    page = main_of(operator.get(f"{BASE}emails/message/dead/{dead_entry('emails')}/"))
    assert CANARY in page
    assert dead_letters.count("emails").count == 5
