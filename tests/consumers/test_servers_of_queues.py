"""Queues and topics with a server of their own: `runconsumer` handles them beside the others."""

import pytest

from mq_django import inspector, queues, topics
from mq_django.consumers.supervisor.supervisor import make_trimmers
from mq_django.errors import ConnectionLost
from mq_django.inspector import message_lists, plans, processes
from mq_django.rsmq import RSMQ
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from tests import on_cluster
from tests.consumers.trees import kill
from tests.waiting import wait_until

APART = "emails"


@pytest.fixture
def other():
    with PrivateServer() as server:
        yield server


@pytest.fixture
def apart(other):
    """Settings with one queue and one topic on another server."""
    return {
        "QUEUES": {"default": {}, APART: {"CONNECTION": other.url, "VISIBILITY_TIMEOUT": 5}},
        "TOPICS": {"news": {"CONNECTION": other.url, "VISIBILITY_TIMEOUT": 5}},
    }


def names_on(client, namespace):
    return {key.decode().split("}")[0].split("{")[-1] for key in client.scan_iter(f"{namespace}:*{{*")}


def test_messages_of_both_servers_are_handled_whatever_happens_to_one(
    trees, publish, history, apart, other, redis_client, namespace, tmp_path
):
    tree = trees("--processes", "1", "--threads", "4", **apart)
    for queue in ("default", APART):
        publish(queue=queue)
        publish(queue=queue, delay=0.2)
        publish(["retry", 3600], queue=queue)
    topics["news"].publish("act", {"do": []})
    history.wait_for("effect", 7)
    assert sorted(line["queue"] for line in history.lines("effect")) == ["default"] * 3 + [APART] * 3 + ["news:readers"]
    assert names_on(redis_client, namespace) == {"default"}
    assert names_on(get_client("inspect", other.url), namespace) == {APART, "news"}

    # One that is down stops no queue of another.
    other.kill()
    with pytest.raises(ConnectionLost):
        queues[APART].publish("act", {})
    for number in range(3):
        publish()
        publish(delay=0.3)
        history.wait_for("effect", 7 + 2 * (number + 1))
    other.start()
    publish(queue=APART)
    history.wait_for("effect", 14)
    assert set(history.counts().values()) == {1}

    # A dead process is reclaimed from on both. What ran in it runs alone, one after another.
    go = tmp_path / "go"
    held = [publish(["once", ["wait", str(go)]], queue=queue) for queue in ("default", APART)]
    wait_until(lambda: history.counts("start").keys() >= set(held))
    (child,) = tree.children()
    kill(child)
    wait_until(lambda: sum(history.counts("start")[message_id] for message_id in held) > 2)
    go.touch()
    wait_until(lambda: history.counts().keys() >= set(held))

    # And a supervisor is asked to stop once: the requests are in each queue, and the first stop is read while others
    # still have this one.
    go.unlink()
    held = [publish(["wait", str(go)], queue=queue) for queue in ("default", APART)]
    wait_until(lambda: history.counts("start").keys() >= set(held))
    (supervisor,) = (one for one in processes.everybody().supervisors if one.alive)
    processes.ask(supervisor.id, "quiet")
    wait_until(lambda: "quiet" in tree.logged())
    assert processes.ask(supervisor.id, "stop") == ["default", APART, "news:readers"]
    go.touch()
    assert tree.wait(20) == 0
    # A second request would have handed the running messages back.
    assert history.counts().keys() >= set(held)
    assert "Traceback" not in tree.logged()


def test_it_starts_while_one_server_cannot_be_reached(trees, publish, history, apart, other):
    other.stop()
    tree = trees(**apart)
    publish()
    history.wait_for("effect")
    assert "Still trying" in tree.logged()


def test_the_read_side_shows_the_queues_of_all_servers(mq_settings, apart, other):
    mq_settings(**apart)
    for name in ("default", APART):
        queues[name].publish("act", {})
        queues[name].publish("act", {}, delay=60)
    topics["news"].publish("act", {})
    shown = {view.name: view for view in inspector.overview()}
    assert {shown[name].ready for name in ("default", APART)} == {1}
    assert [view.length for view in inspector.topics.topics()] == [1]
    assert message_lists.messages(APART, "dead", limit=5).rows == []
    assert plans.schedules(APART)[1] == []
    assert inspector.queue(APART).delayed == 1
    other.kill()
    shown = {view.name: view for view in inspector.overview()}
    assert shown["default"].ready == 1
    assert "Cannot reach" in shown[APART].error
    (news,) = inspector.topics.topics()
    assert "Cannot reach" in news.error


def test_each_service_knows_its_server(mq_settings, apart, other):
    mq_settings(**{**apart, "TOPICS": {"log": {}, **apart["TOPICS"]}})
    trimmers = {trimmer.name: trimmer.connection for trimmer in make_trimmers()}
    assert trimmers == {"trimmer (log)": "", "trimmer (news)": other.url}


def test_rsmq_queues_may_be_on_another_server(mq_settings, other, namespace):
    mq_settings(QUEUES={"default": {}, "mails": {"STORE": "rsmq", "NAMESPACE": namespace, "CONNECTION": other.url}})
    queues["mails"].publish("act", {})
    there = RSMQ(on_cluster.tag(namespace), connection=other.url)
    assert there.list_queues() == {"mails"}
    assert there.receive("mails") is not None
    assert RSMQ(on_cluster.tag(namespace)).list_queues() == set()
