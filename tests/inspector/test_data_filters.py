"""Messages found by their data, in each form of queue and each state, by lists and by jobs."""

import pytest

from mq_django import topics
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import Filter
from mq_django.core.messages import Bury, SetAside
from mq_django.inspector import jobs
from mq_django.inspector.message_lists import in_log, messages
from mq_django.stores.background_jobs import IDLE
from mq_django.stores.base import Settlement
from tests import on_cluster
from tests.seeding import handle, opened, publish

WANTED = Filter(data="customer=C-4242")
#: A page does not show data of this length.
LONG = "x" * 40_000


@pytest.fixture
def several(mq_settings, namespace):
    """Queues of all forms."""
    mq_settings(
        QUEUES={
            "emails": {},
            "lines": {"ORDERED": True},
            "jobs": {"STORE": "rsmq", "NAMESPACE": on_cluster.tag(f"{namespace}:r")},
        },
        TOPICS={"orders": {}},
    )


def seed(queue, state, data):
    """Put a message into a state, and return its id."""
    if state == "delayed":
        return publish(queue, "a", data, delay=60)
    message_id = publish(queue, "a", data)
    if state != "ready":
        (delivery,) = opened(queue).take("c1", count=1)
        if state != "pending":
            outcome = SetAside() if state == "unhandled" else Bury("no", "attempts")
            assert opened(queue).settle("c1", [Settlement(delivery, outcome)]) == []
    return message_id


def seed_three(queue, state):
    """Return the ids of two messages that are wanted, of which one is long. A third one is not."""
    wanted = {"customer": "C-4242"}
    return [seed(queue, state, data) for data in (wanted, {**wanted, "more": LONG}, {"customer": "C-1"})][:2]


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("state", ["ready", "pending", "delayed", "unhandled", "dead"])
@pytest.mark.parametrize("queue", ["emails", "lines", "jobs"])
def test_a_list_and_a_job_find_the_same(queue, state):
    wanted = seed_three(queue, state)

    rows = messages(queue, state, WANTED, limit=10).rows
    assert {row.id for row in rows} == set(wanted)
    assert sorted(row.has_data for row in rows) == [False, True]

    if state == "pending":
        return
    assert jobs.count_matching(queue, state, WANTED).count == 2
    assert jobs.begin(queue, "delete", state, who="ann", criteria=WANTED).word == "begun"
    while work_here(queue, "w1", state) != IDLE:
        pass
    left = messages(queue, state, limit=10).rows
    assert [row.data for row in left] == [{"customer": "C-1"}]


@pytest.mark.usefixtures("several")
def test_what_became_of_messages_and_the_log_of_a_topic():
    handled = handle("emails", "a", {"customer": "C-4242"})
    handle("emails", "a", {"customer": "C-1"})
    topics["orders"].group("billing").subscribe()
    logged = topics["orders"].publish("a", {"customer": "C-4242", "more": LONG}, on_commit=False)
    topics["orders"].publish("a", {"customer": "C-1"}, on_commit=False)

    assert [row.id for row in messages("emails", "handled", WANTED, limit=10).rows] == [handled]
    assert [row.id for row in in_log("orders", WANTED, limit=10).rows] == [logged]
    assert [row.id for row in messages("orders:billing", "ready", WANTED, limit=10).rows] == [logged]


@pytest.mark.usefixtures("several")
def test_the_cursor_of_a_list_goes_on_after_what_was_found():
    wanted = [seed("emails", "dead", {"customer": "C-4242"}) for _ in range(120)][::-1]
    found, after = [], ""
    while after or not found:
        page = messages("emails", "dead", WANTED, after=after, limit=7)
        found += [row.id for row in page.rows]
        after = page.after
    assert found == wanted


@pytest.mark.usefixtures("several")
def test_a_message_that_waits_in_the_line_of_its_key():
    for data in ({"customer": "C-1"}, {"customer": "C-1"}, {"customer": "C-4242"}):
        publish("lines", "a", data, key="k")
    (first,) = opened("lines").take("c1", count=3)
    assert first.message.data == {"customer": "C-1"}
    (row,) = messages("lines", "parked", WANTED, limit=10).rows
    assert row.data == {"customer": "C-4242"}
    assert jobs.count_matching("lines", "parked", WANTED).count == 1
