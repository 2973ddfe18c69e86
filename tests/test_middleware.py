"""Middleware around handlers and publishing: what it is given, what it may change, and what it cannot break."""

import gc
import logging
import sys
import threading
import weakref
from datetime import timedelta

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.checks import run_checks
from django.core.exceptions import MiddlewareNotUsed
from django.db import transaction
from django.utils.decorators import async_only_middleware, sync_and_async_middleware

from mq_django import Ack, Bury, Retry, RetryPolicy, handler, queues, registry, topics
from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import ReportBook, Settler
from mq_django.core.messages import HandBack
from mq_django.errors import ConfigurationError, InvalidMessage
from mq_django.middleware import around_handling, around_publishing, handling_chain, publishing_chain
from mq_django.signals import handler_finished
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import working
from tests.hearing import hears
from tests.testapp import tasks

pytestmark = pytest.mark.versions

#: What was noted, in order.
noted = []


def both(before, after):
    """Return a middleware for functions and coroutine functions.

    `before` is called with the handling; `after` with the handling and the outcome, and returns an outcome.
    """

    @around_handling
    @sync_and_async_middleware
    def factory(handle):
        async def amiddleware(handling):
            before(handling)
            return after(handling, await handle(handling))

        def middleware(handling):
            before(handling)
            return after(handling, handle(handling))

        return amiddleware if iscoroutinefunction(handle) else middleware

    return factory


def noting(name):
    def after(handling, outcome):
        noted.append(f"{name} ends")
        return outcome

    return both(lambda handling: noted.append(f"{name} begins"), after)


def ignore(handling):
    pass


def see(handling, outcome):
    noted.append((handling.queue, handling.handler, handling.attempt, handling.exception, outcome))
    return outcome


def end(handling):
    raise SystemExit("the middleware's own error")


outer, inner = noting("outer"), noting("inner")
seeing = both(ignore, see)
raising = both(end, lambda handling, outcome: outcome)
forgetful = both(ignore, lambda handling, outcome: None)
retrying_later = both(ignore, lambda handling, outcome: Retry(delay=60))


@around_handling
@sync_and_async_middleware
class Changing:
    """A class, as Django's may be: what fails is buried."""

    def __init__(self, handle):
        self.handle = handle

    def __call__(self, handling):
        return self.later(handling) if iscoroutinefunction(self.handle) else self.changed(self.handle(handling))

    async def later(self, handling):
        return self.changed(await self.handle(handling))

    @staticmethod
    def changed(outcome):
        return Bury("not worth another attempt") if isinstance(outcome, Retry) else outcome


@around_handling
@sync_and_async_middleware
def unused(handle):
    raise MiddlewareNotUsed


@around_handling
def only_functions(handle):
    def middleware(handling):
        return handle(handling)

    return middleware


@around_handling
@async_only_middleware
def only_coroutines(handle):
    async def middleware(handling):
        return await handle(handling)

    return middleware


@around_handling
@sync_and_async_middleware
def nothing(handle):
    return None


def unmarked(handle):
    return handle


@around_publishing
def stamping(publish):
    def middleware(call):
        noted.append((call.queue, [message.data for message in call.messages]))
        call.headers["tenant"] = "acme"
        ids = publish(call)
        noted.append(ids)
        return ids

    return middleware


@around_publishing
def dropping(publish):
    return lambda call: None


@around_publishing
def wrong_header(publish):
    def middleware(call):
        call.headers["Not a name"] = "x"
        return publish(call)

    return middleware


@around_publishing
def forgetting(publish):
    def middleware(call):
        publish(call)

    return middleware


@around_publishing
@async_only_middleware
def async_publishing(publish):
    return publish


def act(data):
    noted.append("handler")
    if data == "raise":
        raise ValueError("no such user")
    return {"bury": Bury("no"), "retry": Retry(delay=30)}.get(data)


def function(message):
    return act(message.data)


async def coroutine(message):
    return act(message.data)


@pytest.fixture
def use(mq_settings, monkeypatch):
    """Set the middleware of a project with a function and a coroutine function as handlers."""
    noted.clear()
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "_kinds", {})
    policy = RetryPolicy(max_attempts=2, jitter=0)
    handler("default", "n", retry=policy)(function)
    handler("emails", "n", retry=policy)(coroutine)

    def use(*middleware):
        mq_settings(
            QUEUES={"default": {}, "emails": {}},
            MIDDLEWARE=[f"{__name__}.{found if isinstance(found, str) else found.__name__}" for found in middleware],
        )

    return use


@pytest.fixture
def ended():
    """The outcomes with which handlers finished."""
    found = []
    with hears(handler_finished, to=lambda outcome, **_: found.append(outcome)):
        yield found


def run(queue, data, *, attempt=1):
    """Run a message through the executor of its queue, and settle it."""
    config = get_config().queue(queue)
    store = open_store(config, Pooled(get_client("consume")))
    store.create_groups()
    queues[queue].publish("n", data)
    (delivery,) = store.take("me", count=1)
    delivery = delivery._replace(message=delivery.message._replace(attempt=attempt))
    settler = Settler(store, queue, "me", threading.Event(), threading.Event())
    shared_state = SharedState.create(1)
    try:
        working.handle(Executor(config, 0, shared_state, settler), delivery, registry.find(queue, "n"))
        settler.settle(store)
    finally:
        shared_state.close()
    return store.depths()


BOTH = pytest.mark.parametrize("queue", ["default", "emails"])


@BOTH
def test_the_first_is_the_outermost(use, queue):
    use("outer", "inner")
    run(queue, None)
    assert noted == ["outer begins", "inner begins", "handler", "inner ends", "outer ends"]


@BOTH
def test_a_middleware_sees_what_runs_and_what_it_comes_to(use, queue, ended):
    use("seeing")
    for data in (None, "raise", "retry", "bury"):
        run(queue, data)
    run(queue, "raise", attempt=2)
    seen = [line for line in noted if line != "handler"]
    assert [(queued, name, attempt) for queued, name, attempt, *_ in seen] == [
        (queue, f"{__name__}.{'coroutine' if queue == 'emails' else 'function'}", attempt)
        for attempt in (1, 1, 1, 1, 2)
    ]
    outcomes = [outcome for *_, outcome in seen]
    assert outcomes == ended
    handled, failed, retried, buried, exhausted = outcomes
    assert handled == Ack()
    assert (failed.delay, failed.error) == (timedelta(seconds=1), "ValueError: no such user")
    assert retried.delay == timedelta(seconds=30)
    assert (buried.error, exhausted.reason) == ("no", "attempts")
    raised = [type(exception) for *_, exception, _ in seen]
    assert raised == [type(None), ValueError, type(None), type(None), ValueError]


@BOTH
def test_an_interrupt_at_a_stop_passes_a_middleware_and_is_no_error(use, queue, ended, monkeypatch):
    use("seeing")
    monkeypatch.setattr(ReportBook, "is_interrupt", lambda self, error: self.stopping.set() is None)
    depths = run(queue, "raise")
    assert (depths.ready, depths.dead) == (1, 0)
    (*_, exception, outcome) = noted[-1]
    assert (exception, outcome) == (None, HandBack())
    assert ended == [HandBack()]


@BOTH
def test_a_middleware_may_change_the_outcome(use, queue, ended):
    use("Changing")
    assert run(queue, "raise").dead == 1
    assert ended == [Bury("not worth another attempt")]


@BOTH
def test_a_retry_of_a_middleware_has_no_more_attempts_than_others(use, queue, ended):
    use("retrying_later")
    assert run(queue, None).delayed == 1
    assert run(queue, None, attempt=2).dead == 1
    assert [type(outcome) for outcome in ended] == [Retry, Bury]


@BOTH
@pytest.mark.parametrize(
    ("middleware", "error"),
    [("raising", "SystemExit: the middleware's own error"), ("forgetful", "TypeError: Middleware must return")],
)
def test_what_a_middleware_does_wrong_is_an_attempt_that_failed(use, queue, ended, middleware, error):
    use(middleware)
    assert run(queue, None).delayed == 1
    assert ended[0].error.startswith(error)


@BOTH
def test_an_exception_is_gone_with_its_message(use, queue, monkeypatch, caplog):
    found = []
    # pytest keeps the records of a test, and with them their exceptions.
    caplog.set_level(logging.CRITICAL, logger="mq_django")

    class Heavy(Exception):
        def __init__(self):
            found.append(weakref.ref(self))

    def does(data):
        raise Heavy

    use("outer")
    monkeypatch.setattr(sys.modules[__name__], "act", does)
    gc.disable()
    try:
        run(queue, None)
        assert found[0]() is None
    finally:
        gc.enable()


@BOTH
def test_one_that_is_not_used_is_left_out(use, queue):
    use("unused", "inner")
    run(queue, None)
    assert noted == ["inner begins", "handler", "inner ends"]


def test_without_middleware_there_is_no_chain(use):
    use()
    assert handling_chain() is None
    use("unused")
    assert handling_chain() is None


@pytest.mark.parametrize(
    ("middleware", "says"),
    [
        ("only_functions", "cannot run around coroutine functions"),
        ("only_coroutines", "cannot run around functions"),
        ("nothing", "must return a callable, not None"),
        ("unmarked", "is not a middleware: decorate it with around_handling or around_publishing"),
        ("missing", "cannot be imported"),
    ],
)
def test_what_cannot_run_is_named_by_a_check(use, middleware, says):
    use(middleware)
    (error,) = [found for found in run_checks() if found.id == "mq_django.E009"]
    assert says in error.msg
    assert f"'{__name__}.{middleware}'" in error.msg
    queue = "emails" if middleware == "only_functions" else "default"
    with pytest.raises(ConfigurationError, match=says):
        run(queue, None)


def test_what_is_no_list_of_paths_is_named_by_a_check(mq_settings):
    for wrong in ("tests.middleware", [7], ["outer"]):
        mq_settings(MIDDLEWARE=wrong)
        (error,) = [found for found in run_checks() if found.id == "mq_django.E001"]
        assert error.msg.startswith("MQ_DJANGO['MIDDLEWARE'] must be a list of dotted paths, not ")


def test_what_runs_around_functions_needs_no_async_form_without_coroutines(use, monkeypatch):
    use("only_functions")
    monkeypatch.setattr(registry, "_kinds", {"emails": frozenset()})
    assert [found for found in run_checks() if found.id == "mq_django.E009"] == []


def published(queue):
    """Return what is ready in a queue, as (id, data, headers)."""
    return [(message.id, message.data, dict(message.headers)) for message in working.take(queue)]


def test_headers_of_a_middleware_go_with_each_message(use):
    use("stamping")
    first = queues["default"].publish("n", 1, headers={"trace": "t1"})
    own = queues["default"].publish("n", 2, headers={"tenant": "own"})
    many = queues["default"].publish_many([("n", 3), ("n", 4)])
    assert published("default") == [
        (first, 1, {"tenant": "acme", "trace": "t1"}),
        (own, 2, {"tenant": "own"}),
        (many[0], 3, {"tenant": "acme"}),
        (many[1], 4, {"tenant": "acme"}),
    ]
    assert noted == [("default", [1]), [first], ("default", [2]), [own], ("default", [3, 4]), many]


def test_topics_and_tasks_are_published_within_the_middleware(use, mq_settings):
    use("stamping")
    mq_settings(TOPICS={"orders": {}}, MIDDLEWARE=[f"{__name__}.stamping"])
    topics["orders"].publish("paid", 1)
    enqueued = tasks.note.enqueue(7)
    assert noted == [("orders", [1]), [noted[1][0]], ("default", [{"args": [7], "kwargs": {}}]), [enqueued.id]]
    assert [dict(message.headers) for message in topics["orders"].group("all").messages()] == [{"tenant": "acme"}]


@pytest.mark.django_db(transaction=True)
def test_a_middleware_runs_at_the_call_and_the_message_goes_at_the_commit(use):
    use("stamping")
    with transaction.atomic():
        message_id = queues["default"].publish("n", 1)
        assert noted == [("default", [1]), [message_id]]
        assert published("default") == []
    assert published("default") == [(message_id, 1, {"tenant": "acme"})]


def test_without_a_call_of_publish_nothing_is_sent(use):
    use("dropping")
    assert queues["default"].publish("n", 1)
    assert published("default") == []


def test_what_a_middleware_does_not_return_is_returned_all_the_same(use):
    use("forgetting")
    message_id = queues["default"].publish("n", 1)
    assert published("default") == [(message_id, 1, {})]


def test_a_header_that_cannot_travel_is_an_error_of_the_call(use):
    use("wrong_header")
    with pytest.raises(InvalidMessage, match="A header's name is"):
        queues["default"].publish("n", 1)
    assert published("default") == []


def test_publishing_is_no_coroutine(use):
    use("async_publishing")
    (error,) = [found for found in run_checks() if found.id == "mq_django.E009"]
    assert "cannot run around functions" in error.msg
    with pytest.raises(ConfigurationError):
        queues["default"].publish("n", 1)


def test_each_runs_around_what_it_is_for(use):
    use("stamping", "outer")
    run("default", None)
    assert noted[2:] == ["outer begins", "handler", "outer ends"]
    use("outer")
    assert publishing_chain() is None
    use("stamping")
    assert handling_chain() is None
