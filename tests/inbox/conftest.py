"""A database with the tables of the inbox and one for effects, and threads that run handlers."""

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import Delivery, Message
from mq_django.models import InboxMessage
from mq_django.stores import open_store
from mq_django.transport.connections import open_transport
from tests.consumers.rig import running
from tests.databases.database_servers import KINDS
from tests.inbox.effects import Effects
from tests.waiting import wait_until

ALIAS = "inboxes"


#: For what differs between databases: how a row is written and locked, and how a transaction ends.
on_each_database = pytest.mark.parametrize("kind", KINDS, indirect=True)


@pytest.fixture
def kind(request):
    """The kind of the test's database."""
    return getattr(request, "param", "sqlite")


@pytest.fixture
def using(kind, databases, django_db_blocker):
    """The alias of a database whose tables are empty. Nothing of a test is in a transaction."""
    with django_db_blocker.unblock(), databases.added(ALIAS, kind):
        effects = Effects(ALIAS)
        effects.create()
        effects.clear()
        yield ALIAS


@pytest.fixture
def effects(using):
    return Effects(using)


@pytest.fixture
def rows(using):
    """Return the rows of the inbox."""
    return lambda: list(InboxMessage.objects.using(using).order_by("message_id"))


@pytest.fixture
def depths(mq_settings):
    """Return a function that counts the messages of a queue by place."""
    return lambda queue: open_store(get_config().queue(queue), open_transport("inspect", "")).depths()


class Consumer:
    """Threads of a consumer that run deliveries of the queue `default`, and the outcomes."""

    def __init__(self, rig):
        self.rig = rig
        self._entries = 0
        self._outcomes = []

    def handle(self, call, *, name="n", **options):
        self.rig.handle(name, call, **options)

    def start(self, message_id="m", data=1, **attributes):
        """Start a delivery of a message."""
        self._entries += 1
        entry = f"1-{self._entries}".encode()
        history = attributes.pop("history", "")
        message = Message(message_id, "n", data, "default", **attributes)
        self.rig.dispatcher.dispatch([Delivery(message, 0, entry, b"1", history=history)])

    def outcomes(self, count):
        """Return the outcomes of all deliveries, when there are so many."""

        def earlier_outcome():
            self._outcomes += [settlement.outcome for settlement in self.rig.settler._take()]
            return len(self._outcomes) >= count

        wait_until(earlier_outcome)
        return self._outcomes

    def run(self, *arguments, **attributes):
        """Run a delivery, and return its outcome."""
        before = len(self._outcomes)
        self.start(*arguments, **attributes)
        return self.outcomes(before + 1)[-1]


@pytest.fixture
def consumer(mq_settings, using):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    with running(threads=4, batch=20) as rig:
        yield Consumer(rig)
