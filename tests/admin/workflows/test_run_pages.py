"""The pages of runs of workflows, and what an operator does with runs."""

import re
from itertools import product

import pytest
from django.contrib.admin.models import LogEntry

from mq_django.conf import get_config
from mq_django.core.flow_graph import FlowGraph
from mq_django.core.jsontext import dumps
from mq_django.core.keys import READY, WorkflowKeys
from mq_django.core.messages import Bury, StepEnd
from mq_django.core.running_handler import Progress, progress_text
from mq_django.inspector import workflow_runs
from mq_django.producers.workflow_steps import open_home
from mq_django.stores.members import Members
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Pooled
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import CONSUMER, beat, dead_entry, end_steps, forced_by_id, start_run, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

NO = Bury(error="ValueError: hunter2 was refused", reason="attempts")
DIAMOND = {1: [], 2: [1], 3: [1], 4: [2, 3]}
YES = {"confirmed": "yes"}


@pytest.fixture
def keys(namespace):
    return WorkflowKeys(namespace, "0")


def page(client, path="", **options):
    response = client.get(f"{BASE}workflows/{path}", **options)
    assert response.status_code == 200
    return main_of(response)


def state(run_id):
    return workflow_runs.run(run_id).state


def test_the_list_has_state_and_progress(viewer):
    failed, running = start_run({1: []}), start_run(DIAMOND, name="shop.flows.report")
    end_steps(failed, NO, 1)
    end_steps(running, StepEnd(), 1)
    shown = page(viewer)
    assert shown.index(running) < shown.index(failed)
    assert "1 run is running." in shown
    assert "1 of 4 steps" in shown
    assert 'value="250"' in shown
    assert 'href="/admin/mq_django/queue/workflows/" aria-current="page"' in shown
    assert running not in page(viewer, "?state=failed")
    assert failed not in page(viewer, "?name=REPORT")
    assert "No run found." in page(viewer, "?name=nothing")


def test_a_step_that_runs_shows_its_progress(operator, redis_client):
    run_id = start_run({1: [], 2: []})
    keys, (first, _) = get_config().queue("default").keys, take("default", 2)
    reported = progress_text(Progress(done=40, total=100, note="rows", attempt=1, at_ms=1))
    redis_client.hset(keys.progress(first.message.id), "progress", reported)
    for path in (f"run/{run_id}/", f"run/{run_id}/steps/"):
        shown = page(operator, path)
        assert 'value="400"' in shown
        assert "40 of 100" in shown
        assert "rows" in shown


def test_the_list_is_paged_by_time(viewer, monkeypatch):
    monkeypatch.setattr("mq_django.admin.run_pages.PER_PAGE", 2)
    ids = [start_run({1: []}) for _ in range(3)]
    first = page(viewer)
    (link,) = re.findall(r'href="(\?after=[^"]*)" rel="next"', first)
    second = page(viewer, link.replace("&amp;", "&"))
    shown = [[run_id for run_id in ids if f"run/{run_id}/" in each] for each in (first, second)]
    assert sorted(map(len, shown)) == [1, 2]
    assert sorted(shown[0] + shown[1]) == sorted(ids)


@pytest.mark.parametrize(("size", "is_live"), [(40, True), (41, False)])
def test_the_steps_of_a_small_run_are_renewed(operator, size, is_live):
    run_id = start_run({number: [] for number in range(1, size + 1)})
    shown = page(operator, f"run/{run_id}/")
    assert shown.count("mq-step-started") == size
    assert ("as they were when this page was loaded" in shown) is not is_live
    response = operator.get(f"{BASE}workflows/run/{run_id}/stats.json")
    parts = {"run_state", "run_graph", "run_time_line", "run_steps"} if is_live else {"run_state"}
    assert response.json()["parts"].keys() == parts
    assert len(response.content) < 80 * 1024


def test_a_graph_links_steps_to_the_one_that_has_added_them(operator):
    run_id, home, graph = start_run({1: []}), open_home("0"), FlowGraph()
    for others in ([], [], [1, 2]):
        graph.wait(graph.add(), others)
    home.write_steps(run_id, graph.records([b"{}"] * 3, first=home.allocate(run_id, 3)))
    end_steps(run_id, StepEnd(added="2-4"), 1)
    shown = page(operator, f"run/{run_id}/")
    (drawn,) = re.findall(r"<svg class=\"mq-graph\".*?</svg>", shown, re.DOTALL)
    assert drawn.count('class="mq-edge"') == 4
    assert [step.before for step in workflow_runs.graph_steps(workflow_runs.run(run_id))] == [[], [1], [1], [2, 3]]


def test_a_graph_leads_to_messages_and_dead_letters(operator):
    run_id = start_run(DIAMOND)
    end_steps(run_id, StepEnd(), 1)
    end_steps(run_id, NO, 2)
    shown = page(operator, f"run/{run_id}/")
    (graph,) = re.findall(r"<svg class=\"mq-graph\".*?</svg>", shown, re.DOTALL)
    assert graph.count('class="mq-edge"') == 4
    assert "<title" in graph
    assert "<desc" in graph
    letter = f"{BASE}default/message/dead/{dead_entry('default')}/"
    assert f'<a class="mq-step mq-step-failed" href="{letter}" aria-label="Step 2, shop.tasks.load: failed.' in graph
    assert f'<a class="mq-step mq-step-started" href="{BASE}default/message/pending/ready.' in graph
    assert '<g class="mq-step mq-step-waiting">' in graph
    # Everything is in the table as well.
    table = shown.partition("</svg>")[2]
    assert letter in table
    assert "2, 3" in re.sub(r"</?bdi>", "", table) or "2-3" in table
    assert operator.get(letter).status_code == 200


def test_a_run_of_many_steps_is_folded_by_state(operator):
    run_id = start_run({number: [] for number in range(1, 301)}, policy="continue")
    end_steps(run_id, NO, *range(1, 21))
    shown = page(operator, f"run/{run_id}/")
    assert 'class="mq-graph"' not in shown
    assert shown.count("<details") == 2
    assert f"{BASE}default/message/dead/" in shown
    (more,) = re.findall(r'href="([^"]*\?state=failed)"', shown)
    listed = main_of(operator.get(more))
    assert listed.count('scope="row"') == 20
    everything = page(operator, f"run/{run_id}/steps/")
    assert everything.count('scope="row"') == 100
    assert 'href="?after=100"' in everything


def test_a_page_of_many_steps_is_bounded(operator, monkeypatch):
    run_id = start_run({number: [] for number in range(1, 2_001)})
    sent = []

    def pipelines(self, wanted, original=Pooled.pipelines):
        sent.append(sum(map(len, wanted)))
        return original(self, wanted)

    monkeypatch.setattr(Pooled, "pipelines", pipelines)
    for path, size in ((f"run/{run_id}/", 30_000), (f"run/{run_id}/steps/", 120_000), ("", 30_000)):
        sent.clear()
        response = operator.get(f"{BASE}workflows/{path}")
        assert len(response.content) < size
        assert len(sent) < 30
        assert sum(sent) < 250
    poll = operator.get(f"{BASE}workflows/run/{run_id}/stats.json")
    assert len(poll.content) < 5000


def test_a_poll_has_what_has_changed(viewer):
    run_id = start_run(DIAMOND)
    first = viewer.get(f"{BASE}workflows/run/{run_id}/stats.json").json()
    assert set(first["parts"]) == {"run_state", "run_graph", "run_time_line", "run_steps"}
    assert first["summary"] == "The run is running."
    assert set(viewer.get(f"{BASE}workflows.json").json()["parts"]) == {"runs"}
    assert viewer.get(f"{BASE}workflows/run/0gone0gone/stats.json").status_code == 404


def test_a_run_is_cancelled(operator):
    run_id = start_run(DIAMOND)
    url = f"{BASE}workflows/run/{run_id}/cancel/"
    assert "Cancel this run?" in operator.get(url).content.decode()
    assert state(run_id) == "running"
    assert "The run was cancelled." in operator.post(url, YES, follow=True).content.decode()
    assert state(run_id) == "cancelled"
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.get_change_message()) == (f"run {run_id}", "Cancelled the run")
    assert "The run had ended: it is cancelled." in operator.post(url, YES, follow=True).content.decode()
    assert LogEntry.objects.count() == 1


def test_the_log_leads_to_the_run(operator):
    run_id = start_run(DIAMOND)
    operator.post(f"{BASE}workflows/run/{run_id}/cancel/", YES)
    (history,) = re.findall(r'href="([^"]*/history/)"', page(operator, f"run/{run_id}/"))
    assert "Cancelled the run" in operator.get(history).content.decode()
    response = operator.get(f"/admin/{LogEntry.objects.get().get_admin_url().removeprefix('/admin/')}", follow=True)
    assert response.redirect_chain[-1][0] == f"{BASE}workflows/run/{run_id}/"


def test_a_run_is_retried_with_its_dead_letters(operator):
    run_id = start_run({1: [], 2: []}, policy="continue")
    end_steps(run_id, NO, 1, 2)
    assert state(run_id) == "failed"
    url = f"{BASE}workflows/run/{run_id}/retry/"
    assert "2 steps have failed." in operator.get(url).content.decode()
    answer = operator.post(url, YES, follow=True).content.decode()
    assert "2 failed steps run again." in answer
    assert state(run_id) == "running"
    assert len(take("default", 9)) == 2
    assert LogEntry.objects.get().get_change_message() == "Retried the run: 2 failed steps run again"


def test_a_retry_that_has_no_time_left_says_so(operator, monkeypatch):
    monkeypatch.setattr("mq_django.admin.run_pages.RETRYING", -1.0)
    run_id = start_run({1: []})
    end_steps(run_id, NO, 1)
    answer = operator.post(f"{BASE}workflows/run/{run_id}/retry/", YES, follow=True).content.decode()
    assert "There was no time for all failed steps" in answer


def test_a_failed_step_is_skipped(operator):
    run_id = start_run({1: [], 2: [1]})
    end_steps(run_id, NO, 1)
    url = f"{BASE}workflows/run/{run_id}/skip/1/"
    assert f'href="{url}"' in page(operator, f"run/{run_id}/")
    assert "Skip this step?" in operator.get(url).content.decode()
    assert "Step 1 was skipped." in operator.post(url, YES, follow=True).content.decode()
    assert [step.state for step in workflow_runs.graph_steps(workflow_runs.run(run_id))] == ["passed", "started"]
    assert LogEntry.objects.get().get_change_message() == "Skipped step 1"
    for step in ("1", "2", "9", "x", "9" * 5000):
        answer = operator.post(f"{BASE}workflows/run/{run_id}/skip/{step}/", YES, follow=True)
        assert "This step has not failed" in answer.content.decode()
    assert LogEntry.objects.count() == 1


def test_one_failed_step_of_several_is_retried(operator):
    run_id = start_run({1: [], 2: []}, policy="continue")
    end_steps(run_id, NO, 1, 2)
    url = f"{BASE}workflows/run/{run_id}/retry/2/"
    assert f'href="{url}"' in page(operator, f"run/{run_id}/")
    assert "Retry step 2?" in operator.get(url).content.decode()
    assert "Step 2 runs again." in operator.post(url, YES, follow=True).content.decode()
    states = [step.state for step in workflow_runs.graph_steps(workflow_runs.run(run_id))]
    assert (states, state(run_id)) == (["failed", "started"], "running")
    assert [each.message.id for each in take("default", 9)] == [f"w:{run_id}.2.1"]
    assert LogEntry.objects.get().get_change_message() == "Retried step 2"
    assert "This step has not failed: it cannot be retried." in operator.post(url, YES, follow=True).content.decode()


def test_the_message_of_a_started_step_is_cancelled(operator):
    run_id = start_run({1: [], 2: [1]})
    url = f"{BASE}workflows/run/{run_id}/cancel/1/"
    assert f'href="{url}"' in page(operator, f"run/{run_id}/")
    assert "Cancel step 1?" in operator.get(url).content.decode()
    assert "Its consumer was asked to cancel the message." in operator.post(url, YES, follow=True).content.decode()
    assert forced_by_id("default") == {f"w:{run_id}.1.1": False}
    assert LogEntry.objects.get().get_change_message() == "Cancelled step 1"
    waits = operator.post(f"{BASE}workflows/run/{run_id}/cancel/2/", YES, follow=True)
    assert "This step has no message that could be cancelled." in waits.content.decode()


def test_open_steps_say_what_they_wait_for(operator):
    run_id = start_run(DIAMOND)
    assert "No consumer of this queue is running." in page(operator, f"run/{run_id}/")
    beat("default")
    assert "Ready: the next free thread will take it." in page(operator, f"run/{run_id}/")
    end_steps(run_id, StepEnd(), 1)
    shown = page(operator, f"run/{run_id}/")
    assert "Waits for step 2, load, and 1 more step." in shown
    assert f"{BASE}default/message/pending/" in shown or f"{BASE}default/message/ready/" in shown
    end_steps(run_id, NO, 2)
    failed = page(operator, f"run/{run_id}/")
    assert "Failed: see its dead letter." in failed
    assert "Does not start, because the run has ended." in failed


def test_the_first_argument_of_a_step_needs_the_permission(operator, viewer, redis_client, keys):
    run_id = start_run({1: []})
    data = {"args": [None, "a<b>.csv"], "kwargs": {}, "references": {"0": 7}}
    body = {"queue": "default", "name": "step:shop.tasks.load", "data": data}
    redis_client.hset(keys.bodies(run_id), 1, dumps(body))
    assert '<code class="mq-argument"><bdi>a&lt;b&gt;.csv</bdi></code>' in page(operator, f"run/{run_id}/")
    assert "b&gt;.csv" not in page(viewer, f"run/{run_id}/")


def test_a_running_step_leads_to_its_stack(operator):
    run_id = start_run({1: []})
    (delivery,) = take("default", 1)
    running = [[READY, delivery.entry.decode(), 125_000]]
    described = {CONSUMER: {"host": "host-1", "pid": 7, "threads": 8, "running": running}}
    Members(get_config().queue("default"), open_transport("produce")).beat("s1", {"host": "host-1"}, described)
    shown = page(operator, f"run/{run_id}/")
    assert "Has run for 2 min on host-1." in shown
    assert f'href="{BASE}consumers/{CONSUMER}/stacks/#handler-w_3A{run_id}.1.1"' in shown


def test_a_time_line_and_the_table_have_the_same_times(operator, redis_client):
    run_id = start_run({1: [], 2: [1]})
    began_ms = workflow_runs.step(run_id, 1).began_ms
    task = {"name": "shop.tasks.load", "queue": "default", "data": None}
    attempt = {"status": "SUCCESSFUL", "attempt": 1, "entry": "1-1", "started": began_ms + 90_000}
    lines = [task, attempt | {"consumer": "c", "finished": began_ms + 95_000}]
    end_steps(run_id, StepEnd(), 1)
    redis_client.set(get_config().queue("default").keys.result(f"w:{run_id}.1.1"), b"\n".join(map(dumps, lines)))
    redis_client.hset(
        WorkflowKeys(get_config().namespace, "0").steps(run_id), 1, f"D 0 0 {began_ms + 95_000}000 1 t {began_ms}"
    )
    shown = page(operator, f"run/{run_id}/")
    (drawn,) = re.findall(r"<svg class=\"mq-time-line\".*?</svg>", shown, re.DOTALL)
    assert drawn.count("<g>") == 2
    assert "<title>1 shop.tasks.load: waited 90 s, ran 5.0 s, took 95 s</title>" in drawn
    assert re.search(r">90 s</td>\s*<td[^>]*>5.0 s</td>\s*<td[^>]*>95 s</td>", shown)
    assert " style=" not in drawn


def test_a_run_that_is_gone_is_told(operator):
    for run_id, what in product(
        ("0gone0gone", "<b>"), ("", "steps/", "cancel/", "retry/", "skip/1/", "retry/1/", "cancel/1/")
    ):
        answer = operator.get(f"{BASE}workflows/run/{run_id}/{what}", follow=True)
        assert "There is no run" in answer.content.decode()
        assert "<b>”" not in answer.content.decode()


def test_a_queue_may_be_called_workflows(operator, mq_settings):
    mq_settings(QUEUES={"workflows": {}, "run": {}})
    assert "Ready" in main_of(operator.get(f"{BASE}workflows/ready/"))
    assert operator.get(f"{BASE}workflows/change/").context["queue"] == "workflows"


#: What another program may write: by key, field and value.
NONSENSE = {
    "texts": ("run", {"name": b"<b>\x00\xff\xe2\x80\xae", "policy": "<i>", "unique": b"\xff", "failure": b"1 <b>\xff"}),
    "numbers": ("run", dict.fromkeys(("total", "done", "failed", "next", "started", "finished", "lasts"), "9" * 5000)),
    "large numbers": ("run", {"next": 10**9, "total": 10**9, "done": 10**9}),
    "a state": ("run", {"state": "<b>"}),
    "records": ("steps", {1: b"\xff", 2: "Q 1 1 1 1 t 1", 3: "D 0 0 99999999999999999 1 t 99999999999999999"}),
    "bodies": ("bodies", {1: b"\xff", 2: "[" * 1000, 3: '{"name":"step:<b>","queue":"../x"}', 4: '{"queue":[1]}'}),
    "a circle": ("after", {2: "1,3", 3: "2", 4: "1-4"}),
    "edges": ("after", {1: "1-999999999", 2: "9-1,x", 3: b"\xff", 4: ",".join(["1-4"] * 50)}),
}


def test_nonsense_in_the_keys_of_a_run_fails_no_page(operator, redis_client, keys, monkeypatch):
    failed = []
    for place, (kind, fields) in NONSENSE.items():
        run_id = start_run(DIAMOND, policy="continue")
        end_steps(run_id, StepEnd(), 1)
        end_steps(run_id, NO, 2)
        redis_client.hset(getattr(keys, kind)(run_id), mapping=fields)
        redis_client.hset(get_config().queue("default").keys.dead_ids, f"w:{run_id}.2.1", b"../\xff")
        shown = f"run/{run_id}/"
        paths = ("", shown, f"{shown}steps/", f"{shown}stats.json", f"{shown}retry/")
        answers = {path: operator.get(f"{BASE}workflows/{path}") for path in paths}
        with monkeypatch.context() as patches:
            patches.setattr(workflow_runs, "MAX_GRAPH", 3)
            answers["without a graph"] = operator.get(f"{BASE}workflows/{shown}")
        for path, response in answers.items():
            if response.status_code not in (200, 302) or "<b>\x00" in response.content.decode():
                failed.append((place, path, response.status_code))
        if operator.post(f"{BASE}workflows/run/{run_id}/retry/", YES).status_code != 302:
            failed.append((place, "retry"))
    assert failed == []


def test_nonsense_in_the_lists_fails_no_page(operator, redis_client, keys):
    run_id = start_run({1: []})
    redis_client.zadd(keys.index, {b"\xff<b>": "inf", "": 5, "../..": -1, "0stringrun": 6})
    redis_client.set(keys.run("0stringrun"), "x")
    assert run_id in page(operator)
    redis_client.delete(keys.index)
    redis_client.set(keys.index, "x")
    assert operator.get(f"{BASE}workflows/").status_code == 503
