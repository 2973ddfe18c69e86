"""Whatever a handler raises, returns or makes the log do, its delivery gets one outcome, and its slot goes on."""

import io
import logging
import sys

import pytest
from asgiref.sync import markcoroutinefunction

from mq_django import task
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Delivery, Message, Retry
from mq_django.core.retries import RetryPolicy
from mq_django.core.texts import MAX_TEXT, MAX_TRACEBACK
from mq_django.errors import ConfigurationError
from mq_django.registry import find, handler
from mq_django.stores import open_store
from mq_django.task_backend.compat import InvalidTask
from mq_django.transport.connections import open_transport
from tests.consumers.rig import running
from tests.waiting import wait_until
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.versions]


class Nameless:
    """Its attributes cannot be read, which Python does to find a name that is similar to a missing one."""

    def __getattr__(self, name):
        raise KeyError(name)

    def check(self):
        return missing_name  # noqa: F821


class Mute(Exception):
    def __str__(self):
        raise AttributeError("no text")

    __repr__ = __str__


class Nothing(Exception):
    def __str__(self):
        return None  # noqa: PLE0307 - as other people write it


class Endless(Exception):
    def __str__(self):
        return str(self)


class Exiting(Exception):
    def __str__(self):  # noqa: PLE0307
        sys.exit(3)


class Caused(Exception):
    @property
    def __cause__(self):
        raise KeyError("no cause")


class Unreadable(type):
    def __getattribute__(cls, name):
        raise KeyError(name)


class Hidden(Exception, metaclass=Unreadable):
    pass


class Classless(Exception):
    @property
    def __class__(self):
        raise KeyError("no class")


def raised(error):
    def act():
        raise error

    return act


#: What a handler does, and how the error of its outcome begins.
RAISES = {
    "a name is missing where no attribute can be read": (lambda: Nameless().check(), "NameError"),
    "a syntax error in bytes": (raised(SyntaxError("bad", ("f", 1, 1, b"text"))), "SyntaxError"),
    "no text": (raised(Mute()), f"{__name__}.Mute"),
    "a text that is None": (raised(Nothing()), f"{__name__}.Nothing"),
    "a text without end": (raised(Endless()), f"{__name__}.Endless"),
    "a text that exits": (raised(Exiting()), f"{__name__}.Exiting"),
    "a cause that raises": (raised(Caused()), f"{__name__}.Caused"),
    "a class without a readable name": (raised(Hidden()), f"{__name__}.Hidden"),
    "a class that cannot be asked for": (raised(Classless()), f"{__name__}.Classless"),
    "SystemExit": (raised(SystemExit(1)), "SystemExit: 1"),
    "KeyboardInterrupt": (raised(KeyboardInterrupt()), "KeyboardInterrupt"),
    "MemoryError": (raised(MemoryError()), "MemoryError"),
    "a long text": (raised(ValueError("x" * 1_000_000)), "ValueError: xxx"),
}


def unfinished():
    async def work():
        """Never run."""

    return work()


async def yields_later():
    yield 1


class Awaitable:
    def __await__(self):
        yield


#: What a handler returns that is no outcome.
RETURNS = {
    "a coroutine": unfinished,
    "a generator": lambda: (number for number in [1]),
    "an asynchronous generator": yields_later,
    "an awaitable": Awaitable,
    "a list of coroutines": lambda: [unfinished()],
    "a tuple of generators": lambda: ((number for number in [1]),),
    "a class": lambda: Retry,
}

FORMS = ["function", "coroutine", "batch", "coroutine of batches", "once", "once, coroutine"]


@pytest.fixture(params=FORMS)
def consumer(request, mq_settings):
    """One thread and one event loop: returns the outcomes of a message whose handler does `act`, and of the next."""
    mq_settings(QUEUES={"default": {"RETRY": RetryPolicy(max_attempts=3, bury_on=[Mute])}})
    form = request.param
    options = {"batch": 10} if "batch" in form else {}
    if "coroutine" in form:
        options["is_async"] = True
    if "once" in form:
        options["once"] = "default"
    with running(threads=1, batch=10) as rig:
        yield lambda act: run(rig, act, options)


def run(rig, act, options):
    def call(given):
        return act() if content(given) == "act" else None

    async def acall(given):
        return act() if content(given) == "act" else None

    name, found = f"n{len(rig.dispatcher._paths)}", {}
    rig.handle(name, acall if options.get("is_async") else call, **options)
    for number, what in enumerate(["act", "neighbour"]):
        message = Message(f"m{number}-{name}", name, what, rig.settler.queue, 1)
        rig.dispatcher.dispatch([Delivery(message, 0, b"%d-1" % (number + 1), b"1")])
        rig.batches.run_once()
        wait_until(lambda: found.update(rig.settled()) or what in found)  # noqa: B023 - called at once
    return found["act"], found["neighbour"]


def content(given):
    return (given[0] if isinstance(given, list) else given).data


def test_an_error_that_cannot_be_shown_is_retried_by_its_class(consumer):
    for name, (act, path) in RAISES.items():
        outcome, neighbour = consumer(act)
        assert isinstance(outcome, Bury if "Mute" in path else Retry), name
        assert outcome.error.startswith(path), name
        assert len(outcome.error) <= MAX_TEXT, name
        assert 0 < len(outcome.traceback) <= MAX_TRACEBACK, name
        assert neighbour is ACK, name


def test_what_has_not_run_is_not_acked(consumer):
    for name, act in RETURNS.items():
        outcome, neighbour = consumer(act)
        assert isinstance(outcome, Retry), name
        assert outcome.error.startswith("mq_django.errors.InvalidOutcomes: "), name
        assert neighbour is ACK, name


def test_an_outcome_may_be_raised(consumer):
    retry, _ = consumer(raised(Retry(delay=30, error=ValueError("later"))))
    assert (retry.delay.total_seconds(), retry.error) == (30, "ValueError: later")
    assert retry.traceback == "ValueError: later\n"
    bury, neighbour = consumer(raised(Bury(Mute())))
    assert (bury.error, neighbour) == (f"{__name__}.Mute", ACK)


def test_a_retry_that_is_raised_inside_except_has_the_error_that_was_handled(consumer):
    def charge():
        raise ConnectionError("no answer")

    def act(error=""):
        try:
            charge()
        except ConnectionError:
            raise Retry(delay=30, error=error)  # noqa: B904 - as people write it

    retry, _ = consumer(act)
    assert retry.error == "ConnectionError: no answer"
    assert "in charge" in retry.traceback
    retry, _ = consumer(lambda: act("later"))
    assert (retry.error, retry.traceback) == ("later", "")


class Broken(logging.Handler):
    """As of a project that reads `record.request`."""

    def filter(self, record):
        raise AttributeError("request")


def test_no_logging_of_a_project_ends_anything(consumer, monkeypatch):
    broken, logger = Broken(), logging.getLogger("mq_django")
    logger.addHandler(broken)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    try:
        outcome, neighbour = consumer(raised(ValueError("why")))
    finally:
        logger.removeHandler(broken)
    assert (outcome.error, neighbour) == ("ValueError: why", ACK)


def test_a_slot_outlives_what_fails_around_the_handler(consumer, monkeypatch):
    """Nothing known does. The delivery is charged an attempt, so that it does not come back for ever."""

    def fails(*_args, **_options):
        if not failed:
            failed.append(1)
            raise KeyError("of ours")

    failed = []
    monkeypatch.setattr("mq_django.consumers.worker.executor.send", fails)
    monkeypatch.setattr("mq_django.consumers.worker.executor.handler_finished", type("Signal", (), {"receivers": [1]}))
    outcome, neighbour = consumer(raised(ValueError("why")))
    assert isinstance(outcome, Retry)
    assert neighbour is ACK


def yields(message):
    yield message


def no_argument():
    pass


async def two_arguments(first, second):
    pass


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (yields, "must not contain `yield`"),
        (yields_later, "must not contain `yield`"),
        (no_argument, "takes one argument"),
        (two_arguments, "takes one argument"),
    ],
)
def test_a_function_that_cannot_handle_is_refused_when_it_is_registered(handlers, function, says):
    with pytest.raises(ConfigurationError, match=says):
        handler("default", "n")(function)


def test_asgiref_marks_a_coroutine_function(handlers):
    handler("default", "n")(markcoroutinefunction(lambda message: unfinished()))
    assert find("default", "n").is_async


@task
def forgets_to_wait():
    return unfinished()


@pytest.mark.parametrize("ttl", [0, 60])
def test_a_task_that_has_not_run_is_retried_with_and_without_results(mq_settings, ttl):
    mq_settings(QUEUES={"default": {"RESULT_TTL": ttl}})
    forgets_to_wait.enqueue()
    work("default")
    depths = open_store(get_config().queue("default"), open_transport("inspect", "")).depths()
    assert (depths.delayed, depths.pending, depths.ready) == (1, 0, 0)


def test_a_task_with_yield_is_refused(mq_settings):
    with pytest.raises(InvalidTask, match="must not contain `yield`"):
        task(yields)
