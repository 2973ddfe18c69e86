"""The page that shows where the handlers of a consumer are."""

import html
import json
import re

import pytest

from mq_django.admin import consumer_pages
from mq_django.conf import get_config
from mq_django.core.jsontext import LAST_MS
from mq_django.core.stacks import Frame, Stack, stacks_text
from mq_django.stores.control import StackRequests
from mq_django.transport.connections import open_transport
from tests.admin.conftest import BASE
from tests.admin.consumers.test_consumers_page import words, work
from tests.seeding import CONSUMER, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

URL = f"{BASE}consumers/{CONSUMER}/stacks/"
FRAMES = [Frame("shop/tasks.py", 7, "export", "for row in rows:"), Frame("shop/<b>.py", 9, "chunk", "<script>")]
FORGED = b'{"stacks":[{"kind":"thread","id":"x","frames":[["a",1,"f","token = \'abc123\'"]]},7]}'


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    monkeypatch.setattr(consumer_pages, "WAIT", 0.0)


@pytest.fixture
def running():
    """A message that a consumer runs, and what asks that consumer."""
    publish("emails", "welcome", 1, message_id="m1")
    work(threads=8)
    return StackRequests(get_config().queue("emails"), open_transport("produce"))


def answer(requests, *stacks, text=None):
    requests.answer(CONSUMER, LAST_MS, stacks_text(stacks) if text is None else text)


def stack(**options):
    return Stack("thread", "emails", "m1", "welcome", 12_000, FRAMES)._replace(**options)


def test_it_shows_where_each_handler_is_and_leads_to_its_message(operator, running):
    answer(running, stack(), stack(kind="coroutine", id="m2", name="other", frames=[], others=0))
    page = operator.get(URL).content.decode()
    assert "2 handlers are running." in page
    assert 'File "shop/tasks.py", line 7, in export\n    for row in rows:' in html.unescape(page)
    assert "<script>" not in page.partition('id="content-main"')[2]
    assert re.search(rf'<a href="{BASE}emails/message/pending/ready.[^"]*/"><bdi>welcome</bdi></a>', page)
    assert re.search(rf'href="{BASE}emails/message/pending/ready.[^"]*/cancel/"', page)
    assert "m1 · emails · thread · for 12 s" in words(page)
    assert "It has no frames" in page
    assert "data-mq-live=" not in page


def test_who_may_not_see_data_sees_no_code(viewer, running):
    answer(running, stack())
    page = viewer.get(URL).content.decode()
    assert "line 7, in export" in page
    assert "for row in rows" not in page
    assert "You do not have permission to see the lines of code" in page
    assert "/cancel/" not in page


def test_it_says_what_is_left_out_and_that_a_task_belongs_to_no_handler(operator, running):
    task = stack(kind="task", id="", name="", queue="", left_out=1200, others=3)
    answer(running, stack(), task, task._replace(kind="sync"))
    page = operator.get(URL).content.decode()
    assert "A task on the event loop that no handler awaits" in page
    assert "What a coroutine runs in another thread, with sync_to_async" in page
    assert "1 handler is running." in page
    assert "1,200 outer frames are left out" in page
    assert "and 3 more tasks" in page


def test_a_late_answer_is_shown_by_a_poll(operator, running):
    page = operator.get(URL).content.decode()
    assert "The consumer has not answered yet." in page
    assert "a handler may hold the GIL" in page
    assert "welcome emails · for 12 min" in words(page)
    live = html.unescape(re.search(r'data-mq-live="([^"]*)"', page)[1])
    assert live.startswith(f"{BASE}consumers/{CONSUMER}/stacks.json?queue=emails&asked=")
    silent = operator.get(live).json()
    assert (silent["summary"], silent["parts"]) == ("", {})
    answer(running, stack())
    polled = operator.get(live).json()
    assert polled["summary"] == "1 handler is running."
    assert "line 7, in export" in polled["parts"]["stacks"]
    have = {"HTTP_X_MQ_HAVE": json.dumps(polled["have"])}
    assert operator.get(live, **have).json()["parts"] == {}


def test_what_shows_stays_when_the_answer_has_expired(operator, running, redis_client):
    live = f"{BASE}consumers/{CONSUMER}/stacks.json?queue=emails&asked=1"
    answer(running, stack())
    assert operator.get(live).json()["parts"]
    redis_client.delete(running._keys.stacks_of(CONSUMER))
    assert operator.get(live).json()["parts"] == {}


def test_a_poll_that_is_not_ours_gets_nothing(operator, running):
    for query in ("", "?asked=1", "?queue=emails", "?queue=emails&asked=-1", "?queue=%00&asked=1"):
        response = operator.get(f"{BASE}consumers/{CONSUMER}/stacks.json{query}")
        assert response.status_code in (200, 404), query
        assert not response.json().get("parts"), query


def test_what_is_no_answer_is_as_none(operator, running):
    for text in (b"", b"[]", b"\xff", b'{"stacks":7}', b"x" * 300_000):
        answer(running, text=text)
        assert "has not answered yet" in operator.get(URL).content.decode(), text[:9]


def test_what_another_program_has_written_is_redacted(operator, running):
    answer(running, text=FORGED)
    page = operator.get(URL).content.decode()
    assert "token = [redacted]" in page
    assert "abc123" not in page


def test_a_consumer_that_is_gone_is_told(viewer):
    answer = viewer.get(f"{BASE}consumers/gone/stacks/", follow=True)
    assert "“gone” is gone: it has stopped." in answer.content.decode()


def test_the_page_of_consumers_leads_to_it(viewer, running):
    assert f'href="{URL}"' in viewer.get(f"{BASE}consumers/").content.decode()
