"""Read queues and messages, and act on them: what the admin and `manage.py mq` do, for pages and scripts of a project.

    from mq_django import inspect

    for queue in inspect.queues():  # in one round trip a server
        print(queue.name, queue.ready, queue.dead, queue.problems())

    page = inspect.messages("emails", "dead", inspect.Filter(name="invoice"), limit=50)
    for message in page.rows:
        print(message.id, message.name, message.error)
    inspect.redrive("emails", [message.id for message in page.rows])

Topics, groups and schedules have methods of their own: see `mq_django.topics` and `queues["emails"].schedules`.

A message is in one state: `ready`, `pending`, `delayed`, `unhandled`, `parked` or `dead`. With HISTORY, `handled` says
what became of it. A topic has the entries of its `log`. Each list is read with a filter and a cursor, a bounded number
of messages at a time, so a call takes a fraction of a second however long the queue is.

Secrets in data, headers, keys and errors are replaced: nothing here returns them. Nothing here asks who calls: a page
checks the permissions of its user before.

An argument of a wrong type, a text with a lone surrogate or a number that is too large is InvalidArguments.

Actions can be repeated, and act on what is still in its state: an Outcome counts what was done, what was gone and what
was refused. Thousands of messages are changed by a background job of the consumers: see start_job().

Producers and consumers never use this module, so that nothing people look at is on the way of a message.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from operator import is_
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from mq_django.core.breakers import Hold
from mq_django.core.filters import FailureGroup, Filter
from mq_django.core.ids import is_text
from mq_django.core.jsontext import LAST_MS
from mq_django.core.limits import LIMITS, LimitChange
from mq_django.core.project import Thresholds
from mq_django.core.redaction import redact_forms, redact_text
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidArguments
from mq_django.inspector import (
    action_log,
    dead_letters,
    explain,
    message_lists,
    problem_list,
    processes,
    workflow_runs,
)
from mq_django.inspector import actions as queue_actions
from mq_django.inspector import holds as limits_and_holds
from mq_django.inspector import jobs as background_jobs
from mq_django.inspector import queues as all_queues
from mq_django.inspector.actions import Outcome
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.problem_list import QueueProblem
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.stream_reader import Scanned
from mq_django.stores.activity import Action

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: The largest number that a function takes.
LARGEST = 10**9


def _checked(
    function: Callable[Arguments, Result], *, names: str = "strict", but: Collection[str] = ()
) -> Callable[Arguments, Result]:
    """Let a function refuse arguments of other types with an error of ours, and return no secrets in keys.

    `names` is "surrogateescape" for one that takes references, whose bytes need not be UTF-8. `but` has the arguments
    that the function refuses itself, because it knows better what they may be.
    """
    hints, parameters = get_type_hints(function), signature(function)

    @wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        for name, value in parameters.bind(*args, **kwargs).arguments.items():
            if name in but:
                continue
            is_many = parameters.parameters[name].kind is Parameter.VAR_POSITIONAL
            # JSON that somebody has written is checked where it is read.
            for each in () if name == "written" and isinstance(value, str) else value if is_many else (value,):
                if expected := _unlike(hints[name], each, names, LAST_MS if name.endswith("_ms") else LARGEST):
                    raise InvalidArguments(f"{name}= takes {expected}, not {repr_of(each)}")
        found: Result = _without_secrets(function(*args, **kwargs))
        return found

    return checked


def _without_secrets(found: Any) -> Any:
    """Return what was found with the secrets in keys and holds replaced: what acts on messages needs the real ones."""
    changed: dict[str, Any] = {}
    if isinstance(found, MessageView):
        changed = {"key": found.key and redact_forms(found.key)}
    elif isinstance(found, Hold):
        changed = {"value": redact_forms(found.value), "error": redact_text(found.error)}
    elif isinstance(found, Filter):
        changed = {"key": redact_forms(found.key)}
    elif type(found) is dict:
        return {name: _without_secrets(value) for name, value in found.items()}
    elif type(found) in (list, tuple):
        each = type(found)(map(_without_secrets, found))
        return found if all(map(is_, each, found)) else each
    elif is_dataclass(found):
        changed = {field.name: _without_secrets(getattr(found, field.name)) for field in fields(found)}
    changed = {name: value for name, value in changed.items() if value is not getattr(found, name)}
    return replace(found, **changed) if changed else found


def _unlike(kind: Any, value: object, names: str, largest: int) -> str:
    """Return what a value should be; "" if it is that."""
    if get_origin(kind) is UnionType:
        texts = [_unlike(each, value, names, largest) for each in get_args(kind)]
        return "" if "" in texts else " or ".join(texts)
    if get_origin(kind) is Literal:
        return "" if isinstance(value, str) and value in get_args(kind) else f"one of {', '.join(get_args(kind))}"
    if kind is type(None):
        return "" if value is None else "None"
    if kind is str:
        return "" if is_text(value, errors=names) else "a text"
    if kind is int:
        is_fit = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest
        return "" if is_fit else f"a whole number from 0 to {largest:,}"
    if kind is float:
        # Neither NaN nor infinity is small enough.
        is_fit = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= largest
        return "" if is_fit else "a number"
    if get_origin(kind) in (Sequence, Collection) and get_args(kind) == (str,):
        is_fit = (
            isinstance(value, Collection)
            and not isinstance(value, str | bytes)
            and all(is_text(each, errors=names) for each in value)
        )
        return "" if is_fit else "a list of texts"
    return "" if not isinstance(kind, type) or isinstance(value, kind) else f"a {kind.__name__}"


# Queues.
queues = _checked(all_queues.overview)
queue = _checked(all_queues.queue)
activity = _checked(all_queues.activity)
totals = _checked(all_queues.totals)
pause = _checked(queue_actions.pause)
resume = _checked(queue_actions.resume)
hold = _checked(limits_and_holds.hold)
open_breaker = _checked(limits_and_holds.open_breaker)
end_hold = _checked(limits_and_holds.end_hold)
holds = _checked(limits_and_holds.holds)
set_limits = _checked(limits_and_holds.set_limits, but=LIMITS)
reset_limits = _checked(limits_and_holds.reset_limits)
limit_changes = _checked(limits_and_holds.limit_changes)
problems = problem_list.problems
mute = _checked(problem_list.mute)
unmute = _checked(problem_list.unmute)
mutes = _checked(problem_list.get_mutes)
actions = _checked(action_log.actions)

# Messages.
messages = _checked(message_lists.messages)
get_message = _checked(message_lists.get_message, names="surrogateescape")
find_message = _checked(message_lists.find_message)
find_everywhere = _checked(message_lists.find_everywhere)
in_log = _checked(message_lists.in_log)
why = _checked(explain.why_not_running)
dead_groups = _checked(dead_letters.groups)

# Actions.
cancel = _checked(queue_actions.cancel, names="surrogateescape")
redrive = _checked(dead_letters.redrive_messages)
delete = _checked(dead_letters.delete_messages)
resubmit = _checked(dead_letters.resubmit_message)
move = _checked(dead_letters.move_messages)
start_job = _checked(background_jobs.begin)
jobs = _checked(background_jobs.get_jobs)
cancel_job = _checked(background_jobs.cancel)

# Consumers, and runs of workflows.
consumers = _checked(processes.everybody)
ping = _checked(processes.ping)
ask = _checked(processes.ask)
runs = _checked(workflow_runs.list_runs)
run = _checked(workflow_runs.run)
steps = _checked(workflow_runs.list_steps)

__all__ = [
    "Action",
    "FailureGroup",
    "Filter",
    "Hold",
    "LimitChange",
    "MessageView",
    "Outcome",
    "QueueProblem",
    "QueueView",
    "Scanned",
    "Thresholds",
    "actions",
    "activity",
    "ask",
    "cancel",
    "cancel_job",
    "consumers",
    "dead_groups",
    "delete",
    "end_hold",
    "find_everywhere",
    "find_message",
    "get_message",
    "hold",
    "holds",
    "in_log",
    "jobs",
    "limit_changes",
    "messages",
    "move",
    "mute",
    "mutes",
    "open_breaker",
    "pause",
    "ping",
    "problems",
    "queue",
    "queues",
    "redrive",
    "reset_limits",
    "resubmit",
    "resume",
    "run",
    "runs",
    "set_limits",
    "start_job",
    "steps",
    "totals",
    "unmute",
    "why",
]
