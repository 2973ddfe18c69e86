"""Operators see where each handler is: of real trees, whose processes answer, or cannot."""

from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django.inspector import processes
from mq_django.inspector.processes import WAIT, StackRequest, ask_for_stacks, find_process, read_answer
from mq_django.management import process_verbs
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import command
from tests.waiting import wait_until

pytestmark = pytest.mark.versions

HANDLERS = "tests/consumers/project/handlers.py"


def consumer(count=1):
    """Return the id of a consumer of the only tree when its supervisor has announced what it runs."""

    def announced():
        alive = [one for one in processes.everybody().supervisors if one.alive]
        found = [process for one in alive for process in one.processes if len(process.running) >= count]
        return found[0].id if found else None

    return wait_until(announced)


def ask(who):
    _, process = find_process(who)
    return ask_for_stacks(who, process.queues)


def stacks(who):
    """Return the stacks of a consumer by the messages' ids; on a busy machine an answer may take longer than WAIT."""
    request = ask(who)
    answer = wait_until(lambda: read_answer(request))
    return {one.id: one for one in answer.stacks}


def functions(stack):
    return [frame.function.rpartition(".")[2] for frame in stack.frames]


def test_threads_and_coroutines_show_where_they_are(
    trees, publish, history, redis_client, store, tmp_path, monkeypatch
):
    tree = trees("--processes", "1", "--threads", "2", QUEUES={"default": {"VISIBILITY_TIMEOUT": 4}})
    first = publish(["nap", 3600])
    history.wait_for("start")
    second = publish(["sleep", 3600], name="aact")
    history.wait_for("start", 2)
    who = consumer(2)
    assert not redis_client.exists(store.keys.stacks, store.keys.stacks_of(who))

    found = stacks(who)
    assert [*found] == [first, second]
    thread, coroutine = found.values()
    assert (thread.kind, thread.queue, thread.name) == ("thread", "default", "act")
    assert functions(thread) == ["act", "_nap"]
    assert {frame.file for frame in thread.frames} == {HANDLERS}
    assert thread.frames[-1].code in ("time.sleep(0.01)", "while time.monotonic() < until:")
    assert (coroutine.kind, coroutine.name) == ("coroutine", "aact")
    assert functions(coroutine) == ["act_async", "sleep"]
    assert coroutine.frames[0].code == "await asyncio.sleep(argument)"
    assert 0 < thread.ms < 120_000
    assert tree.logged().count("ERROR") == 0

    # Several operators get an answer each.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(stacks, [who] * 8))
    assert [[*each] for each in answers] == [[first, second]] * 8

    # Without its notification a heartbeat brings the request.
    asking = command("stacks_ask", keys=[store.keys.stacks, store.keys.consumers], args=[who, 60_000, "nobody-listens"])
    (asked,) = open_transport("produce", store.config.connection).pipeline([asking])
    request = StackRequest(consumer=who, queue="default", asked_ms=int(asked))
    answer = wait_until(lambda: read_answer(request))
    assert [one.id for one in answer.stacks] == [first, second]

    # A handler that holds the GIL is named by what its supervisor knows.
    deaf = publish(["wait", str(tmp_path / "go")], ["gil", 3600])
    history.wait_for("start", 3)
    consumer(3)
    (tmp_path / "go").touch()
    wait_until(lambda: read_answer(ask(who), seconds=0.5) is None)
    monkeypatch.setattr(process_verbs, "WAIT", 0.5)
    out = StringIO()
    with pytest.raises(CommandError, match=f"{who} did not answer within .* s. A handler may hold the GIL"):
        call_command("mq", "consumers", "--stacks", who, stdout=out)
    assert deaf in out.getvalue()


def test_who_waits_for_an_answer_does_so_for_a_few_seconds():
    assert WAIT <= 3.0
