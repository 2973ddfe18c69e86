"""What one queue raises, whatever it is, does not reach the others: in every service."""

import inspect
import logging
import math
from contextlib import suppress
from importlib import import_module
from itertools import product
from pkgutil import walk_packages

import pytest

import mq_django.consumers
from mq_django.conf import get_config
from mq_django.consumers.decisions import Evidence
from mq_django.consumers.processes import Grace
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import Receipt, Running, SharedState
from mq_django.consumers.supervisor.chores import HistoryTrimmer, JobRunner, Trimmer, WorkflowService
from mq_django.consumers.supervisor.heartbeat import Announcement, Heartbeat, HeartbeatCallbacks
from mq_django.consumers.supervisor.promoter import Promoter
from mq_django.consumers.supervisor.reclaimer import Reclaimer
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.consumers.supervisor.services import AnnouncedReleaser, Extender
from mq_django.consumers.worker.breakers import Cancels
from mq_django.consumers.worker.consumer import Consumer, StepService, slots
from mq_django.consumers.worker.dispatcher import Isolation, QuarantineFetcher
from mq_django.consumers.worker.main import OrphanHeartbeat
from mq_django.consumers.worker.progress import Canceller, ProgressReporter, Releaser, RunningTasks, StreamSender
from mq_django.consumers.worker.resting import RestingQueues
from mq_django.consumers.worker.settler import SettleService
from mq_django.core.keys import WorkflowKeys
from mq_django.core.schedules import Scheduled, every
from mq_django.errors import ConnectionLost, WrongKeyType
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.seeding import publish

#: Services that serve no queue, or one alone. For partitions of one see worker/test_partition_fetcher.py.
ALONE = {"Fetcher", "HealthServer", "Listener", "PartitionFetcher", "SystemdNotifier", "Timekeeper"}
#: Services of databases, which are tried in tests/outbox and tests/inbox, and of this process.
ALONE |= {"OutboxService", "InboxTrimmer", "Batches"}
#: By the class of a service, what makes one over two queues and says which attributes hold what it keeps for each.
CASES = {}


class Broken:
    """Stands in for what a service keeps for a queue: each call is noted, and raises when it is to."""

    def __init__(self, name, calls, error=None):
        self._name, self._calls, self._error = name, calls, error
        self.config = get_config().queue(name)
        self.queue = name
        self.keys = self.config.keys

    def __getattr__(self, method):
        def call(*args, **kwargs):
            self._calls.append(self._name)
            if self._error is not None:
                raise self._error
            raise Fine

        return call


class Fine(Exception):
    """Ends a call that came through, where its result does not matter."""


@pytest.fixture
def queues(mq_settings):
    return [get_config().queue(name) for name in ("default", "emails")]


def by_number(found):
    return dict(enumerate(found))


def case(cls):
    def note(make):
        CASES[cls.__name__] = make
        return make

    return note


@case(JobRunner)
def job_runner(queues, both):
    service = JobRunner(by_number(queues), "w")
    service._jobs = by_number(both)
    return service


@case(AnnouncedReleaser)
def announced_releaser(queues, both):
    service = AnnouncedReleaser(by_number(queues))
    service._stores = by_number(both)
    for number in range(2):
        service.announced(number, {"late"})
        service.seen(number, 1)
    return service


@case(Extender)
def extender(queues, both):
    class Runs:
        def running(self):
            return {"c": [Running(Receipt(number, 0, b"1-1"), -1e9, 0) for number in range(2)]}

    service = Extender(by_number(queues), Runs())
    service._stores = by_number(both)
    return service


@case(Heartbeat)
def heartbeat(queues, both):
    nothing = lambda *args: None  # noqa: E731
    service = Heartbeat(by_number(queues), HeartbeatCallbacks(lambda: Announcement("s", {}, {}), *[nothing] * 8))
    service._members = by_number(both)
    return service


@case(OrphanHeartbeat)
def orphan(queues, both):
    service = OrphanHeartbeat("s", ["c"], by_number(queues), Quarantined())
    service._members = by_number(both)
    return service


@case(RestingQueues)
def resting_queues(queues, both):
    service = RestingQueues(Session(get_client("consume")), "c", first="default")
    for fetcher in both:
        service.offer(fetcher)
    return service


@case(Reclaimer)
def reclaimer(queues, both):
    service = Reclaimer(by_number(queues), settled=lambda *args: None)
    service._stores = service._members = by_number(both)
    service.consumer_exited("c", Evidence())
    return service


@case(ProgressReporter)
def progress_reporter(queues, both):
    tasks = RunningTasks(by_number(queues), "c", Quarantined(), [])
    return ProgressReporter(by_number(both), tasks, Quarantined(), Session(get_client("chores")))


@case(StreamSender)
def stream_sender(queues, both):
    service = StreamSender({}, "c", Session(get_client("consume")))
    service._books, service._stores = by_number([Streaming(store.queue) for store in both]), by_number(both)
    return service


@case(Scheduler)
def scheduler(queues, both):
    entries = [
        Scheduled(name=store.queue, queue=store.queue, message="m", data=None, when=every(days=1)) for store in both
    ]
    return Scheduler(entries, {store.queue: store for store in both})


@case(SettleService)
def settler(queues, both):
    service = SettleService()
    for store in both:
        service.add(store, store)
    service.run_once = service.try_refused
    return service


@case(StepService)
def steps(queues, both):
    service = StepService(queues)
    service._couriers = {broken.queue: broken for broken in both}
    for broken in both:
        service.settled(broken.queue, ["w:0run00000.1.1"])
    return service


@case(WorkflowService)
def workflows(queues, both):
    service = WorkflowService(queues)
    service._noted = lambda server: [broken.queue for broken in both]
    service._couriers = {broken.queue: broken for broken in both}
    index = WorkflowKeys(get_config().namespace, "0").index
    get_client("chores", key=index).zadd(index, {"0run00000": 1})
    return service


@case(Isolation)
def isolation(queues, both):
    service = Isolation("c", Quarantined(), by_number(both), [])
    service._waiting = {0: [Delivered], 1: [Delivered]}
    return service


class Streaming:
    """A book whose queue has a run with something to send."""

    def __init__(self, name):
        self.config = get_config().queue(name)

    def streaming(self):
        return [object()]


class Quarantined:
    def requests(self, number):
        return 1

    def quarantine(self):
        return "quarantine"

    def unhandled(self, number):
        return 1

    def held_until(self, number):
        return math.inf


class Delivered:
    stream, entry = 0, b"1-1"


#: Those that keep nothing but what they are given.
CASES |= {
    "Promoter": lambda queues, both: Promoter(
        by_number(both), transport=Session(get_client("chores")), is_subscribed=lambda: True, seen=lambda *args: None
    ),
    "Trimmer": lambda queues, both: Trimmer(both, both),
    "HistoryTrimmer": lambda queues, both: HistoryTrimmer(both),
    "Releaser": lambda queues, both: Releaser(by_number(both), Quarantined()),
    "QuarantineFetcher": lambda queues, both: QuarantineFetcher("c", "line", Quarantined(), both, [None, None]),
    "Canceller": lambda queues, both: Canceller(by_number([Cancels(store) for store in both]), {}, Quarantined(), []),
}


def services():
    found = walk_packages(mq_django.consumers.__path__, "mq_django.consumers.")
    modules = [import_module(module.name) for module in found]
    return {
        cls.__name__
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, Service) and cls.__module__ == module.__name__
    } - {"Service"}


def test_every_service_is_tried_here():
    assert services() == ALONE | CASES.keys()


def test_what_one_queue_raises_is_logged_with_its_name_and_the_other_is_served(queues, caplog):
    wrong = []
    caplog.set_level(logging.WARNING)
    for name, kind in product(sorted(CASES), (ValueError, OverflowError, SystemExit, WrongKeyType)):
        caplog.clear()
        calls, error = [], kind("broken")
        service = CASES[name](queues, [Broken("default", calls, error), Broken("emails", calls)])
        service.run_once()
        service.run_once()
        texts = [f"{each.getMessage()} {each.exc_info and each.exc_info[1]}" for each in caplog.records]
        told = [text for text in texts if "default" in text and "broken" in text]
        # Once, though it comes back every round.
        if not {"default", "emails"} <= set(calls) or len(told) != 1:
            wrong.append((name, kind.__name__, calls, len(told)))
    assert wrong == []


def test_a_server_that_is_away_ends_the_round(queues):
    wrong = []
    for name in sorted(CASES):
        calls = []
        service = CASES[name](queues, [Broken("default", calls, ConnectionLost("away")), Broken("emails", calls)])
        with suppress(ConnectionLost):
            service.run_once()
            wrong.append((name, "raised nothing"))
        if calls != ["default"]:
            wrong.append((name, calls))
    assert wrong == []


def test_at_its_end_a_consumer_gives_back_what_others_can_have(queues, caplog):
    """What one queue raises then would else leave what the other has handed out pending."""
    publish("emails", "welcome", 1)
    store = open_store(queues[1], Session(get_client("consume")))
    store.create_groups()
    assert len(store.take("c", count=1)) == 1
    consumer = Consumer("c", queues, threads=1, shared_state=SharedState.create(slots(1)))
    consumer._stores[0] = Broken("default", [], ValueError("broken"))
    assert consumer.stop(Grace(60.0))
    assert store.held_by("c", limit=1) == []
    assert "default failed; continuing with the others" in caplog.text
