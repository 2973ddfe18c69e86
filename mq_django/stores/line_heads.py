"""The line of one key: the command that reads it, and what lets it go on without its head."""

from typing import Literal

from mq_django.conf import QueueConfig
from mq_django.stores.partition_wire import wire_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: The hash of the line of messages without a key, which queues with FAIR have: see `lua/parts/lines.lua`.
NO_KEY = 10**16

#: See `lua/lines_skip.lua`.
Skip = Literal["SKIPPED", "CHANGED", "RUNS"]
_WORDS: dict[bytes, Skip] = {b"SKIPPED": "SKIPPED", b"CHANGED": "CHANGED", b"RUNS": "RUNS"}


def look_command(config: QueueConfig, key_hash: int, *, count: int, max_bytes: int) -> Command:
    """Return the command that reads up to `count` messages and tokens of a line: see `lua/lines_look.lua`."""
    keys = config.keys
    key_names = [keys.parked, keys.permits, keys.waiting, keys.unique, keys.due, keys.unhandled]
    return scripts.command(
        "lines_look",
        keys=[*key_names, keys.ready, keys.urgent, keys.dead],
        args=[keys.group, key_hash, count, max_bytes],
    )


def skip_head(config: QueueConfig, wire: Wire, key_hash: int, token: str) -> Skip:
    """Let a key go on without the message of this token, and wake a consumer.

    Returns:
        `CHANGED` if that message is no longer the head, `RUNS` if it does not wait.

    Raises:
        StoreError: cannot reach Redis, or it refused.
    """
    keys = config.keys
    skip = scripts.command("lines_skip", keys=[keys.permits, keys.next_checks], args=[key_hash, token])
    key_names = [keys.limits, keys.next_checks, keys.permit_wakeups]
    wake = scripts.command("lines_wake", keys=key_names, args=[config.limits.concurrency or 0])
    skipped, woken = (reply_or_raise(reply) for reply in wire_of(config, wire).trip([skip, wake]))
    del woken
    return _WORDS[skipped]
