"""The table of the page of all queues: its order, its pages, prefixes, states and stars."""

import re
from itertools import takewhile

import pytest

from mq_django.inspector import actions, queues
from mq_django.inspector.problem_list import mute
from mq_django.stores import preferences
from tests.admin.conftest import BASE
from tests.seeding import beat, bury, publish, tally

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

MANY = {f"{kind}-{number}": {} for kind in ("mail", "order") for number in range(40)}


def names(client, query=""):
    return [row["name"] for row in client.get(f"{BASE}{query}").context["rows"]]


def commands(redis_client, ask):
    """Return the keys that were read meanwhile, of which each queue has a `consumers`."""
    with redis_client.monitor() as monitor:
        ask()
        redis_client.echo("that was it")
        return [
            seen["command"] for seen in takewhile(lambda seen: "that was it" not in seen["command"], monitor.listen())
        ]


def test_trouble_stands_first_and_each_column_sorts(viewer, mq_settings):
    mq_settings(QUEUES={"a": {}, "b": {}, "c": {}, "d": {}})
    for name in ("a", "b", "d"):
        beat(name)
    publish("c", "late", 1)
    bury("b", "broken")
    tally("d", {("handled", "welcome"): 30})

    # Nobody handles c: that is worse than a message that was buried. The others are by name.
    assert names(viewer) == ["c", "b", "a", "d"]
    assert names(viewer, "?sort=-name") == ["d", "c", "b", "a"]
    assert names(viewer, "?sort=-ready") == ["c", "a", "b", "d"]
    assert names(viewer, "?sort=dead") == ["a", "c", "d", "b"]
    assert names(viewer, "?sort=-handled") == ["d", "a", "b", "c"]
    for column in ("waiting", "pending", "consumers", "oldest", "published", "errors", "state"):
        assert len(names(viewer, f"?sort=-{column}")) == 4
    assert names(viewer, "?sort=nonsense&p=%C2%B2") == names(viewer)


def test_the_head_of_the_column_says_how_it_is_sorted_and_turns_it(viewer):
    page = viewer.get(f"{BASE}?sort=-ready&q=e").content.decode()

    assert re.findall(r'aria-sort="(\w+)"', page) == ["descending"]
    assert 'href="?q=e&amp;sort=ready"' in page
    assert 'href="?q=e&amp;sort=-dead"' in page


def test_states_are_those_of_the_list_of_problems(viewer, mq_settings):
    mq_settings(QUEUES={name: {} for name in ("alone", "idle", "paused", "running", "troubled", "failing")})
    for name in ("idle", "paused", "running", "troubled", "failing"):
        beat(name)
    actions.pause("paused")
    publish("troubled", "x", 1)
    bury("troubled", "broken")
    mute("troubled", "buried", seconds=60)
    tally("failing", {("handled", "a"): 1, ("retried", "a"): 9})

    found = viewer.get(BASE).context["rows"]
    rows = {row["name"]: (row["state"], row["troubled"]) for row in found}

    assert [row["paused"] for row in found if row["paused"]] == []
    assert rows["alone"] == ("no consumer", False)
    assert rows["idle"] == ("idle", False)
    assert rows["paused"] == ("paused", True)
    # A muted problem is none to mark, and still what the queue is like.
    assert rows["troubled"] == ("failing", False)
    assert rows["failing"] == ("failing", False)


def test_a_page_has_50_rows(viewer, mq_settings):
    mq_settings(QUEUES=MANY)
    first, second = names(viewer), names(viewer, "?p=2")

    assert (len(first), len(second)) == (50, 30)
    assert {*first, *second} == MANY.keys()
    # A number that is too large is the last page.
    assert names(viewer, "?p=99999") == second
    page = viewer.get(f"{BASE}?p=2").content.decode()
    assert '<span class="this-page">2</span>' in page
    assert "80 queues" in page
    assert "p=2" in re.search(r'data-mq-live="([^"]*)"', page)[1]


@pytest.mark.single_server(why="MONITOR shows one server")
def test_a_filter_by_name_reads_no_other_queue_and_of_names_only_a_page(viewer, mq_settings, redis_client):
    mq_settings(QUEUES={**MANY, "other": {}})
    names(viewer)

    read = commands(redis_client, lambda: names(viewer, "?q=order"))
    assert sum("{order-" in command and ":consumers" in command for command in read) >= 40
    assert not [command for command in read if "{mail-" in command]

    read = commands(redis_client, lambda: names(viewer, "?q=-&sort=name&p=2"))
    assert not [command for command in read if "{mail-1}" in command or "{other}" in command]
    page = viewer.get(f"{BASE}?q=-&sort=name&p=2")
    assert len(page.context["rows"]) == 30
    assert "80 queues of 81" in page.content.decode()


def test_problems_of_a_filtered_page_are_said_to_be_of_it(viewer, mq_settings):
    mq_settings(QUEUES={"mail-a": {}, "other": {}})
    publish("other", "x", 1)

    assert viewer.get(BASE).context["summary"] == "1 problem found."
    assert viewer.get(f"{BASE}?q=mail").context["summary"] == "Among the queues on this page: No problems found."


def test_queues_with_the_same_prefix_are_one_row_with_sums(viewer, mq_settings):
    mq_settings(QUEUES={"mail-a": {}, "mail-b": {}, "mail-c": {}, "pair-a": {}, "pair-b": {}, "single": {}})
    for name in ("mail-a", "mail-b", "mail-c"):
        beat(name)
    for name in ("mail-a", "mail-b"):
        bury(name, "broken")
        publish(name, "x", 1)

    page = viewer.get(f"{BASE}?group=prefix")
    rows = {row["name"]: row for row in page.context["rows"]}

    assert list(rows) == ["mail-", "pair-a", "pair-b", "single"]
    # The consumers of several queues are counted once.
    assert {what: rows["mail-"][what] for what in ("ready", "dead", "alive", "state")} == {
        "ready": "2",
        "dead": "2",
        "alive": "1",
        "state": "failing",
    }
    assert rows["mail-"]["queues"] == "3 queues"
    assert names(viewer, rows["mail-"]["url"]) == ["mail-a", "mail-b", "mail-c"]
    assert "group=prefix" in re.search(r'data-mq-live="([^"]*)"', page.content.decode())[1]


def test_a_starred_queue_stands_first_for_its_user(viewer, operator, mq_settings):
    mq_settings(QUEUES={"a": {}, "b": {}, "c": {}})

    response = viewer.post(f"{BASE}star/?sort=name", {"star": "c"})

    assert response["Location"] == f"{BASE}?sort=name"
    assert names(viewer, "?sort=name") == ["c", "a", "b"]
    assert names(operator, "?sort=name") == ["a", "b", "c"]
    page = viewer.get(f"{BASE}?sort=name").content.decode()
    polls = re.search(r'data-mq-live="([^"]*)"', page)[1].replace("&amp;", "&")
    rows = viewer.get(polls).json()["parts"]["rows"]
    assert rows.index('value="c"') < rows.index('value="a"')
    viewer.post(f"{BASE}star/", {"unstar": "c"})
    assert names(viewer, "?sort=name") == ["a", "b", "c"]


def test_stars_are_bounded_and_end_with_their_queue(viewer, mq_settings, monkeypatch, redis_client, namespace):
    monkeypatch.setattr(preferences, "MAX_STARS", 2)
    mq_settings(QUEUES={"a": {}, "b": {}, "c": {}})
    for name in ("a", "b"):
        viewer.post(f"{BASE}star/", {"star": name})

    said = viewer.post(f"{BASE}star/", {"star": "c"}, follow=True).content.decode()
    assert "take one star away first" in said
    assert "no queue “nowhere”" in viewer.post(f"{BASE}star/", {"star": "nowhere"}, follow=True).content.decode()

    mq_settings(QUEUES={"b": {}, "c": {}})
    viewer.post(f"{BASE}star/", {"star": "c"})
    (user,) = redis_client.hkeys(f"{namespace}:starred")
    assert list(queues.starred(user.decode())) == ["b", "c"]


def test_the_page_is_there_while_stars_cannot_be_read(viewer, redis_client, namespace):
    redis_client.set(f"{namespace}:starred", "of another program")
    assert len(names(viewer)) == 2
