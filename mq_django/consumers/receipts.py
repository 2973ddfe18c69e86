"""The receipts of deliveries, as the shared state of a consumer has them."""

from hashlib import blake2b
from typing import NamedTuple, Self

#: Bytes of the longest entry that is stored: the largest stream id, or an id of RSMQ with its count. Of a longer one
#: the digest is stored.
MAX_ENTRY = 44
_DIGEST = b"blake2b:"


def stored_entry(entry: bytes) -> bytes:
    """Return an entry as the shared state stores it: itself, or its digest if it is too long."""
    return entry if len(entry) <= MAX_ENTRY else _DIGEST + blake2b(entry, digest_size=16).hexdigest().encode()


class Receipt(NamedTuple):
    """The id of a delivery: the number of its queue, the number of its stream, and the entry as stored here."""

    queue: int
    stream: int
    entry: bytes

    @classmethod
    def of(cls, queue: int, stream: int, entry: bytes) -> Self:
        """Return the receipt of a delivery."""
        return cls(queue, stream, stored_entry(entry))

    @property
    def is_digest(self) -> bool:
        """Return whether the entry is a digest, which Redis does not know."""
        return self.entry.startswith(_DIGEST)


class Running(NamedTuple):
    """A delivery that a lane runs. Times are seconds on the monotonic clock, which all processes of a machine share."""

    receipt: Receipt
    since: float
    #: When its handler must have ended; infinity without a timeout.
    deadline: float
    #: The number of the lane: threads come before the places of coroutines.
    lane: int = 0
