"""Run the handler of a group for messages in the log, outside a consumer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import async_to_sync

from mq_django.conf import GroupConfig
from mq_django.core.batch_outcomes import outcomes_of
from mq_django.core.exceptions import class_name, repr_of, text_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry
from mq_django.errors import ConfigurationError, UnknownHandler
from mq_django.inbox.identity import Identity
from mq_django.inbox.once import Once
from mq_django.inbox.passes import check_repeat, note_return
from mq_django.inbox.retention import is_forgotten, outcome_of_forgotten
from mq_django.registry import find

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    #: Messages that were handled, or would be in a dry run.
    handled: Sequence[Message]
    #: Messages whose handler failed, with the error.
    failed: Sequence[tuple[Message, str]] = field(default=())
    #: Ids of entries that are not valid messages, with the reason.
    undecodable: Sequence[tuple[str, str]] = field(default=())


def replay(
    entries: Iterable[Delivery | Undecodable],
    group: GroupConfig,
    handler: Callable[[Message], Any] | None,
    *,
    dry: bool,
    repeat: bool = False,
) -> Replayed:
    """Run a handler for entries of a log, in this process.

    Args:
        entries: what the log has, in its order.
        group: whose subscriber runs when no handler is given.
        handler: a function of a Message, not a coroutine function; None: the group's own subscriber.
        dry: do not run the handler.
        repeat: let the effects of subscribers with `@exactly_once` happen again.

    Raises:
        UnknownHandler: no handler was given, and the group has no subscriber.
        ConfigurationError: the handler is no function, or a coroutine function; or `repeat` is not possible.
    """
    given: object = handler
    if given is not None and (not callable(given) or iscoroutinefunction(given)):
        raise ConfigurationError(f"replay() takes a function of a message, not {repr_of(given, 200)}")
    if repeat:
        _raise_pass(group, given, dry=dry)
    handled: list[Message] = []
    failed: list[tuple[Message, str]] = []
    undecodable: list[tuple[str, str]] = []
    for found in entries:
        if not isinstance(found, Delivery):
            undecodable.append((found.entry.decode(), found.reason))
            continue
        message = found.message._replace(queue=group.name)
        call = handler or _subscriber(group, message)
        error = "" if dry else _run(call, message)
        if error:
            failed.append((message, error))
        else:
            handled.append(message)
    return Replayed(handled=handled, failed=failed, undecodable=undecodable)


def _subscriber(group: GroupConfig, message: Message) -> Callable[[Message], Any]:
    found = find(group.name, message.name)
    if found is None:
        raise UnknownHandler(f"Group {group.group!r} of topic {group.topic!r} has no subscriber here")
    call = async_to_sync(found.call) if found.is_async else found.call
    if found.batch:
        call = partial(_call_with_one, call)
    if found.once is None:
        return call
    once = Once(found.once, Identity.of(message, group.name, found.name))

    def run(message: Message) -> Outcome:
        if is_forgotten(message.published_ms, once.current_pass()):
            return outcome_of_forgotten(once)
        return once.run(lambda: _outcome(call(message)))

    return run


def _call_with_one(call: Callable[[list[Message]], Any], message: Message) -> Outcome:
    """Call a handler with batch=, which gets a list of one."""
    return outcomes_of(call([message]), 1)[0]


def _raise_pass(group: GroupConfig, handler: object, *, dry: bool) -> None:
    if handler is not None:
        raise ConfigurationError("repeat=True is for the subscribers of the group. A given handler runs in any case")
    check_repeat(group.name)
    if not dry:
        note_return(group.name, repeat=True)


def _outcome(returned: object) -> Outcome:
    return returned if isinstance(returned, Ack | Retry | Bury) else ACK


def _run(call: Callable[[Message], Any], message: Message) -> str:
    """Run a handler, and return its error, or "" if it succeeded."""
    try:
        outcome = call(message)
    except Exception as error:
        logger.exception("Message %s (%s) failed in a replay", message.id, message.name)
        return f"{class_name(type(error))}: {text_of(error)}"
    return str(outcome.error or class_name(type(outcome))) if isinstance(outcome, Retry | Bury) else ""
