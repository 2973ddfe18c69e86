import importlib
import re
import sys
from datetime import timedelta
from functools import partial

import pytest

from mq_django import queues, registry
from mq_django.core.retries import RetryPolicy
from mq_django.errors import ConfigurationError, InvalidMessage, InvalidOffset
from mq_django.registry import handler, subscriber
from mq_django.task_backend import task
from tests.task_api import plain_task


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "_of_queues", {})
    monkeypatch.setattr(registry, "_batches", {})
    monkeypatch.setattr(registry, "_starts", {})


def test_a_handler_is_found_by_queue_and_name():
    @handler("emails", "welcome", timeout=2)
    def welcome(message): ...

    found = registry.find("emails", "welcome")
    assert found.call is welcome
    assert found.timeout == timedelta(seconds=2)
    assert not found.is_async
    assert registry.find("emails", "goodbye") is None
    assert registry.find("default", "welcome") is None


def test_names_are_those_of_the_queue_and_of_every_queue():
    registry.register(registry.Handler(name="anywhere", queue=None, call=print))
    registry.register(registry.Handler(name="here", queue="emails", call=print))
    registry.register(registry.Handler(name="there", queue="default", call=print))
    assert set(registry.names("emails")) == {"anywhere", "here"}


def test_a_module_that_is_imported_again_replaces_its_handlers():
    for version in (1, 2):
        registry.register(registry.Handler(name="n", queue="q", call=lambda _, v=version: v, where="shop.handlers.n"))
    assert registry.find("q", "n").call(None) == 2


#: Parts of a module, and those of which one would take the messages of the other.
TASK, OTHER_TASK = "@task\ndef send(number): ...\n", "@task\ndef send(): return 1\n"
PLAIN_TASK = "@plain_task\ndef send(a, b, c): ...\n"
HANDLER = "@handler('emails', f'{__name__}.send')\ndef handle(message): ...\n"
OTHER_HANDLER = "@handler('emails', f'{__name__}.send')\ndef handle(message): return None\n"
FACTORY = "def bare(function):\n    def inner(message): return function(message)\n    return inner\n"
OF_FACTORY = "@handler('emails', 'n')\n@bare\ndef first(message): ...\n"
RETRIED = "from mq_django import RetryPolicy\ndef third(message): ...\nhandler('emails', 'n')(third)\n"
DOUBLE = [
    (TASK, OTHER_TASK),
    (TASK, PLAIN_TASK),
    (TASK, HANDLER),
    (HANDLER, TASK),
    (HANDLER, OTHER_HANDLER),
]
#: The same code twice: functions of one factory, and one function with other options.
SAME_CODE = [
    FACTORY + OF_FACTORY + OF_FACTORY.replace("first", "second"),
    RETRIED + "handler('emails', 'n', retry=RetryPolicy(max_attempts=1))(third)\n",
    "def declare(number):\n    handler('emails', 'n')(lambda message: number)\ndeclare(1)\ndeclare(2)\n",
]


@pytest.fixture
def execute(tmp_path, monkeypatch, settings):
    """Write a module, execute it, for the first time or again, and return it."""
    monkeypatch.syspath_prepend(tmp_path)
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend"}}
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def execute(name, *parts):
        header = f"from mq_django import handler, task\nfrom {plain_task.__module__} import task as plain_task\n"
        (tmp_path / f"{name}.py").write_text("".join([header, *parts]))
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    yield execute
    for name in [name for name in sys.modules if name.startswith("declaring_")]:
        del sys.modules[name]


def test_what_would_take_the_messages_of_another_is_refused_with_both_named(execute, subtests):
    for number, parts in enumerate(DOUBLE):
        name = f"declaring_{number}"
        with subtests.test(parts=parts):
            with pytest.raises(ConfigurationError, match="has two handlers") as caught:
                execute(name, *parts)
            for part, line in zip(parts, (3, 5), strict=True):
                function = "handle" if "handle(" in part else "send"
                place = "of queue 'emails'" if "handle(" in part else "a task"
                assert f"{name}.{function} (line {line}, {place})" in str(caught.value)


def test_the_same_code_twice_is_refused_where_a_module_declares(execute, subtests):
    for number, text in enumerate(SAME_CODE):
        with subtests.test(text=text), pytest.raises(ConfigurationError, match="'n' has two handlers"):
            execute(f"declaring_code_{number}", text)
    execute("declaring_twice", RETRIED + "handler('emails', 'n')(third)\n")


def test_a_module_that_is_executed_again_declares_anew(execute):
    execute("declaring_again", TASK)
    for parts in ([TASK], [OTHER_TASK], [HANDLER], [OTHER_HANDLER], ["\n", PLAIN_TASK]):
        execute("declaring_again", *parts)
    del sys.modules["declaring_again"]
    execute("declaring_again", OTHER_TASK)
    del sys.modules["declaring_again"]
    module = execute("declaring_again", TASK)
    assert registry.find("default", "declaring_again.send").function is module.send.func
    for typed in (TASK, OTHER_TASK):
        exec(typed, {"__name__": "__main__", "task": task})


def test_a_timeout_is_above_zero(subtests):
    for timeout in [0, -1, timedelta(0)]:
        with subtests.test(timeout=timeout), pytest.raises(ConfigurationError, match="above zero"):
            handler("emails", "welcome", timeout=timeout)(print)


def test_a_batch_has_limits(subtests):
    for wrong, text in [
        ({"batch": 0}, "batch= must be a whole number from 1 to 10000, not 0"),
        ({"batch": 10_001}, "not 10001"),
        ({"batch": True}, "not True"),
        ({"batch": 2.0}, "not 2.0"),
        ({"batch": "5"}, "not '5'"),
        ({"linger": 1}, "linger= is for handlers with batch="),
        ({"batch": 5, "linger": -1}, "linger= must be 0 to 60 seconds, not -1"),
        ({"batch": 5, "linger": 60.1}, "not 60.1"),
        ({"batch": 5, "linger": "soon"}, "linger= must be"),
        ({"batch": 5, "linger": True}, "linger= must be"),
    ]:
        with subtests.test(wrong=wrong):
            for register in (partial(handler, "a", "n", **wrong), partial(subscriber, "a", group="b", **wrong)):
                with pytest.raises(ConfigurationError, match=re.escape(text)):
                    register()
            assert registry.largest_batch() == 0


def test_the_largest_batch_of_a_queue_is_known():
    handler("emails", "one")(print)
    handler("emails", "some", batch=5, linger=timedelta(seconds=1))(len)
    handler("emails", "many", batch=50)(repr)
    subscriber("orders", group="billing", batch=10_000)(str)

    @handler("emails", "all", batch=70)
    async def handle_all(messages):
        pass

    assert registry.batches("emails") == registry.batches("emails.3") == {False: 50, True: 70}
    assert registry.batches("orders:billing") == {False: 10_000}
    assert registry.batches("others") == {}
    assert registry.largest_batch() == 10_000
    assert registry.find("emails", "some").linger == 1.0
    assert registry.lingers()


class AnyTask:
    def enqueue(self): ...


def test_a_name_with_control_characters_is_refused():
    with pytest.raises(InvalidMessage, match="printable"):
        handler("emails", "a\nb")
    with pytest.raises(InvalidMessage, match=r"is a task, which is sent by task\.enqueue"):
        queues["emails"].publish(AnyTask())


def test_a_policy_is_a_policy(subtests):
    for wrong in [{"max_attempts": 3}, 3, RetryPolicy]:
        with subtests.test(wrong=wrong):
            for register in (partial(handler, "a", "n", retry=wrong), partial(subscriber, "a", group="b", retry=wrong)):
                with pytest.raises(ConfigurationError, match="retry= must be a RetryPolicy"):
                    register()
            with pytest.raises(ConfigurationError, match="retry= must be a RetryPolicy"):
                task(retry=wrong)(print)


def test_an_error_is_one_that_the_docstring_lists(subtests):
    for decorate, error in [
        (lambda: handler("emails", ""), InvalidMessage),
        (lambda: handler("emails", "welcome", retry=3), ConfigurationError),
        (lambda: handler("emails", "welcome", timeout=0), ConfigurationError),
        (lambda: handler("emails", "welcome", batch=0), ConfigurationError),
        (lambda: subscriber("orders", group="billing", name=""), InvalidMessage),
        (lambda: subscriber("orders", group="billing", start="soon"), InvalidOffset),
        (lambda: subscriber("orders", group="b b"), ConfigurationError),
        (lambda: subscriber("orders", group=5), ConfigurationError),
        (lambda: handler("e mails", "welcome"), ConfigurationError),
        (lambda: handler(5, "welcome"), ConfigurationError),
        (lambda: handler("orders:", "welcome"), ConfigurationError),
        (lambda: subscriber("o o", group="billing"), ConfigurationError),
        (lambda: subscriber("orders", group="billing", timeout=0), ConfigurationError),
        (lambda: subscriber("orders", group="billing", retry=3), ConfigurationError),
    ]:
        with subtests.test(decorate=decorate):
            documented = (handler if decorate.__code__.co_names[0] == "handler" else subscriber).__doc__
            assert f"{error.__name__}: " in documented.partition("Raises:")[2]
            with pytest.raises(error):
                decorate()(print)


def test_a_name_with_a_dot_is_told_what_a_dot_is_for():
    with pytest.raises(ConfigurationError, match=r"not 'mail\.out'\. A dot is for partitions: write 'mail-out'$"):
        handler("mail.out", "welcome")


def test_a_handler_is_a_function(subtests):
    for value in [5, "x", None, partial(print, 7)]:
        with subtests.test(value=value):
            for decorate in (
                handler("emails", "welcome"),
                handler("orders:billing", "paid"),
                subscriber("orders", group="b"),
            ):
                with pytest.raises(ConfigurationError, match="A handler is a function, not "):
                    decorate(value)
            assert registry.queues_with_handlers() == registry.groups() == []


def test_a_group_has_one_subscriber_of_a_name_and_one_start():
    subscriber("orders", group="billing", name="paid")(first_handler)
    with pytest.raises(ConfigurationError, match="has two handlers"):
        subscriber("orders", group="billing", name="paid")(second_handler)
    with pytest.raises(ConfigurationError, match="starts at"):
        subscriber("orders", group="billing", start="end")(second_handler)


def test_a_function_may_be_registered_several_times():
    handler("emails", "welcome")(first_handler)
    subscriber("orders", group="billing")(first_handler)
    handler("emails", "goodbye")(second_handler)
    found = [entry for entry in registry.handlers() if entry.call is first_handler]
    assert [(entry.queue, entry.name) for entry in found] == [("emails", "welcome"), ("orders:billing", registry.ANY)]


def test_a_subscriber_that_is_refused_leaves_no_group_behind():
    made = subscriber("orders", group="billing", name="paid", start="end")
    assert registry.groups() == []
    with pytest.raises(ConfigurationError, match="A handler is a function, not 'not a function'"):
        made("not a function")
    assert registry.groups() == []
    made(first_handler)
    assert registry.groups() == ["orders:billing"]
    assert registry.start_of("orders:billing") == "end"


def first_handler(message): ...


def second_handler(message): ...
