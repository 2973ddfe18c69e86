"""The keys of queues in RSMQ's format. No other module builds one."""

from dataclasses import dataclass

from mq_django.core.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class RsmqKeys(QueueKeys):
    """The keys of a queue in RSMQ's format, and our additional keys.

    RSMQ puts no braces around a name. On a Redis Cluster the namespace has the hash tag, as in `{rsmq}`. RSMQ's ZSET of
    ids by visibility and HASH of bodies by id correspond to `due` and `waiting`, and are available under these names,
    too.
    """

    def _key(self, kind: str) -> str:
        if kind == "due":
            return self.zset
        if kind == "waiting":
            return self.hash
        return f"{self.namespace}:{self.queue}:mq:{kind}"

    @property
    def zset(self) -> str:
        """RSMQ's ZSET, score the time in ms from which it is visible: ids."""
        return f"{self.namespace}:{self.queue}"

    @property
    def hash(self) -> str:
        """RSMQ's HASH: the queue's attributes, and each message's body, receive count and first receive."""
        return f"{self.namespace}:{self.queue}:Q"

    @property
    def names(self) -> str:
        """RSMQ's SET of the names of all queues."""
        return f"{self.namespace}:QUEUES"

    @property
    def realtime(self) -> str:
        """RSMQ's pub/sub channel: the number of messages after a send."""
        return f"{self.namespace}:rt:{self.queue}"

    @property
    def owners(self) -> str:
        """HASH: id -> our consumer that holds it, and the receive count at that time."""
        return self._key("owners")

    @property
    def notes(self) -> str:
        """HASH: id:free, the number of receives that do not count as attempts; id:alone; id:lost."""
        return self._key("notes")

    @property
    def retried(self) -> str:
        """ZSET, score the time in ms from which it is visible: ids that wait for another attempt."""
        return self._key("retried")

    def streams(self) -> tuple[str, ...]:
        """Return the streams by `Delivery.stream`: there are none."""
        return ()

    def own(self) -> list[str]:
        """Return our keys that are deleted with the queue: all but dead letters, their job, counters and `moved`."""
        waiting = [self.notes, self.retried, self.unhandled, self.expired, self.message_job]
        return [self.owners, *waiting, self.control, self.consumers]
