"""resumable(): where it goes on, when it ends, and what it refuses."""

import asyncio
from contextvars import Context

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F

from mq_django import resumable
from mq_django.conf import get_config
from mq_django.consumers.worker.settler import ReportBook
from mq_django.core.messages import ACK, CANCEL, Delivery, HandBack, Message, Retry
from mq_django.core.running_handler import HandlerRun, running
from mq_django.errors import Interrupted, NotInHandler, NotResumable
from mq_django.stores.base import Settlement
from mq_django.transport.connections import open_transport
from tests.testapp.models import Cart, Order, Tag, Ticket

pytestmark = pytest.mark.django_db


class Runs:
    """Handlers of one message, one after another."""

    def __init__(self):
        self.config = get_config().queue("default")
        self.transport = open_transport("consume")
        self._number = 0

    def begin(self, published_ms=1):
        self._number += 1
        self.book = ReportBook(self.config)
        message = Message("m1", "n", None, "default", published_ms=published_ms)
        delivery = Delivery(message, 0, b"%d-0" % self._number, b"null")
        self.handler_run = HandlerRun(delivery, self.book.opened)
        running.set(self.handler_run)
        return self

    def end(self, outcome):
        self.book.end(self.handler_run, outcome)
        if self.handler_run.report:
            self.transport.pipeline(self.book.last_of([Settlement(self.handler_run.delivery, outcome)])[0])


@pytest.fixture
def runs(mq_settings):
    token = running.set(None)
    yield Runs().begin()
    running.reset(token)


@pytest.fixture
def tags():
    return [Tag.objects.create(name=str(number)) for number in range(7)]


def names(count=None, **options):
    """Return the names of the first rows that a run handles; it breaks off after `count` of them."""
    found = []
    for tag in resumable(Tag.objects.all(), **options):
        if len(found) == count:
            break
        found.append(tag.name)
    return "".join(found)


@pytest.mark.parametrize(
    ("chunk", "outcome"), [(1, Retry(error="no")), (2, HandBack()), (7, HandBack()), (100, Retry(error="no"))]
)
def test_the_next_run_goes_on_behind_the_last_item(runs, tags, chunk, outcome):
    assert names(3, chunk=chunk) == "012"
    runs.end(outcome)
    runs.begin()
    assert names(chunk=chunk) == "3456"


@pytest.mark.parametrize(
    ("outcome", "is_undone", "published_ms"),
    [(ACK, False, 1), (Retry(error="no"), True, 1), (CANCEL, False, 2)],
    ids=["handled", "rolled back", "another message with its id"],
)
def test_it_begins_anew(runs, tags, outcome, is_undone, published_ms):
    assert names(3) == "012"
    runs.handler_run.is_undone = is_undone
    runs.end(outcome)
    runs.begin(published_ms)
    assert names() == "0123456"


def test_an_item_in_which_the_handler_failed_is_repeated(runs, tags):
    def fail():
        for tag in resumable(Tag.objects.all()):
            if tag.name == "2":
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    runs.end(Retry(error="no"))
    runs.begin()
    assert names() == "23456"


def test_a_stop_ends_it_between_two_items(runs, tags):
    found = []

    def walk():
        for tag in resumable(Tag.objects.all()):
            found.append(tag.name)
            if tag.name == "3":
                runs.book.stopping.set()

    with pytest.raises(Interrupted):
        walk()
    assert found == ["0", "1", "2", "3"]
    assert runs.book.is_interrupt(Interrupted())
    runs.end(HandBack())
    runs.begin()
    assert names() == "456"


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_goes_on_as_well(runs, tags):
    async def walk(count):
        found = []
        async for tag in resumable(Tag.objects.all(), chunk=2):
            if len(found) == count:
                break
            found.append(tag.name)
        return "".join(found)

    assert asyncio.run(walk(3)) == "012"
    runs.end(Retry(error="no"))
    runs.begin()
    assert asyncio.run(walk(None)) == "3456"


def test_a_uuid_is_a_position(runs):
    expected = sorted(str(Ticket.objects.create().pk) for _ in range(5))
    found = []
    for ticket in resumable(Ticket.objects.all()):
        if len(found) == 2:
            break
        found.append(str(ticket.pk))
    runs.end(Retry(error="no"))
    runs.begin()
    found += [str(ticket.pk) for ticket in resumable(Ticket.objects.all())]
    assert found == expected


def test_two_querysets_have_positions_of_their_own(runs, tags):
    Cart.objects.create()
    assert names(3) == "012"
    assert len(list(resumable(Cart.objects.all()))) == 1
    assert names(1, name="other") == "0"
    runs.end(Retry(error="no"))
    runs.begin()
    assert (names(), names(name="other"), list(resumable(Cart.objects.all()))) == ("3456", "123456", [])


def test_rows_behind_the_position_that_are_deleted_do_not_matter(runs, tags):
    assert names(3) == "012"
    runs.end(Retry(error="no"))
    Tag.objects.filter(name__in="24").delete()
    runs.begin()
    assert names() == "356"


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_the_loop_may_delete_its_rows(runs, tags, chunk):
    for tag in resumable(Tag.objects.all(), chunk=chunk):
        tag.delete()
    assert not Tag.objects.exists()


@pytest.mark.parametrize("first", ["a", "z"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_the_loop_may_change_the_field_that_it_goes_by(runs, chunk, first):
    for number in range(7):
        Group.objects.create(name=f"k{number}")
    found = []
    for group in resumable(Group.objects.filter(name__startswith="k"), "name", chunk=chunk):
        found.append(group.name)
        group.name = first + group.name
        group.save()
    assert found == [f"k{number}" for number in range(7)]


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_may_delete_its_rows(runs, tags):
    async def walk():
        async for tag in resumable(Tag.objects.all(), chunk=2):
            await tag.adelete()

    asyncio.run(walk())
    assert not Tag.objects.exists()


def test_a_position_that_another_program_has_written_begins_anew_or_at_its_place(runs, tags, redis_client, subtests):
    for position in ["x", "", "nan", "1.5", "9" * 400]:
        with subtests.test(position=position):
            assert names(1) == "0"
            runs.end(Retry(error="no"))
            runs.begin()
            key = runs.config.keys.progress("m1")
            redis_client.hset(key, "positions", '{"testapp.tag.id":"' + position + '"}')
            try:
                assert names() in ("0123456", "")
            except OverflowError:
                pytest.fail("a number that the database cannot hold")
            runs.end(ACK)
            runs.begin()


def refused(queryset, by="pk", **options):
    with pytest.raises(NotResumable) as caught:
        list(resumable(queryset, by, **options))
    return str(caught.value)


def test_querysets_that_it_cannot_go_on_in_are_refused(runs):
    every = Tag.objects.all()
    assert "is sliced" in refused(every[:3])
    assert "an order of its own" in refused(every.order_by("name"))
    assert "an order of its own" in refused(every.reverse())
    assert "is distinct" in refused(every.distinct())
    assert "a union" in refused(every.union(Tag.objects.filter(pk=1)))
    assert "no model instances" in refused(every.values("name"))
    assert "no model instances" in refused(every.values_list("pk", flat=True))
    assert "locks its rows" in refused(every.select_for_update())
    assert "takes a queryset" in refused([1, 2])
    assert "takes a queryset" in refused(Tag.objects)
    assert names(0) == ""


def test_fields_that_are_no_position_are_refused(runs):
    assert "must be unique and not null" in refused(Tag.objects.all(), "name")
    assert "has no field 'nope'" in refused(Tag.objects.all(), "nope")
    assert "has no field" in refused(Tag.objects.all(), 7)
    assert "has no field" in refused(Tag.objects.all(), "-id")
    assert "must be unique" in refused(Order.objects.all(), "cart")
    assert "it is not one column" in refused(Cart.objects.all(), "tags")
    assert "not one column" in refused(Tag.objects.all(), "cart")


def test_names_and_chunks_that_cannot_be_used_are_refused(runs):
    every = Tag.objects.all()
    for chunk in (0, -1, 10_001, True, "5", None, 1.5):
        assert "chunk must be an integer" in refused(every, chunk=chunk)
    for name in ("", "x" * 101, "a\n", 7, b"x"):
        assert "name must be" in refused(every, name=name)
    list(resumable(every))
    assert "iterates over 'testapp.tag.id' already" in refused(every)
    for number in range(15):
        list(resumable(every, name=f"n{number}"))
    assert "up to 16 querysets" in refused(every, name="one more")


@pytest.mark.django_db(transaction=True)
def test_inside_a_transaction_it_is_refused(runs, tags):
    with transaction.atomic():
        assert "cannot begin inside atomic()" in refused(Tag.objects.all())
    for tag in resumable(Tag.objects.all(), name="outside"):
        with transaction.atomic():
            Tag.objects.filter(pk=tag.pk).update(name=F("id"))


def test_outside_a_handler_it_is_refused(mq_settings):
    with pytest.raises(NotInHandler, match=r"resumable\(\) works only while a consumer runs a handler"):
        Context().run(resumable, Tag.objects.all())
