"""Whatever value is passed to the public API or written into the settings, it is accepted, or an error of ours."""

from datetime import UTC, datetime, timedelta

import pytest

from mq_django import (
    Bury,
    Retry,
    RetryPolicy,
    cron,
    enqueue_many,
    every,
    exactly_once,
    get_progress,
    get_result,
    handler,
    iter_results,
    on_signal,
    progress,
    queues,
    resumable,
    schedules,
    subscriber,
    task,
    topics,
    wait_result,
    wait_results,
)
from mq_django.conf import Config, QueueConfig, RsmqConfig, TopicConfig, read
from mq_django.core import options
from mq_django.core.project import Thresholds
from mq_django.core.texts import summary_of
from mq_django.errors import MQError, UnknownRun
from mq_django.inspector.problem_list import problems
from mq_django.rsmq import RSMQ
from mq_django.task_backend.compat import InvalidTask, TaskResultDoesNotExist
from mq_django.workflows import chain, get_run, workflow
from tests.testapp import tasks


class Evil:
    def __repr__(self):
        raise SystemExit("no")

    __str__ = __repr__


class Lying:
    def __repr__(self):
        return None


DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]
CIRCLE = []
CIRCLE.append(CIRCLE)
ODD = {
    "a huge number": 10**5000,
    "a huge number below zero": -(10**5000),
    "a float without a number": float("nan"),
    "infinity": float("inf"),
    "a deep list": DEEP,
    "a list in itself": CIRCLE,
    "a huge number in a list": [10**5000],
    "an object without a repr": Evil(),
    "such an object in a list": [Evil()],
    "such an object in a dict": {"a": Evil()},
    "such an object as a key": {Evil(): 1},
    "a repr that is no text": Lying(),
    "a lone surrogate": "a\ud800",
    "a byte that is not UTF-8": "a\udc80",
    "a long text": "long " * 4000,
    "NUL": "\x00",
    "bytes": b"\xff",
    "a bool": True,
    "a timedelta": timedelta.max,
    "a date": datetime.max.replace(tzinfo=UTC),
    "an early date": datetime.min,  # noqa: DTZ901 - what is tried
    "a class": Evil,
}
#: Django's errors of task backends and of names, which tell what is wrong in our words.
OURS = (MQError, InvalidTask, TaskResultDoesNotExist)


def q():
    return queues["default"]


def each(call, *names, **needed):
    """Return calls by the name of the one option that they get, beside what it needs."""
    return {name: lambda value, name=name: call(**{**needed, name: value}) for name in names}


def declare(decorator, *names, **needed):
    return each(lambda **given: decorator(**given)(lambda message: None), *names, **needed)


def add(*args):
    with workflow("w") as flow:
        flow.add(*args)
        raise UnknownRun


PUBLISH = ("key", "headers", "priority", "expires", "using", "on_commit", "robust", "message_id", "outbox")
WAITING = ("message_id", "unique", "key", "using", "on_commit", "robust")
USING = ("priority", "queue_name", "backend", "run_after", "delay", "unique", "unique_for", "on_conflict", "expires")
USING += ("at_most",)
SCHEDULE = (
    "message",
    "data",
    "key",
    "priority",
    "expires",
    "cron",
    "every",
    "timezone",
    "start",
    "end",
    "task",
    "args",
)
#: What is called -> its argument -> a function of that argument's value.
STATES = {
    "queues": {"name": lambda value: queues[value], "in": lambda value: value in queues},
    "topics": {"name": lambda value: topics[value], "in": lambda value: value in topics},
    "publish": {
        "name": lambda value: q().publish(value, 1),
        "data": lambda value: q().publish("n", value),
        **each(lambda **given: q().publish("n", 1, **given), *PUBLISH, "delay", "deliver_at"),
        **each(lambda **given: q().publish("n", 1, **given), "unique", "unique_for", "on_conflict", delay=5),
        **each(lambda **given: q().publish("n", 1, **given), "at_most", unique="u", delay=5),
    },
    "publish_many": {
        "messages": lambda value: q().publish_many(value),
        "message": lambda value: q().publish_many([value]),
        "ids": lambda value: q().publish_many([("n", 1)], message_ids=value),
        "an id": lambda value: q().publish_many([("n", 1)], message_ids=[value]),
    },
    "cancel": each(lambda **given: q().cancel(**given), *WAITING),
    "reschedule": each(lambda **given: q().reschedule(**{"message_id": "x", "delay": 5, **given}), *WAITING, "delay"),
    "find": each(lambda **given: q().find(**given), "message_id", "unique"),
    "progress of": {"queue": lambda value: q().progress(value), "anywhere": get_progress},
    "topic": {
        "publish": lambda value: topics["orders"].publish(value, 1),
        **each(lambda **given: topics["orders"].publish("n", 1, **given), "key", "headers", "message_id"),
        "group": lambda value: topics["orders"].group(value),  # noqa: PLW0108 - needs settings
        "seek": lambda value: topics["orders"].group("billing").seek(value),
        "since": lambda value: list(topics["orders"].group("billing").messages(value)),
        "replay": lambda value: topics["orders"].group("billing").replay(value),
        "replay since": lambda value: topics["orders"].group("billing").replay(since=value),
        "subscribe": lambda value: topics["orders"].group("billing").subscribe(value),
    },
    "using": each(tasks.noop.using, *USING, "key", "using", "on_commit", "robust", "outbox"),
    "enqueue": {
        "argument": tasks.note.enqueue,
        "named": lambda value: tasks.note.enqueue(a=value),
        "many": tasks.note.enqueue_many,
        "call": lambda value: tasks.note.enqueue_many([value]),
        "pairs": lambda value: enqueue_many(tasks.note, [value]),
        "no task": lambda value: enqueue_many(value, [[1]]),
        "unique of a run": lambda value: chain((tasks.noop,)).start(unique=value),
    },
    "results": {
        "get": get_result,
        "backend": lambda value: tasks.noop.get_backend().get_result(value),
        "wait": lambda value: wait_result(value, timeout=0),
        "timeout": lambda value: wait_result("x", timeout=value),
        "all": lambda value: wait_results(value, timeout=0),
        "each": lambda value: wait_results([value], timeout=0),
        "iter_results": lambda value: list(iter_results(value, timeout=0)),
        "as one": lambda value: list(iter_results([value], timeout=0)),
    },
    "schedules": {
        **each(lambda **given: schedules.create(**{"name": "n", "every": 60, "message": "m", **given}), *SCHEDULE),
        **{
            f"update {name}": call
            for name, call in each(lambda **given: schedules.update("x", **given), *SCHEDULE).items()
        },
        **each(lambda **given: schedules.create("n", every=60, message="m", **given), "queue", "by", "paused"),
        **{
            f"{name} {what}": lambda value, name=name, what=what: getattr(schedules, name)(**{"name": "x", what: value})
            for name in ("create", "update", "get", "pause", "resume", "skip", "unskip", "fire", "delete")
            for what in ("name", "queue")
        },
        "all": schedules.get_all,
        "tick": lambda value: schedules.skip("nightly", tick=value),
        "no skip": lambda value: schedules.unskip("nightly", tick=value),
    },
    "declarations": {
        **declare(
            handler,
            "queue",
            "name",
            "retry",
            "timeout",
            "batch",
            "linger",
            queue="default",
            name="odd",
        ),
        **declare(subscriber, "topic", "group", "start", topic="orders", group="odd"),
        "function": handler("default", "odd"),
        "task": task,
        **{
            f"task {name}": call
            for name, call in declare(task, "queue_name", "priority", "retry", "timeout", "schedule").items()
        },
        "exactly_once": lambda value: exactly_once(using=value)(lambda message: None),
        "once": exactly_once,
        "on_signal": lambda value: on_signal(value)(tasks.noop),
        "on_signal args": lambda value: on_signal(datetime, args=value)(tasks.noop),
        **each(RetryPolicy, "max_attempts", "delay", "max_delay", "factor", "jitter", "bury_on"),
    },
    "outcomes": {
        "delay": Retry,
        "error": Bury,
        "progress": progress,
        "resumable": resumable,
    },
    "times": {
        "cron": cron,
        "zone": lambda value: cron("* * * * *", timezone=value),
        "every": every,
        "every hours": lambda value: every(hours=value),
    },
    "workflows": {
        "name": workflow,
        **each(lambda **given: workflow("w", **given), "policy", "expires", "on_success"),
        "add": add,
        "argument": lambda value: add(tasks.note, value),
        "run": get_run,
        "skip": lambda value: get_run("0" + "a" * 12).skip(value),
    },
    "rsmq": {
        "create": lambda value: RSMQ().create_queue(value),
        "vt": lambda value: RSMQ().create_queue("n", vt=value),
        "send": lambda value: RSMQ().send(value, "x"),
        "message": lambda value: RSMQ().send("n", value),
        "delay": lambda value: RSMQ().send("n", "x", delay=value),
        "id": lambda value: RSMQ().delete("n", value),
        "namespace": RSMQ,
        "count": lambda value: RSMQ().receive_many("n", value),
    },
    "problems": {
        "queue": problems,
        "thresholds": lambda value: problems(thresholds=value),
        **each(lambda **given: problems(thresholds=Thresholds(**given)), "max_age", "max_ready", "max_dead"),
    },
}


def options_of(*configs):
    return sorted({name for config in configs for name in options.options_of(config)})


#: Where a value of a setting is -> the settings with it.
SETTINGS = {
    "all": lambda value: value,
    "an option": lambda value: {value: 1},
    **{name: lambda value, name=name: {name: value} for name in options_of(Config)},
    **{
        f"{kind} {name}": lambda value, kind=kind, name=name, more=more: {kind: {"default": {name: value, **more}}}
        for kind, more, configs in [
            ("QUEUES", {}, [QueueConfig]),
            ("QUEUES", {"STORE": "rsmq"}, [RsmqConfig]),
            ("TOPICS", {}, [TopicConfig]),
        ]
        for name in options_of(*configs)
    },
    **{f"{kind} name": lambda value, kind=kind: {kind: {value: {}}} for kind in ("QUEUES", "TOPICS", "SCHEDULES")},
    **{f"{kind} options": lambda value, kind=kind: {kind: {"a": value}} for kind in ("QUEUES", "TOPICS", "SCHEDULES")},
    **{
        f"a schedule's {name}": lambda value, name=name: {
            "QUEUES": {"default": {}},
            "SCHEDULES": {"a": {"every": 60, "message": "m", name: value}},
        }
        for name in (*SCHEDULE, "queue")
    },
    **{
        f"{name} by {part}": lambda value, name=name, part=part: {"QUEUES": {"default": {name: {part: value}}}}
        for name, part in [
            ("RATE_LIMIT", "key"),
            ("CONCURRENCY", "key"),
            ("RETRY", "delay"),
            ("RETRY", "bury_on"),
            ("OUTBOX", "KEEP_UNTIL"),
            ("FAIR", "key"),
        ]
    },
    **{f"THRESHOLDS {name}": lambda value, name=name: {"THRESHOLDS": {name: value}} for name in options_of(Thresholds)},
}


def refused(call, value):
    """Return what is wrong with how a value was refused, if it was; "" if nothing is."""
    try:
        call(value)
    except OURS as error:
        return "" if is_shown(str(error)) else repr(error)[:500]
    except BaseException as error:  # noqa: BLE001 - what is looked for
        return summary_of(error)
    return ""


def is_shown(text):
    """Return whether a text can be written anywhere, and is not too long to be read."""
    return len(text) < 3000 and text.encode(errors="replace").decode() == text


@pytest.mark.django_db(transaction=True)
def test_every_place_takes_any_value(mq_settings, handlers):
    mq_settings(
        QUEUES={"default": {}},
        TOPICS={"orders": {}},
        SCHEDULES={"nightly": {"cron": "0 3 * * *", "message": "m"}},
    )
    calls = {f"{what}: {place}": call for what, places in STATES.items() for place, call in places.items()}
    assert wrong_of(calls, refused) == {}


def test_every_setting_takes_any_value():
    assert wrong_of(SETTINGS, misread) == {}


def wrong_of(places, look):
    """Return what is wrong with an odd value in a place, where something is."""
    found = {(place, odd): look(called, value) for place, called in places.items() for odd, value in ODD.items()}
    return {where: said for where, said in found.items() if said}


def misread(settings, value):
    """Return what is wrong with the problems of settings with a value; "" if nothing is."""
    try:
        made = settings(value)
    except TypeError:  # what is no key of a dict
        return ""
    try:
        texts = [text for each in read(made)[1] for text in (each.setting, each.message, each.hint)]
    except BaseException as error:  # noqa: BLE001 - what is looked for
        return summary_of(error)
    return "".join(repr(text)[:500] for text in texts if not is_shown(text))
