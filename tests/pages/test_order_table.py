"""The table of docs/ordering.md: each of its rows happens to the first of three messages of a key."""

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Cancel, Expire, HandBack, Retry, SetAside
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.moving import Mover
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.pages.boxes import text_of
from tests.purging import purge

CONSUMER = "c1"


def rows():
    """Return the rows of the table, each as its three cells."""
    _, _, table = text_of("ordering").partition("| a message of a key…")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


class Key:
    """A queue with three messages of a key, the first of which runs."""

    def __init__(self, mq_settings, on_dead_letter):
        mq_settings(QUEUES={"orders": {"ORDERED": True, "ON_DEAD_LETTER": on_dead_letter}, "others": {}})
        self.config = get_config().queue("orders")
        self.transport = Session(get_client("consume"))
        self.store = open_store(self.config, self.transport)
        self.store.create_groups()
        for number in (1, 2, 3):
            queues["orders"].publish("paid", number, key="order:7")
        (self.first,) = self.store.take(CONSUMER, count=10)

    def settle(self, outcome, **more):
        assert self.store.settle(CONSUMER, [Settlement(self.first, outcome, **more)]) == []

    @property
    def dead(self):
        return open_dead_letters(self.config, self.transport)

    @property
    def entries(self):
        return self.dead.find([self.first.message.id])

    def waits(self):
        """Return whether no message of the key can run now."""
        taken = self.store.take(CONSUMER, count=10)
        self.store.settle(CONSUMER, [Settlement(item, HandBack()) for item in taken])
        return not taken

    def again(self):
        """Take what can run when nothing has to wait for a time, a handler or an operator."""
        self.store.reschedule(self.first.message.id, delay_ms=0)
        self.store.promote(limit=10)
        self.store.release_unhandled(None, limit=10)
        if any(self.entries) and self.config.on_dead_letter == "hold":
            self.dead.redrive([entry for entry in self.entries if entry])
        return self.store.take(CONSUMER, count=10)

    def rest(self):
        """Handle all that can run, also later, and return the numbers in this order."""
        found = []
        while taken := self.store.take(CONSUMER, count=10):
            found += [item.message.data for item in taken]
            self.store.settle(CONSUMER, [Settlement(item, ACK) for item in taken])
        return found


def published(key):
    key.settle(ACK)
    queues["orders"].publish("paid", 1, key="order:7")


def delayed(key):
    key.settle(ACK)
    queues["orders"].publish("paid", 1, key="order:7", delay=0.001)
    while not key.store.promote(limit=10).moved:
        pass


def retried(key):
    key.settle(Retry(), delay_ms=60_000)


def handed_back(key):
    key.settle(HandBack())


def of_a_dead_consumer(key):
    key.settle(HandBack(lost=True))


def unknown(key):
    key.settle(SetAside())


def buried(key):
    key.settle(Bury("no"))


def redriven(key):
    key.settle(Bury("no"))
    assert key.dead.redrive(key.entries) == ["REDRIVEN"]


def corrected(key):
    key.settle(Bury("no"))
    assert key.dead.resubmit(*key.entries, message_id="corrected", text=b"1") == "REDRIVEN"


def expired(key):
    key.settle(Expire())


def cancelled_while_it_waits(key):
    key.settle(Retry(), delay_ms=60_000)
    key.store.cancel(key.first.message.id)


def cancelled_while_it_runs(key):
    key.settle(Cancel())


def deleted(key):
    key.settle(Retry(), delay_ms=60_000)
    purge(key.store.config, "delayed", limit=1)


def moved(key):
    key.settle(Bury("no"))
    mover = Mover(key.config, key.transport, get_config().queue("others"))
    mover.remove(key.entries, mover.write(key.entries).words)


#: The text of the row -> what happens, ON_DEAD_LETTER.
EDGES = {
    "is published": (published, "continue"),
    "is published with `delay=` and becomes due": (delayed, "continue"),
    "fails and is tried again": (retried, "continue"),
    "runs past its `TIMEOUT` and is tried again": (retried, "continue"),
    "is handed back, because its consumer stops": (handed_back, "continue"),
    "was held by a consumer that died": (of_a_dead_consumer, "continue"),
    "has a name that no consumer knows": (unknown, "continue"),
    'becomes a dead letter, and `ON_DEAD_LETTER` is `"continue"`': (buried, "continue"),
    'becomes a dead letter, and `ON_DEAD_LETTER` is `"hold"`': (buried, "hold"),
    'is redriven after `"continue"`': (redriven, "continue"),
    'is redriven after `"hold"`': (redriven, "hold"),
    'is corrected and resubmitted after `"hold"`': (corrected, "hold"),
    "expires": (expired, "continue"),
    "is cancelled while it waits for another attempt": (cancelled_while_it_waits, "continue"),
    "is cancelled while it runs": (cancelled_while_it_runs, "continue"),
    "is deleted, or purged": (deleted, "continue"),
    "is moved to another queue by an operator": (moved, "hold"),
}
#: The place of the first message -> the order in which all are handled at last.
ORDERS = {"stays": [1, 2, 3], "at the end": [2, 3, 1], "leaves": [2, 3]}


@pytest.mark.parametrize(("what", "place", "state"), rows(), ids=[what for what, _, _ in rows()])
def test_the_table_is_true(mq_settings, what, place, state):
    happens, on_dead_letter = EDGES[what]
    key = Key(mq_settings, on_dead_letter)
    happens(key)
    if place == "stays" and happens not in (handed_back, of_a_dead_consumer, redriven, corrected):
        assert key.waits() is (state == "waits")
    if place == "stays":
        # Also once the message is ready again, it is the only one that can run.
        assert state == "waits"
        again = key.again()
        assert [item.message.data for item in again] == [1]
        key.store.settle(CONSUMER, [Settlement(item, HandBack()) for item in again])
    else:
        assert key.waits() is (state == "waits")
    assert key.rest() == ORDERS[place]


def test_every_row_is_played():
    assert [what for what, _, _ in rows()] == list(EDGES)
