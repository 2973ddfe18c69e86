"""The commands that the documentation has for `runconsumer` suffice, and each is needed."""

from pathlib import Path

import pytest
from django.db import transaction

from mq_django import handler, queues, subscriber, topics
from mq_django.conf import get_config
from mq_django.consumers.processes import Grace
from mq_django.consumers.service import by_server
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.supervisor import preflight
from mq_django.consumers.supervisor.chores import WorkflowService
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.reclaimer import Evidence
from mq_django.consumers.supervisor.services import Listener, ServerServices
from mq_django.consumers.supervisor.supervisor import make_trimmers
from mq_django.consumers.supervisor.worker_set import WorkerStates
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.core.messages import Bury, Retry
from mq_django.inspector import jobs
from mq_django.observability.problem_watch import ProblemWatcher, RunRepairer
from mq_django.observability.queue_metrics import measure
from mq_django.transport import scripts
from mq_django.workflows import chain
from tests.outbox.relays import relay, run
from tests.testapp import tasks
from tests.users import commands_in, granted_to, line_of, noting_commands, user
from tests.waiting import wait_until

pytestmark = pytest.mark.single_server(why="a user is made on one server")

QUEUES = {
    "default": {},
    "emails": {"HISTORY": 60, "RATE_LIMIT": "1000/s"},
    "ordered": {"ORDERED": True},
    "full": {"MAX_DEPTH": 9, "RESULT_TTL": 0},
    "payments": {"PARTITIONS": 3, "CONCURRENCY": 2},
}
TOPICS = {"orders": {"RETENTION_COUNT": 1000}, "events": {"PARTITIONS": 3}}
HANDLED = ("emails", "ordered", "payments", "orders:billing", "events:billing")

#: Only for people, in the admin and with commands: count, seek, unsubscribe.
OF_PEOPLE = {"entries_before", "topic_seek", "topic_unsubscribe"}


def supervise(parts):
    """Run each service of a supervisor, also those of projects that need them."""
    announcement, nothing = Announcement("s1", {"pid": 1}, {"c1": {"pid": 2}}), lambda *_: None
    (share,) = by_server(parts).values()
    states = WorkerStates(range(len(parts)), nothing)
    server = ServerServices(share, states, "s1", announce=lambda: announcement, evicted=nothing, asked=nothing)
    server.reclaimer.consumer_exited("c9", Evidence())
    for service in (*server.services, *make_trimmers(), WorkflowService(parts), ProblemWatcher(), RunRepairer()):
        if not isinstance(service, Listener):
            service.run_once()
    server.heartbeat.leave("s1")


def consume(parts, count):
    """Handle messages as a consumer process does."""
    shared_state = SharedState.create(slots(2))
    consumer = Consumer("c1", parts, threads=2, shared_state=shared_state)
    consumer.start()
    try:
        wait_until(lambda: consumer.settled() >= count)
    finally:
        assert consumer.stop(Grace(60))
        shared_state.close()


def publish(outcomes):
    """Publish a message for each outcome to each queue and topic, and write one into the outbox."""
    for data in outcomes:
        for name in ("emails", "ordered", "payments"):
            queues[name].publish("pay", data, key="k")
        for name in TOPICS:
            topics[name].publish("pay", data)
    queues["emails"].publish("pay", "acked", delay=3600)
    with transaction.atomic():
        queues["emails"].publish("pay", "acked", outbox=True)
    run(relay("default"))
    chain(tasks.note.using(queue_name="emails"), tasks.note.using(queue_name="emails")).start()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("handlers")
def test_the_commands_of_runconsumer_suffice_and_each_is_needed(mq_settings, redis_client, redis_url, namespace):
    outcomes = {"acked": None, "retried": Retry(), "buried": Bury("no")}
    for name in ("emails", "ordered", "payments"):
        handler(name, "pay")(lambda message: outcomes[message.data])
    for topic in TOPICS:
        subscriber(topic, group="billing", name="pay")(lambda message: outcomes[message.data])
    needed = set()
    with user(redis_client, redis_url, [*line_of("consumer"), f"~{namespace}:*", f"&{namespace}:*"]) as url:
        mq_settings(CONNECTION=url, QUEUES=QUEUES, TOPICS=TOPICS)
        parts = [part for name in HANDLED for part in get_config().queue(name).each_part]
        with noting_commands(redis_client, needed):
            preflight.with_known_partitions(parts)
            preflight.examine_servers(parts)
            supervise(parts)
            publish(outcomes)
            consume(parts, 17)
            supervise(parts)
            assert jobs.begin("emails", "delete", "delayed", who="me").word == "begun"
            supervise(parts)
            # With --metrics-port.
            assert measure().queues
    granted = granted_to("consumer")
    assert sorted(granted) == sorted(needed | granted_to("web"))

    # They suffice for all other scripts that a consumer may run, too.
    folder = Path(scripts.__file__).parent / "lua"
    names = {path.stem for path in folder.glob("*.lua") if not path.stem.startswith("rsmq_")}
    assert {name for name in names if commands_in(name) - granted} == OF_PEOPLE
