"""The page of all consumers, and what is asked of them there."""

import gc
import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command

from mq_django.conf import get_config
from mq_django.inspector import processes
from mq_django.inspector.consumers import ConsumerView
from mq_django.stores import open_members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.admin.conftest import BASE
from tests.seeding import CONSUMER, beat, keep, publish, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]


def members(queue):
    return open_members(get_config().queue(queue), Pooled(get_client("chores")))


def words(page):
    """Return what a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def work(queue="emails", **told):
    """Let a consumer run the message that is ready, and tell so."""
    (delivery,) = take(queue, 1)
    running = [[delivery.stream, delivery.entry.decode(), 720_000], [0, "1-1", 99_000]]
    members(queue).beat("s1", {"host": "web1", "version": "0.1.0"}, {CONSUMER: {"running": running, **told}})


def test_it_shows_who_consumes_and_what_each_handles(viewer):
    publish("emails", "welcome", 1, message_id="m1")
    work(pid=7, threads=8, handled=1234, failed=2)

    page = words(viewer.get(f"{BASE}consumers/").content.decode())

    assert "1 consumer is running." in page
    assert "web1" in page
    assert "welcome emails · for 12 min" in page
    assert "1,234 2 emails" in page
    assert "process 7 · threads: 8" in page
    # What is no longer there has ended since the heartbeat.
    assert "99 s" not in page
    assert "No running consumers: default" in page
    assert "Quiet" not in page


def test_what_a_consumer_handles_leads_to_the_message(operator):
    publish("emails", "welcome", 1, message_id="m1")
    work()

    page = operator.get(f"{BASE}consumers/").content.decode()
    (link,) = re.findall(rf'<li><a href="({BASE}emails/message/[^"]*)"', page)

    page = operator.get(link).content.decode()
    assert "for 12 min" in page
    assert "Why it is not running" not in page
    (row,) = operator.get(f"{BASE}emails/pending/").context["rows"]
    assert row["running"] == "12 min"


@pytest.mark.parametrize(("what", "said"), [("quiet", "was asked to go quiet"), ("stop", "was asked to stop")])
def test_asking_is_confirmed_told_and_logged_for_each_of_its_queues(operator, what, said):
    beat("emails", consumers=2)
    beat("default", consumers=2)
    address = f"{BASE}consumers/s1-c1/{what}/"

    asking = operator.get(address)
    assert "Messages that are being handled now: 0." in asking.content.decode()
    assert members("emails").beat("s1", {}, {}).asks == {}
    assert operator.post(address).status_code == 200
    assert members("emails").beat("s1", {}, {}).asks == {}

    done = operator.post(address, {"confirmed": "yes"}, follow=True)

    assert f"“s1-c1” {said}" in done.content.decode()
    for queue in ("default", "emails"):
        assert members(queue).beat("s1", {}, {}).asks == {"s1-c1": what}
    assert {entry.object_id for entry in LogEntry.objects.all()} == {"default", "emails"}
    assert all("s1-c1" in entry.get_change_message() for entry in LogEntry.objects.all())


def test_a_supervisor_is_asked_for_all_of_its_consumers(operator):
    beat("emails", consumers=3)

    assert "Stop 3 consumers?" in operator.get(f"{BASE}consumers/s1/stop/").content.decode()
    operator.post(f"{BASE}consumers/s1/stop/", {"confirmed": "yes"})

    (supervisor,) = processes.everybody().supervisors
    assert {process.asked for process in supervisor.processes} == {"stop"}
    assert words(operator.get(f"{BASE}consumers/").content.decode()).count(" asked to stop nothing") == 3


def test_a_supervisor_without_consumers_is_shown_and_can_be_stopped(operator):
    keep("emails")

    page = operator.get(f"{BASE}consumers/").content.decode()
    assert "ops1" in page
    assert "Housekeeping only: emails" in words(page)
    assert f'href="{BASE}consumers/keeper/stop/"' in page
    assert "Stop this supervisor?" in operator.get(f"{BASE}consumers/keeper/stop/").content.decode()
    operator.post(f"{BASE}consumers/keeper/stop/", {"confirmed": "yes"})

    assert members("emails").beat("keeper", {"housekeeping": True}, {}).asks == {"keeper": "stop"}
    assert f'href="{BASE}consumers/keeper/stop/"' not in operator.get(f"{BASE}consumers/").content.decode()


def test_a_queue_that_other_programs_handle_is_no_problem_without_known_consumers(viewer, mq_settings):
    mq_settings(QUEUES={"emails": {"EXTERNAL": True}}, TOPICS={})
    publish("emails", "welcome", 1)
    keep("emails")

    assert "No running consumers: emails" not in words(viewer.get(f"{BASE}consumers/").content.decode())
    overview = words(viewer.get(BASE).content.decode())
    assert "emails handled by other programs" in overview
    assert "No problems found." in overview
    page = words(viewer.get(f"{BASE}emails/change/").content.decode())
    assert "Other programs handle this queue" in page
    assert "Housekeeping only: ops1" in page
    assert "No consumer has sent a heartbeat." in page


def test_what_each_queue_says_of_a_consumer_is_added_up_and_not_kept(monkeypatch):
    for queue in ("emails", "default"):
        members(queue).beat("s1", {}, {f"c{n}": {"handled": 10, "failed": 1} for n in range(20)})
    gc.collect()
    # Those of other tests, of which an error may still refer to one.
    others = {id(one): one for one in gc.get_objects() if type(one) is ConsumerView}
    kept = []

    def read(_receipts):
        kept.append(sum(type(one) is ConsumerView and id(one) not in others for one in gc.get_objects()))
        return {}

    monkeypatch.setattr(processes, "held", read)
    (supervisor,) = processes.everybody().supervisors

    assert [(one.handled, one.failed, one.queues) for one in supervisor.processes] == [
        (20, 2, ["default", "emails"])
    ] * 20
    # One a consumer, and not one for each queue: thousands take longer to collect than to read.
    assert kept == [20]


def test_pages_and_the_command_say_how_many_consumers_they_leave_out(operator, redis_client, monkeypatch, capsys):
    monkeypatch.setattr("mq_django.admin.queue_page.MAX_CONSUMERS", 2)
    monkeypatch.setattr(processes, "MAX_PROCESSES", 2)
    redis_client.hset(members("emails")._keys.consumers, mapping={f"consumer:a{n}": "{}" for n in range(4)})
    beat("emails")

    assert "and 3 more" in words(operator.get(f"{BASE}emails/change/").content.decode())
    page = words(operator.get(f"{BASE}consumers/").content.decode())
    assert "and 3 more consumers, which are not shown" in page
    assert "s1-c0" in page
    call_command("mq", "consumers")
    assert "There are 3 more consumers, which are not shown." in capsys.readouterr().err
    # One that is left out can be asked.
    assert "Stop 1 consumer?" in operator.get(f"{BASE}consumers/a3/stop/").content.decode()


def test_who_is_gone_cannot_be_asked(operator):
    assert operator.get(f"{BASE}consumers/a/b/stop/").status_code in (302, 404)
    for who in ("nobody", "_FF_20"):
        for response in (
            operator.get(f"{BASE}consumers/{who}/stop/", follow=True),
            operator.post(f"{BASE}consumers/{who}/stop/", {"confirmed": "yes"}, follow=True),
        ):
            assert "is gone: it has stopped." in response.content.decode(), who


def test_what_makes_no_sense_is_left_out(viewer, redis_client):
    beat("emails")
    key = get_config().queue("emails").keys.consumers
    for told in ({"running": 7}, {"running": [["x"], [0, 1, 2]]}, {"handled": "x", "state": ["odd"]}):
        redis_client.hset(key, "consumer:s1-c0", json.dumps({"supervisor": "s1", **told}))
        assert "nothing 0 0 emails" in words(viewer.get(f"{BASE}consumers/").content.decode()), told


def test_starvation_names_the_handler_that_holds_all_threads_on_every_page(viewer):
    """The queues, the queue, its message and its consumers tell it."""
    publish("default", "crunch", 1)
    (delivery,) = take("default", 1)
    full = {"threads": ["default", delivery.stream, delivery.entry.decode(), 2_820_000, 2_400_000]}
    for queue, running in (("default", [[delivery.stream, delivery.entry.decode(), 2_820_000]]), ("emails", [])):
        told = {"threads": 4, "busy": [4, 2], "full": full, "running": running}
        members(queue).beat("s1", {"host": "web1"}, {CONSUMER: told})
    publish("emails", "welcome", 1, message_id="m1")
    said = "All 4 threads of its consumers are busy: “crunch” of default for 47 min."

    overview = words(viewer.get(BASE).content.decode())
    queue = words(viewer.get(f"{BASE}emails/change/").content.decode())
    listed = viewer.get(f"{BASE}emails/ready/").content.decode()
    (link,) = set(re.findall(rf'href="({BASE}emails/message/[^"]*)"', listed))

    assert f"emails makes no progress. {said}" in overview
    assert "1 problem found." in overview
    assert f"makes no progress. {said}" in queue
    assert "threads busy: 4/4" in queue
    assert f"Why it is not running: {said}" in words(viewer.get(link).content.decode())
    consumers = words(viewer.get(f"{BASE}consumers/").content.decode())
    assert "threads: 4/4 · coroutines: 2 · started" in consumers


def test_the_progress_of_what_it_handles_is_a_bar_with_its_text(operator, viewer):
    publish("emails", "welcome", 1, message_id="m1")
    work()
    report("emails", "m1", b'{"done":30,"total":120,"note":"<b>cups</b>","at":1}')

    page = operator.get(f"{BASE}consumers/").content.decode()
    (bar,) = re.findall(r"<progress[^>]*>", page)
    assert 'max="1000" value="250" aria-label="Progress" aria-valuetext="25' in bar
    assert "30 of 120" in words(page)
    assert "&lt;b&gt;cups&lt;/b&gt;" in page

    (link,) = re.findall(rf'<li><a href="({BASE}emails/message/[^"]*)"', page)
    page = operator.get(link).content.decode()
    assert 'value="250"' in page
    assert "30 of 120" in words(page)
    # The note may contain data.
    assert "cups" not in viewer.get(link).content.decode()
    assert "30 of 120" in words(viewer.get(link).content.decode())


def report(queue, message_id, text):
    key = get_config().queue(queue).keys.progress(message_id)
    get_client("produce", key=key).hset(key, "progress", text)
