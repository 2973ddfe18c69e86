"""The keys with the most messages of this hour: shares from a bounded sketch, see `lua/parts/noisy_keys.lua`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.numbers import whole
from mq_django.transport.scripts import Command

#: A key is noisy from this share of the messages on: below it, the sketch is not exact enough.
MIN_SHARE = 0.02
#: With fewer fetches in this hour, no share is known.
MIN_FETCHES = 20
#: Fields of the sketch that are read. It has 102, unless another program writes there.
MAX_FIELDS = 1000
#: Bytes of a key that are shown.
MAX_KEY = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """A key and its share of the messages that were fetched in this hour."""

    key: str
    #: The hash of the key, as in `mq_django.core.limits.key_hash()`.
    hash: int
    #: Estimated, 0 to 1.
    share: float


def noisy_command(config: QueueConfig) -> Command:
    """Return the command that reads the sketch of this hour."""
    return ("HSCAN", config.keys.noisy(clock.now_ms() // 3_600_000), 0, "COUNT", MAX_FIELDS)


def noisy_keys(reply: Any) -> Sequence[KeyShare]:
    """Return the noisy keys in the reply to noisy_command(), largest share first; none if the reply is an error."""
    if isinstance(reply, Exception):
        return ()
    flat = reply[1]
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    messages, fetches = whole(fields.pop(b"n", None)) or 0, whole(fields.pop(b"f", None)) or 0
    if fetches < MIN_FETCHES:
        return ()
    found = [_share(field, value, messages) for field, value in fields.items()]
    return sorted((each for each in found if each is not None), key=lambda each: (-each.share, each.hash))


def _share(field: bytes, value: bytes, messages: int) -> KeyShare | None:
    """Return the share of a key, None if it may be less than the least one that counts."""
    numbers, key_hash = value.split(b" ", 2), whole(field)
    if len(numbers) != 3 or key_hash is None or not messages:
        return None
    count, inherited = whole(numbers[0]), whole(numbers[1])
    if count is None or inherited is None or count - inherited < MIN_SHARE * messages:
        return None
    return KeyShare(key=numbers[2][:MAX_KEY].decode(errors="replace"), hash=key_hash, share=min(1.0, count / messages))
