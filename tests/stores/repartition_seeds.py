"""Queues with partitions that have messages in every place, and what is in them."""

from collections import Counter, defaultdict

from mq_django.conf import get_config
from mq_django.core.limits import key_hash
from mq_django.core.messages import ACK, Bury, Delivery, HandBack, Retry, SetAside
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client, open_transport
from tests import places

KEYS = "abcdefghijkl"
#: What happened to the first message of each key.
OUTCOMES = (ACK, Retry(), Bury("no"), SetAside(), HandBack(), None)


class Seeded:
    """The queue `emails`, as processes with a number of partitions see it."""

    def __init__(self, mq_settings, **settings):
        self._configure, self._settings = mq_settings, settings

    def with_number(self, number, **options):
        """Use the settings of a process with this number of partitions."""
        self._options = getattr(self, "_options", {}) | options
        self._configure(QUEUES={"emails": {"PARTITIONS": number, **self._options}}, **self._settings)
        return self

    @property
    def whole(self):
        return get_config().queue("emails")

    @property
    def transport(self):
        return open_transport("consume")

    def stores(self):
        """Return the store of each partition."""
        found = [open_store(part, self.transport) for part in self.whole.each_part]
        for store in found:
            store.create_groups()
        return found

    def fill(self):
        """Put messages into every place, and return their ids by key, in their order."""
        sent = defaultdict(list)
        for number in range(3):
            for key in KEYS:
                sent[key].append(queues["emails"].publish("sms", f"{key}{number}", key=key))
        for store in self.stores():
            for item in take(store):
                outcome = OUTCOMES[KEYS.index(item.message.key) % len(OUTCOMES)]
                if outcome is ACK:
                    sent[item.message.key].remove(item.message.id)
                store.settle("c1", [Settlement(item, outcome or HandBack(), delay_ms=3_600_000)])
        for number in range(4):
            queues["emails"].publish("sms", number)
            queues["emails"].publish("later", number, delay=3600 + number)
            queues["emails"].publish("later", number, unique=f"once{number}", delay=3600, at_most=3600)
            queues["emails"].publish("once", number, unique=f"claim{number}", unique_for=3600)
            queues["emails"].publish("own", number, message_id=f"order-{number}", delay=3600)
        return sent

    def contents(self):
        """Return how often each message is in which place, of all partitions."""
        found = Counter()
        for part in self.whole.each_part:
            found.update(contents_of(part))
        return found

    def tokens(self):
        """Return which keys wait for a message, by the place of that."""
        found = Counter()
        for part in self.whole.each_part:
            for token, score in client_of(part).zrange(part.keys.permits, 0, -1, withscores=True):
                kind = token[:1].decode()
                found["ready" if kind in "01" else kind, key_of_hash(score)] += 1
        return found

    def handle_all(self):
        """Handle everything as consumers would, and return the data by key in the order in which it was handled."""
        handled = defaultdict(list)
        for store, part in zip(self.stores(), self.whole.each_part, strict=True):
            client, progress = client_of(part), True
            while progress:
                taken = take(store)
                store.settle("c1", [Settlement(item, ACK) for item in taken])
                for item in taken:
                    handled[item.message.key].append(item.message.data)
                for member in client.zrange(part.keys.due, 0, -1):
                    client.zadd(part.keys.due, {member: places.now_ms(client) - 1})
                moved = store.promote(limit=100).moved
                moved += store.release_unhandled(None, limit=100)
                letters = open_dead_letters(part, self.transport)
                moved += len(letters.redrive([entry.decode() for entry, _ in client.xrange(part.keys.dead)]))
                progress = bool(taken) or moved > 0
        return handled


def take(store):
    """Take what is ready."""
    found = []
    while taken := store.take("c1", count=100):
        found += taken
    return [item for item in found if isinstance(item, Delivery)]


def client_of(part):
    return get_client("chores", key=part.keys.wake)


def key_of_hash(score):
    return next((key for key in KEYS if float(key_hash(key)) == score), "?")


def contents_of(part):
    """Return how often each message is in which place of a partition. A line is of what is ready."""
    client, keys, found = client_of(part), part.keys, Counter()
    for stream, place in ((keys.ready, "ready"), (keys.front, "ready"), (keys.dead, "dead")):
        for _, fields in client.xrange(stream):
            found[place, fields.get(b"id", b"?")] += 1
    ids, waiting = client.hgetall(keys.unique), []
    for place in ("due", "unhandled", "parked", "priority"):
        for member in client.zrange(getattr(keys, place), 0, -1):
            waiting.append(member)
            found["ready" if place == "parked" else place, ids.get(member, member)] += 1
    assert sorted(client.hkeys(keys.waiting)) == sorted(waiting)
    return found
