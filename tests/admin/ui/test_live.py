"""Polls get what differs from what the browser shows, and are computed once for all who may see the same."""

import gzip
import json
import re
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.utils import timezone

from mq_django import topics
from mq_django.admin.ui import live, page
from mq_django.conf import get_config
from mq_django.errors import ConnectionLost
from mq_django.inspector import dead_letters
from mq_django.inspector.actions import Outcome
from mq_django.transport import sessions
from mq_django.transport.connections import close_clients
from mq_django.transport.sessions import Pooled, Session
from tests.admin.conftest import BASE
from tests.commands import script_calls
from tests.seeding import beat, bury, publish, tally

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

POLLS = f"{BASE}stats.json"


def shown_by(response):
    """Return the versions that a page shows, as its script sends them."""
    found = re.findall(r'data-mq-part="(\w+)" data-mq-have="([^"]*)"', response.content.decode())
    return json.dumps(dict(found))


def poll(client, have="{}", path=POLLS):
    response = client.get(path, headers={"X-MQ-Have": have})
    assert response.status_code == 200
    return response.json()


def test_a_poll_of_what_the_page_shows_gets_nothing(viewer):
    have = shown_by(viewer.get(BASE))

    answer = poll(viewer, have)

    assert (answer["parts"], answer["rows"], answer["have"]) == ({}, {}, {})
    assert answer["summary"] == "No problems found."


def test_the_time_of_what_is_shown_is_in_the_time_zone_of_the_page(viewer, monkeypatch):
    at = datetime(2026, 1, 14, 12, 30, 5, tzinfo=UTC)
    monkeypatch.setattr("mq_django.admin.ui.text.clock.now_ms", lambda: round(at.timestamp() * 1000))
    with timezone.override("Asia/Kathmandu"):
        page, answer = viewer.get(BASE).content.decode(), poll(viewer)
    assert re.search(r"<span data-mq-note>([^<]*)</span>", page)[1] == answer["at"] == "18:15:05"


def test_a_poll_gets_the_rows_that_have_changed(viewer):
    have = shown_by(viewer.get(f"{BASE}?sort=name"))
    publish("emails", "welcome", 1)

    answer = poll(viewer, have, f"{POLLS}?sort=name")

    # Rows are by name: "default", "emails".
    assert answer["rows"].keys() == {"rows"}
    assert answer["rows"]["rows"].keys() == {"1"}
    assert f'href="{BASE}emails/change/"' in answer["rows"]["rows"]["1"]
    assert "emails" in answer["parts"]["problems"]
    assert poll(viewer, json.dumps({**json.loads(have), **answer["have"]}), f"{POLLS}?sort=name")["rows"] == {}


def test_other_rows_come_as_a_whole(viewer, mq_settings):
    have = shown_by(viewer.get(BASE))
    mq_settings(QUEUES={"emails": {}, "default": {}, "new": {}})

    answer = poll(viewer, have)

    assert answer["rows"] == {}
    assert answer["parts"]["rows"].count("<tr") == 3


def test_versions_that_make_no_sense_get_everything(viewer):
    versions = ["", "nonsense", "[]", "7", '{"rows": 7}', '{"rows": "x.y"}', "[" * 5000]
    parts = {"jobs", "listed", "problems", "rows", "topics"}
    assert [have for have in versions if poll(viewer, have)["parts"].keys() != parts] == []


def test_pages_of_one_queue_get_the_parts_that_have_changed(viewer):
    path = f"{BASE}emails/stats.json"
    first = poll(viewer, path=path)
    assert "tiles" in first["parts"]

    assert poll(viewer, json.dumps(first["have"]), path)["parts"].keys() <= {"charts"}
    publish("emails", "welcome", 1)
    assert "tiles" in poll(viewer, json.dumps(first["have"]), path)["parts"]


def test_long_answers_are_compressed_for_those_who_can_read_that(viewer):
    plain = viewer.get(POLLS)
    packed = viewer.get(POLLS, headers={"Accept-Encoding": "gzip, br"})

    assert plain.get("Content-Encoding") is None
    assert packed["Content-Encoding"] == "gzip"
    assert len(packed.content) < len(plain.content) / 2
    assert json.loads(gzip.decompress(packed.content)).keys() == plain.json().keys()
    assert "Accept-Encoding" in packed["Vary"]


def test_many_viewers_cost_one_computation(viewer, log_in, monkeypatch, redis_client):
    monkeypatch.setattr(live, "SHARED_FOR", 60.0)
    poll(viewer)
    before = script_calls(redis_client)

    for client in (viewer, log_in("view_queue"), viewer):
        poll(client)

    assert script_calls(redis_client) == before
    # Who may do more sees more, and a page that is opened shows what is so now.
    poll(log_in("view_queue", "operate_queue"))
    assert script_calls(redis_client) > before
    publish("emails", "welcome", 1)
    assert "emails" in viewer.get(BASE).content.decode().partition("mq-problems")[2]


def test_what_is_shared_ends(viewer, monkeypatch, mq_settings):
    by_name = f"{POLLS}?sort=name"
    monkeypatch.setattr(live, "SHARED_FOR", 60.0)
    now = [1000.0]
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first = poll(viewer, path=by_name)
    publish("emails", "welcome", 1)
    assert "rows" not in poll(viewer, json.dumps(first["have"]), by_name)["rows"]

    now[0] += 60

    assert poll(viewer, json.dumps(first["have"]), by_name)["rows"]["rows"].keys() == {"1"}
    mq_settings(QUEUES={"other": {}})
    assert poll(viewer)["parts"]["rows"].count("<tr") == 1


def test_tabs_that_ask_at_once_wait_for_one_computation_or_its_error(monkeypatch):
    monkeypatch.setattr(live, "SHARED_FOR", 60.0)
    began, calls, raised = threading.Barrier(5), [], []

    def compute():
        calls.append(1)
        raise ConnectionLost("away")

    def ask():
        began.wait()
        try:
            live.shared("test", compute)
        except ConnectionLost:
            raised.append(1)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(calls), len(raised)) == (1, 5)


def test_a_page_that_cannot_be_shown_reloads_itself(operator, mq_settings, tmp_path):
    mq_settings(CONNECTION=f"unix://{tmp_path}/nobody.sock")

    assert "data-mq-retry" in operator.get(BASE).content.decode()
    assert "data-mq-retry" not in operator.post(f"{BASE}emails/pause/", {"confirmed": "yes"}).content.decode()
    close_clients()


class Processor:
    """A clock, and what this process has computed by it."""

    def __init__(self):
        self.now = self.used = 0.0

    def monotonic(self):
        return self.now

    def process_time(self):
        return self.used


@pytest.fixture
def processor(monkeypatch):
    found = Processor()
    # This time is the test's, so that pages need no patience.
    monkeypatch.setattr(page, "BUSY_AFTER", 0.5)
    monkeypatch.setattr(page, "time", found)
    monkeypatch.setattr(sessions, "time", found)
    return found


def test_a_page_that_computes_for_long_still_gets_its_replies(viewer, monkeypatch, processor):
    publish("emails", "welcome", 1)
    pipelines = Pooled.pipelines

    def compute(transport, commands):
        """Take more time before a round trip than a page may wait for Redis."""
        processor.now += 60
        return pipelines(transport, commands)

    monkeypatch.setattr(Pooled, "pipelines", compute)

    assert viewer.get(BASE).status_code == 200
    assert processor.now >= 120


@pytest.mark.parametrize(("used", "blamed"), [(0.25, "This page took too long to build"), (0.1, "Cannot reach Redis")])
def test_a_process_that_is_busy_does_not_blame_redis(viewer, monkeypatch, caplog, processor, used, blamed):
    def fail(session, _):
        processor.now += 0.6
        processor.used += used
        raise ConnectionLost("Redis did not answer in time")

    monkeypatch.setattr(Session, "send", fail)
    sentences = {"This page took too long to build", "Cannot reach Redis"}

    for path in (BASE, POLLS):
        response = viewer.get(path)
        assert response.status_code == 503
        assert {sentence for sentence in sentences if sentence in response.content.decode()} == {blamed}
    assert ("this web process is busy" in caplog.text) == (used > 0.2)


def test_an_action_of_a_busy_process_does_not_blame_redis(operator, monkeypatch, processor):
    def fail(name, entries):
        processor.now += 0.6
        processor.used += 0.25
        return Outcome(error=ConnectionLost("Redis did not answer in time"))

    bury("emails", "welcome")
    (row,) = operator.get(f"{BASE}emails/dead/").context["rows"]
    monkeypatch.setattr(dead_letters, "redrive", fail)
    fields = {"action": "redrive", "_selected_action": row["ref"], "confirmed": "yes"}
    shown = operator.post(f"{BASE}emails/dead/chosen/", fields, follow=True).content.decode()
    assert "this web process is busy" in shown
    assert "Cannot reach Redis" not in shown


def test_queues_are_found_by_name_and_idle_ones_are_hidden(viewer, mq_settings):
    mq_settings(QUEUES={"mails": {}, "mail-out": {}, "orders": {}}, TOPICS={"events": {}})
    publish("orders", "paid", 1, delay=60)
    tally("mails", {("handled", "welcome"): 3})
    beat("mails", "s1")

    def listed(query):
        return re.findall(r'scope="row"><a href="[^"]*">([^<]*)</a>', viewer.get(f"{BASE}{query}").content.decode())

    # Messages without a consumer are a problem: this one stands first.
    assert listed("") == ["orders", "mail-out", "mails", "events"]
    assert listed("?q=MAIL") == ["mail-out", "mails"]
    assert listed("?hide=idle") == ["orders", "mails", "events"]
    assert listed("?of=s1") == ["mails"]
    assert listed("?of=s1-c0&q=order") == []
    response = viewer.get(f"{BASE}?q=mail")
    assert "2 queues of 3" in response.content.decode()
    assert 'data-mq-live="/admin/mq_django/queue/stats.json?q=mail"' in response.content.decode()
    assert poll(viewer, path=f"{POLLS}?q=mail")["parts"]["rows"].count("<tr") == 2


def test_a_filter_that_finds_nothing_yet_shows_what_it_finds_later(viewer, mq_settings):
    mq_settings(QUEUES={"mails": {}, "orders": {}}, TOPICS={"events": {}})
    topics["events"].group("mailer").subscribe()
    query = "?q=mail&hide=idle"
    page = viewer.get(f"{BASE}{query}")
    have = shown_by(page)
    assert {"rows", "topics", "listed"} <= json.loads(have).keys()
    assert "0 queues of 2" in page.content.decode()

    publish("mails", "welcome", 1)
    topics["events"].publish("paid", 1, on_commit=False)

    parts = poll(viewer, have, f"{POLLS}{query}")["parts"]
    assert "mails</a>" in parts["rows"]
    assert "1 queue of 2" in parts["listed"]
    assert "mailer" in parts["topics"]


def test_the_rows_that_were_used_last_are_kept_up_to_a_size(monkeypatch):
    monkeypatch.setattr(live, "MAX_BYTES", 50_000)
    monkeypatch.setattr(live, "row_cache", live.RowCache())
    used = {"url": "/used/", "name": "used"}
    (first,) = live.LiveRows.of("row", [used], "url").rows
    for number in range(20):
        (shown,) = live.LiveRows.of("row", [{"url": f"/{number}/", "name": f"q{number}" * 1000}], "url").rows
        assert f"q{number}" in shown.html
        assert live.LiveRows.of("row", [used], "url").rows[0] is first

    assert 0 < live.row_cache.size <= 50_000


@pytest.mark.single_server(why="it counts round trips, and each node of a cluster needs its own")
def test_100_queues_and_50_consumers_are_a_small_poll_of_few_round_trips(operator, mq_settings, monkeypatch):
    mq_settings(QUEUES={f"queue_{number:03}": {} for number in range(100)})
    for name in get_config().queues:
        beat(name, consumers=50)
    sent, send = [], Session.send
    monkeypatch.setattr(Session, "send", lambda session, commands: sent.append(1) or send(session, commands))

    for page_path, polls in (("", "stats.json"), ("consumers/", "consumers.json")):
        have = shown_by(operator.get(BASE + page_path))
        sent.clear()
        answer = operator.get(BASE + polls, headers={"X-MQ-Have": have})
        whole = operator.get(BASE + polls, headers={"Accept-Encoding": "gzip"})

        # Of two polls.
        assert len(sent) <= 2 * 7
        assert len(answer.content) < 1024
        assert len(whole.content) < 20 * 1024
