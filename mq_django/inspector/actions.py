"""Actions on a queue and on selected messages. All are idempotent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys
from mq_django.core.messages import CancelResult
from mq_django.core.texts import escape, truncate
from mq_django.errors import QueueFull, StoreError
from mq_django.inspector.message_views import name_of
from mq_django.inspector.queues import all_configs, transports_of
from mq_django.stores import open_access
from mq_django.stores.control import changed, pause_command, resume_command
from mq_django.stores.partition_transport import prepared
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out

#: Characters of who paused a queue, and of the reason.
MAX_WHO, MAX_REASON = 200, 500


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
    """The result of pausing or resuming all queues."""

    #: The queues that were running before, or paused.
    changed: Sequence[str]
    #: Those that were paused already, or were not paused.
    unchanged: Sequence[str]
    #: The others, with the error of each.
    errors: Mapping[str, StoreError]


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
    configs = get_config().queue(name).each_part
    replies = fan_out(transports_of(configs), [[prepared(config, command(config.keys))] for config in configs])
    switched = [changed(reply) for (reply,) in replies]
    return any(switched)


def pause_all(*, who: str = "", reason: str = "") -> Switched:
    """Pause all queues and groups of topics; see pause().

    Raises:
        ConnectionLost: the connection broke. It is unknown which queues are paused.
    """
    return _switch_all(_pause(who, reason))


def resume_all() -> Switched:
    """Resume all queues and groups of topics.

    Raises:
        ConnectionLost: the connection broke. It is unknown which queues were resumed.
    """
    return _switch_all(resume_command)


def _switch_all(command: Callable[[QueueKeys], Command]) -> Switched:
    configs = all_configs()
    found: dict[str, bool | StoreError] = {}
    replies = fan_out(transports_of(configs), [[prepared(config, command(config.keys))] for config in configs])
    for config, (reply,) in zip(configs, replies, strict=True):
        try:
            found[config.name] = changed(reply)
        except StoreError as error:
            found[config.name] = error
    return Switched(
        [name for name, switched in found.items() if switched is True],
        [name for name, switched in found.items() if switched is False],
        {name: error for name, error in found.items() if isinstance(error, StoreError)},
    )


def _pause(who: str, reason: str) -> Callable[[QueueKeys], Command]:
    shown = truncate(escape(reason.strip()), MAX_REASON)
    return lambda keys: pause_command(keys, who=escape(who)[:MAX_WHO], reason=shown)
