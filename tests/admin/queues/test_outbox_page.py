"""The page of the outboxes, and its place on the page of all queues."""

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from mq_django import queues, topics
from mq_django.inspector import outbox_views
from mq_django.models import OutboxMessage, OutboxState
from tests.admin.conftest import BASE
from tests.admin.pages import YES, main_of
from tests.outbox_rows import outbox_row, set_aside_row

pytestmark = pytest.mark.django_db(databases="__all__")

URL = f"{BASE}outbox/"
ACT = f"{BASE}outbox/rows/act/"


@pytest.fixture(autouse=True)
def emails(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"OUTBOX": True}})


def act(client, action, *rows, **fields):
    fields = {"action": action, "database": "default", "_selected_action": [str(row.pk) for row in rows], **fields}
    return client.post(ACT, fields, follow=True)


def batches():
    return dict(OutboxMessage.objects.values_list("id", "batch"))


def test_the_overview_leads_to_an_outbox_that_stands_still(operator):
    outbox_row(age=600)
    page = operator.get(BASE).content.decode()
    assert "has 1 message in its outbox, which has waited for 10 min" in page
    assert f'href="{URL}"' in page


def test_the_page_counts_what_waits_and_lists_what_was_set_aside(operator):
    outbox_row(message_id="waiting-one")
    set_aside_row(message_id="aside-one", error="MessageTooLarge: <b>9</b> MiB", key="user:7")

    page = main_of(operator.get(URL))
    assert "1 message is not published yet." in page
    assert "aside-one" in page
    assert "waiting-one" not in page
    assert "&lt;b&gt;9" in page
    assert "user:7" in page

    page = main_of(operator.get(f"{URL}?show=waiting&destination=emails"))
    assert "waiting-one" in page
    assert "aside-one" not in page


def test_the_page_shows_rows_with_values_that_nobody_writes(operator):
    """SQLite stores text in columns of numbers, too."""
    numbers = ("part", "parts", "size", "due_ms", "published_ms", "failed_ms")
    texts = ("destination", "message_id", "name", "key", "body", "error")
    written = [(columns, value) for columns in (numbers, ("batch",)) for value in ("x", -1, 2**62)]
    odd = []
    for columns, value in [*written, (texts, b"\xff<b>")]:
        for row in (outbox_row(message_id="odd"), set_aside_row(message_id="odd")):
            values = ", ".join(f"{column} = %s" for column in columns)
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE mq_django_outbox SET {values} WHERE id = %s", [*[value] * len(columns), row.pk])
            odd.append(row)
    OutboxState.objects.create(destination="emails", problem="stopped")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mq_django_outbox_state SET destination = %s, problem = %s", [b"\xff", b"\xff"])
    for url in (BASE, URL, f"{URL}?show=waiting", f"{URL}?show=waiting&destination=emails", f"{BASE}emails/change/"):
        assert operator.get(url).status_code == 200
    for row in odd:
        assert operator.get(f"{URL}rows/default/{row.pk}/").status_code == 200
        act(operator, "retry", row)


def test_pages_list_a_bounded_number_of_destinations(operator):
    for number in range(310):
        set_aside_row(destination=f"unknown-{number:03}")
    for url, listed, problems in ((URL, "and 11 more", "and 260 more"), (BASE, "", "and 307 more")):
        page = main_of(operator.get(url))
        assert listed in page
        assert problems in page
        assert "unknown-299" not in page


def test_rows_that_are_kept_have_a_column(mq_settings, operator):
    assert "Kept until handled" not in main_of(operator.get(URL))
    mq_settings(QUEUES={"emails": {"OUTBOX": {"KEEP_UNTIL": "handled"}}})
    for _ in range(3):
        outbox_row(batch=-1)

    page = main_of(operator.get(URL))

    assert "Kept until handled" in page
    assert '<td class="mq-number">3</td>' in page
    assert "0 messages are not published yet." in page


def test_there_is_no_tab_without_an_outbox(mq_settings, operator):
    assert URL in operator.get(BASE).content.decode()
    mq_settings(QUEUES={"default": {}})
    assert URL not in operator.get(BASE).content.decode()


def tiles(client, name):
    return {str(tile["label"]): tile for tile in client.get(f"{BASE}{name}/change/").context["tiles"]}


def test_a_queue_and_a_topic_have_a_tile_that_leads_to_their_outbox(mq_settings, viewer):
    mq_settings(
        QUEUES={"default": {}, "emails": {"OUTBOX": True}, "parts": {"OUTBOX": True, "PARTITIONS": 2}},
        TOPICS={"orders": {"OUTBOX": True}},
    )
    topics["orders"].group("billing").subscribe()
    assert [name for name in ("default", "parts.0", "orders:billing") if "Outbox" in tiles(viewer, name)] == []
    for name in ("emails", "orders", "parts"):
        row = outbox_row(name, message_id=f"in-{name}")
        tile = tiles(viewer, name)["Outbox"]
        assert (tile["count"], tile["note"], tile["bad"]) == ("1", "", False)
        assert [found["row"] for found in viewer.get(tile["url"]).context["messages_listed"]] == [row.pk]
    aside = set_aside_row("emails")
    tile = tiles(viewer, "emails")["Outbox"]
    assert (tile["count"], tile["note"], tile["bad"]) == ("1", "set aside: 1", True)
    assert [found["row"] for found in viewer.get(tile["url"]).context["messages_listed"]] == [aside.pk]
    # Rows of a queue that has lost the option.
    outbox_row("default")
    assert tiles(viewer, "default")["Outbox"]["count"] == "1"


def test_a_row_has_a_page_with_its_message(operator, viewer, monkeypatch):
    queues["emails"].publish("welcome", {"user": 7, "password": "hunter2"}, key="user:7", headers={"trace": "of-ada"})
    waiting = OutboxMessage.objects.get()
    aside = set_aside_row(message_id="aside-one", error="ValueError: " + "long " * 500, body=waiting.body)
    urls = {}
    for show in ("waiting", ""):
        (listed,) = operator.get(f"{URL}?show={show}").context["messages_listed"]
        urls[listed["row"]] = listed["url"]
    page = main_of(operator.get(urls[waiting.pk]))
    for shown in (waiting.message_id, "emails", "waiting", "user:7", "of-ada", "&quot;user&quot;: 7"):
        assert shown in page, shown
    assert "hunter2" not in page
    assert "Discard…" not in page
    page = operator.get(urls[aside.pk])
    assert "long " * 500 in main_of(page)
    done = operator.post(
        page.context["act_url"],
        {page.context["chosen_field"]: page.context["ref"], **dict(page.context["fields"]), "action": "retry", **YES},
    )
    assert (done.status_code, batches()) == (302, {waiting.pk: None, aside.pk: None})

    page = main_of(viewer.get(urls[waiting.pk]))
    assert "You do not have permission to see message data." in page
    assert not any(hidden in page for hidden in ("user:7", "of-ada", "&quot;user"))
    monkeypatch.setattr(outbox_views, "MAX_BODY", 10)
    assert "Too long to show." in main_of(operator.get(urls[waiting.pk]))
    OutboxMessage.objects.all().delete()
    for url in (urls[waiting.pk], f"{URL}rows/nowhere/1/", f"{URL}rows/default/x/"):
        assert operator.get(url).url == URL


def test_selected_messages_are_published_after_confirmation(operator):
    first, second = set_aside_row(message_id="one"), set_aside_row(message_id="two")

    page = act(operator, "retry", first).content.decode()
    assert "Publish 1 message?" in page
    assert batches() == {first.pk: 0, second.pk: 0}

    page = act(operator, "retry", first, confirmed="yes").content.decode()
    assert "1 message will be published." in page
    assert batches() == {first.pk: None, second.pk: 0}
    assert LogEntry.objects.get().change_message == "Retried 1 message of the outbox of default: one"


def test_all_of_a_queue_are_discarded_by_those_who_may_purge(operator, log_in):
    aside, other = set_aside_row(), set_aside_row("orders")
    limited = log_in("view_queue", "operate_queue")
    assert act(limited, "discard_all", destination="emails", confirmed="yes").status_code == 403

    page = act(operator, "discard_all", destination="emails", confirmed="yes").content.decode()

    assert "1 message was discarded." in page
    assert batches() == {other.pk: 0}
    assert aside.pk not in batches()


def test_a_message_that_is_no_longer_set_aside_stays(operator):
    row = set_aside_row()
    OutboxMessage.objects.update(batch=4)
    page = act(operator, "discard", row, confirmed="yes").content.decode()
    assert "1 was no longer set aside." in page
    assert batches() == {row.pk: 4}


def test_an_unknown_action_is_refused(operator):
    assert act(operator, "explode").status_code == 400
    assert act(operator, "retry", database="nowhere").status_code == 400
