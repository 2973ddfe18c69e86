"""Actions on a queue and on selected messages. All are idempotent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.keys import QueueKeys
from mq_django.core.messages import CancelResult
from mq_django.core.texts import class_name, escape, truncate
from mq_django.errors import ConnectionLost, InvalidFilter, QueueFull, StoreError
from mq_django.inspector.message_views import name_of
from mq_django.inspector.problem_sentences import local
from mq_django.inspector.queue_view import Pause, QueueView
from mq_django.inspector.queues import overview, transports_of, whole_configs
from mq_django.stores import open_access
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.control import changed, pause_command, resume_command
from mq_django.stores.partition_transport import prepared
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out

#: Characters of who paused a queue, of the reason, and of the name of an action on several queues.
MAX_WHO, MAX_REASON, MAX_NAME = 200, 500, 80


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of an action, as far as known."""

    done: int = 0
    #: Consumers were asked to cancel these, which did not wait.
    asked: int = 0
    #: No longer existed.
    missing: int = 0
    #: Could not be redriven or moved, because they are not valid messages, or the other queue does not accept them.
    refused: int = 0
    #: The error that ended the action. One more batch may have been processed than is counted.
    error: StoreError | QueueFull | None = None
    #: Some of the affected messages, for the log.
    examples: list[str] = field(default_factory=list)
    #: The names of moved messages for which no handler of the other queue is registered: these wait there.
    without_handler: list[str] = field(default_factory=list)


def add_part(outcome: Outcome, part: Outcome) -> None:
    """Count what the same action has done to other messages, and keep its error."""
    outcome.done += part.done
    outcome.missing += part.missing
    outcome.refused += part.refused
    outcome.error = part.error


def effect_of(_: Given, found: Outcome) -> Effect:
    """Tell the result of an action on messages for its entry in the activity."""
    counts = {"asked to stop": found.asked, "missing": found.missing, "refused": found.refused}
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    done = found.done + found.asked
    # After a lost connection, one more batch may have been processed.
    failed = found.error is not None and (done > 0 or isinstance(found.error, ConnectionLost))
    return Effect(done, words, error=class_name(type(found.error)) if failed else "")


@recorded("cancel", about="message_ids", effect=effect_of)
def cancel(name: str, message_ids: Sequence[str], *, running: bool = False, force: bool = False) -> Outcome:
    """Cancel messages that wait, by their ids, by `u:` and their unique keys, or by their references.

    Args:
        name: the queue.
        message_ids: which messages.
        running: also those that are ready or being handled. Consumers are asked to cancel these: see Queue.cancel().
        force: with `running`: replace the process of a handler that does not end within a second.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: with `running`, the queue cannot cancel these.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    config, outcome = get_config().queue(name), Outcome()
    # Of a queue with partitions the one that also producers use, which finds the partition of a message.
    store = open_access(config, open_transport("inspect", config.connection))
    for member in map(name_of, message_ids):
        try:
            found = store.cancel_running(member, force=force) if running else store.cancel(member)
        except StoreError as error:
            outcome.error = error
            break
        outcome.done += bool(found)
        outcome.asked += found is CancelResult.ASKED
        outcome.missing += not found and found is not CancelResult.ASKED
    return outcome


def can_cancel_running(name: str) -> bool:
    """Return whether messages of a queue can be cancelled that are ready or being handled."""
    return not get_config().queue(name).keeps_running


@dataclass(frozen=True, slots=True)
class Switched:
    """The result of pausing or resuming several queues. One with partitions is one queue."""

    #: The queues that were running before, or paused; with partitions, some of these.
    changed: Sequence[str]
    #: Those that were paused already, or were not paused.
    unchanged: Sequence[str]
    #: The others, and single partitions, with the error of each.
    errors: Mapping[str, StoreError]


def _switched(given: Given, found: Switched) -> Effect:
    failed = f"{len(found.errors)} failed" if found.errors else ""
    error = next((class_name(type(error)) for error in found.errors.values()), "")
    return Effect(len(found.changed), failed, queues=found.changed, undo=_undo(given), error=error)


def _undo(given: Given) -> Mapping[str, str]:
    """Return what a pause is found by."""
    return {"who": _who(given["who"]), "name": _name(given.get("name", ""))} if "who" in given else {}


@recorded("pause", effect=lambda given, found: Effect(found, undo={"who": _who(given["who"])}))
def pause(name: str, *, who: str = "", reason: str = "") -> bool:
    """Pause a queue, and return whether it was running before.

    The admin and `mq status` show who paused it and why, until it is resumed. A queue that is paused already keeps what
    it has. In a queue with partitions, all are paused.

    Args:
        name: the queue.
        who: who pauses it, for others to see.
        reason: why.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return _switch(name, _pause(who, reason))


@recorded("resume")
def resume(name: str) -> bool:
    """Resume a queue, and return whether it was paused before.

    Args:
        name: the queue.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return _switch(name, resume_command)


def _switch(name: str, command: Callable[[QueueKeys], Command]) -> bool:
    """Run a command for a queue, or for each of its partitions, and return whether it has changed one."""
    found = _switch_each([get_config().queue(name)], command)
    for error in found.errors.values():
        raise error
    return bool(found.changed)


@recorded("pause", queue="", about="name", effect=_switched)
def pause_all(*, who: str = "", reason: str = "", name: str = "") -> Switched:
    """Pause all queues and groups of topics; see pause().

    Args:
        who: who pauses them, for others to see.
        reason: why.
        name: of this action: resume_all() resumes exactly the queues that it has paused.

    Raises:
        InvalidFilter: an action of this name, by somebody else, is not over.
        ConnectionLost: the connection broke. It is unknown which queues are paused.
    """
    shown, who = _name(name), _who(who)
    found = [one.pause for one in pauses(overview(minutes=0)) if shown and shown == one.pause.name]
    for other in (pause.who for pause in found if pause.who != who):
        raise InvalidFilter(f"{other or 'Somebody'} has paused queues by an action of this name: choose another one")
    return _switch_each(whole_configs(), _pause(who, reason, shown))


@recorded("resume", queue="", about="name", effect=_switched)
def resume_all(*, name: str | None = None) -> Switched:
    """Resume all queues and groups of topics, or with `name` only what the action of this name has paused.

    Raises:
        InvalidFilter: the name is empty: it would stand for all.
        ConnectionLost: the connection broke. It is unknown which queues were resumed.
    """
    if name is not None and not _name(name):
        raise InvalidFilter("The name of the action is empty")
    return _switch_each(whole_configs(), partial(resume_command, name=_name(name or "")))


@recorded("resume", queue="", effect=_switched)
def resume_these(names: Sequence[str]) -> Switched:
    """Resume some queues or partitions.

    Raises:
        UnknownQueue: a queue is not configured.
        ConnectionLost: the connection broke. It is unknown which queues were resumed.
    """
    return _switch_each([get_config().queue(name) for name in names], resume_command)


def _switch_each(queues: Sequence[QueueConfig], command: Callable[[QueueKeys], Command]) -> Switched:
    parts = [part for queue in queues for part in queue.each_part]
    replies = iter(fan_out(transports_of(parts), [[prepared(part, command(part.keys))] for part in parts]))
    switched, errors = dict[str, list[bool]](), dict[str, StoreError]()
    for queue in queues:
        for part, (reply,) in zip(queue.each_part, replies, strict=False):
            try:
                is_changed = changed(reply)
            except StoreError as error:
                errors[part.name] = error
            else:
                switched.setdefault(queue.name, []).append(is_changed)
    return Switched(
        [name for name, each in switched.items() if any(each)],
        [name for name, each in switched.items() if not any(each)],
        errors,
    )


def _pause(who: str, reason: str, name: str = "") -> Callable[[QueueKeys], Command]:
    shown = truncate(escape(reason.strip()), MAX_REASON)
    return partial(pause_command, who=_who(who), reason=shown, name=name)


def _who(who: str) -> str:
    return escape(who)[:MAX_WHO]


def _name(name: str) -> str:
    return truncate(escape(name.strip()), MAX_NAME)


@dataclass(frozen=True, slots=True)
class PausedQueues:
    """What one action on several queues has paused, or a queue that was paused by itself."""

    pause: Pause
    #: Of a queue some of whose partitions are paused otherwise, the partitions.
    queues: Sequence[str]
    #: Their messages that are ready.
    ready: int


def pauses(views: Sequence[QueueView]) -> list[PausedQueues]:
    """Return what paused these queues: first the actions on several queues, each once, then single queues."""
    found: dict[tuple[str, str], list[tuple[str, Pause, int]]] = {}
    for view in views:
        alike = len({part.pause and part.pause.name for part in view.each_part}) == 1
        for part in view.each_part:
            if part.pause is not None:
                shown = view.name if alike or part.pause.name else part.name
                which = (part.pause.name, "" if part.pause.name else shown)
                found.setdefault(which, []).append((shown, part.pause, part.ready))
    each = [
        PausedQueues(rows[0][1], list(dict.fromkeys(name for name, _, _ in rows)), sum(ready for _, _, ready in rows))
        for rows in found.values()
    ]
    return sorted(each, key=lambda one: not one.pause.name)


def offered_name() -> str:
    """Return a name for an action on several queues: when it is done."""
    return f"pause-{local(clock.now_ms()):%m%d-%H%M%S}"
