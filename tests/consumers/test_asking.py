"""Consumers that are asked to go quiet or to stop, and what they tell of themselves."""

from mq_django.conf import get_config
from mq_django.inspector import processes
from mq_django.inspector.processes import ask_for_stacks, read_answer
from mq_django.producers import queues, topics
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import on_cluster
from tests.waiting import wait_until


def supervisor():
    """Return what the only tree tells of itself, or None."""
    found = [one for one in processes.everybody().supervisors if one.alive]
    return found[0] if found else None


def living(count):
    """Return the consumers of the only tree when there are so many."""
    found = supervisor()
    return found.processes if found and len(found.processes) == count else []


def running():
    return [item for process in living(1) for item in process.running]


def test_a_consumer_tells_what_it_handles_and_a_quiet_one_takes_nothing_more(trees, publish, history, store, tmp_path):
    tree = trees("--processes", "1", "--threads", "2")
    message_id = publish(["wait", str(tmp_path / "go")])

    (item,) = wait_until(running)
    assert (item.queue, item.message.id, item.message.name) == ("default", message_id, "act")
    assert 0 <= item.ms < 60_000
    before = item.ms
    wait_until(lambda: (running() or [item])[0].ms > before + 200)
    publish(["raise", "no"], queue="emails")
    wait_until(lambda: living(1) and living(1)[0].failed >= 1)

    (one,) = living(1)
    assert processes.ask(one.id, "quiet") == ["default", "emails"]
    wait_until(lambda: living(1) and living(1)[0].state == "quiet")
    wait_until(lambda: "is quiet" in tree.logged())
    publish()
    (tmp_path / "go").touch()
    wait_until(lambda: living(1) and not running())
    wait_until(lambda: living(1)[0].handled == 1)

    assert history.counts() == {message_id: 1}
    assert store.depths().ready == 1
    assert [process.id for process in living(1)] == [one.id]
    assert tree.stop() == 0


def test_a_supervisor_that_is_asked_to_stop_finishes_and_ends_and_its_idle_consumers_are_quiet_at_once(
    trees, publish, history, store, redis_client, tmp_path
):
    tree = trees("--processes", "2", "--threads", "1")
    held = publish(["wait", str(tmp_path / "go")])
    history.wait_for("start")
    found = wait_until(lambda: living(2) and supervisor())

    assert processes.ask(found.id, "quiet") == found.queues
    wait_until(lambda: [process.state for process in living(2)] == ["quiet", "quiet"])
    # One of them was waiting for a message.
    for queue in ("default", "emails"):
        publish(queue=queue)
        assert open_store(get_config().queue(queue), Pooled(get_client("produce"))).depths().ready == 1
    assert processes.ask(found.id, "stop") == found.queues
    # Asked again it is not hurried.
    processes.ask(found.id, "stop")
    wait_until(lambda: "waiting for running handlers" in tree.logged() or "was asked to stop" in tree.logged())
    (tmp_path / "go").touch()

    assert tree.wait(20) == 0
    assert history.counts("start") == history.counts() == {held: 1}
    assert redis_client.hgetall(store.keys.consumers) == {}
    assert processes.ask(found.id, "stop") == []


def test_other_stores_tell_answer_and_obey_as_well(trees, history, namespace, tmp_path):
    rsmq = {"STORE": "rsmq", "NAMESPACE": on_cluster.tag(f"{namespace}:r")}
    tree = trees(
        "--processes", "1", "--threads", "2", "default", "news:readers", QUEUES={"default": rsmq}, TOPICS={"news": {}}
    )
    wait_until(lambda: living(1))
    for where in (queues["default"], topics["news"]):
        where.publish("act", {"do": [["wait", str(tmp_path / "go")]]})

    wait_until(lambda: [item.message.name for item in running()] == ["act"] * 2)
    (one,) = living(1)
    request = ask_for_stacks(one.id, one.queues)
    answer = wait_until(lambda: read_answer(request))
    assert sorted((found.queue, found.frames[-1].function) for found in answer.stacks) == [
        ("default", "_wait_for"),
        ("news:readers", "_wait_for"),
    ]
    processes.ask(one.id, "stop")
    wait_until(lambda: living(1) and living(1)[0].state == "stopping")
    (tmp_path / "go").touch()
    assert tree.wait(20) == 0
    assert len(history.lines("effect")) == 2
