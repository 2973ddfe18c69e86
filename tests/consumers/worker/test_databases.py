"""What a handler does to its database connections ends with its message."""

import asyncio
import logging
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.cache import caches
from django.db import OperationalError, connection, connections, reset_queries, transaction
from django.utils import timezone, translation

from mq_django.consumers.worker import call_path
from mq_django.consumers.worker.databases import Databases, databases_within
from mq_django.core.messages import ACK, Ack, Bury, HandBack, Retry
from tests import working
from tests.consumers.rig import running
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.versions]


@pytest.fixture
def rig(mq_settings):
    # One slot, so that each message follows the last.
    with running(threads=1) as found:
        yield found


def run(rig, *calls):
    """Run functions one after another in one slot, and return their outcomes."""
    for call in calls:
        rig.put(call)
    return rig.outcomes(len(calls))


def run_coroutines(rig, *calls):
    outcomes = []
    for call in calls:
        rig.put(call, is_async=True)
        outcomes += rig.outcomes()
    return outcomes


def begin():
    transaction.atomic().__enter__()


def begin_twice():
    begin()
    Group.objects.create(name="lost")
    transaction.atomic().__enter__()


def autocommit_off():
    transaction.set_autocommit(False)
    Group.objects.create(name="lost")


def close_within():
    begin()
    connection.close()


def sql_begin():
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


LEAVE_OPEN = [begin, begin_twice, autocommit_off, close_within, sql_begin]


def test_an_open_transaction_costs_no_later_message_its_effects(rig, caplog):
    hooks = []

    def creates(message):
        Group.objects.create(name=message.id)
        transaction.on_commit(lambda: hooks.append(message.id))

    caplog.set_level(logging.ERROR)
    for count, leave in enumerate(LEAVE_OPEN, 1):
        caplog.clear()
        outcomes = run(rig, lambda message: leave(), creates, creates)  # noqa: B023
        assert [type(outcome) for outcome in outcomes] == [Retry, Ack, Ack], leave
        assert "The handler left" in outcomes[0].error
        assert sorted(Group.objects.values_list("name", flat=True)) == sorted(hooks)
        assert len(hooks) == 2 * count
        (told,) = [line for line in caplog.messages if "rolled back" in line]
        assert told.startswith("Handler ")


def test_the_outcome_that_a_handler_chose_stays(rig):
    def leaves(message):
        begin()
        return Bury("no")

    assert run(rig, leaves) == [Bury("no")]


def test_a_handler_that_keeps_its_own_order_is_left_alone(rig, caplog):
    def commits(message):
        transaction.set_autocommit(False)
        Group.objects.create(name="kept")
        transaction.commit()
        transaction.set_autocommit(True)

    def nests(message):
        with transaction.atomic(), transaction.atomic():
            Group.objects.create(name="nested")

    assert [type(outcome) for outcome in run(rig, commits, nests)] == [Ack, Ack]
    assert Group.objects.count() == 2
    assert caplog.messages == []


def test_a_coroutine_is_no_exception(rig, caplog):
    async def creates(message):
        await Group.objects.acreate(name=message.id)

    caplog.set_level(logging.ERROR)
    for count, leave in enumerate(LEAVE_OPEN, 1):
        caplog.clear()

        async def leaves(message):
            await sync_to_async(leave)()  # noqa: B023

        outcomes = run_coroutines(rig, leaves, creates)
        assert [type(outcome) for outcome in outcomes] == [Retry, Ack], leave
        assert Group.objects.count() == count
        assert any("rolled back" in line for line in caplog.messages)


def test_a_coroutine_beside_one_that_leaves_a_transaction_open_runs_again_alone(rig, caplog):
    """Coroutines share a connection: what the innocent one wrote was in the transaction of the other."""
    opened, wrote = asyncio.Event(), asyncio.Event()

    async def leaves(message):
        await sync_to_async(begin)()
        opened.set()
        await wrote.wait()

    async def creates(message):
        await opened.wait()
        await Group.objects.acreate(name=message.id)
        wrote.set()

    for call in (leaves, creates):
        rig.put(call, is_async=True)
    assert rig.outcomes(2) == [HandBack(suspect=True)] * 2
    assert Group.objects.count() == 0
    assert "runs again alone" in caplog.text
    assert run_coroutines(rig, creates) == [ACK]
    assert Group.objects.count() == 1


class LeftAlone:
    """A slot on an event loop whose databases are found disturbed; what runs beside it ends during the clean-up."""

    number, rollbacks, held, checked, cancelled = 0, 0, ("a connection",), math.inf, False

    def __init__(self):
        self.databases, self.alone = self, False

    def is_alone(self):
        return self.alone

    async def call(self, function, message, timeout):
        return function(message)

    def is_disturbed(self):
        return True

    def clean_up(self):
        self.rollbacks, self.alone = 1, True
        return "a transaction"


def test_a_coroutine_is_not_blamed_for_what_ran_beside_it_and_ended_first(rig):
    item = rig.item(lambda message: None, is_async=True)
    working.handle(rig.executor, item.delivery, item.path.handler, LeftAlone())
    assert rig.outcomes() == [HandBack(suspect=True)]


def test_within_the_transaction_of_a_test_its_depth_is_restored():
    """As in a TestCase that runs handlers in its own thread."""
    with transaction.atomic():
        Group.objects.create(name="of the test")
        databases = Databases.of_this_thread()
        begin_twice()
        assert databases.is_disturbed()
        assert databases.clean_up() == "a transaction in database 'default'"
        assert not databases.is_disturbed()
        Group.objects.create(name="also of the test")
    assert set(Group.objects.values_list("name", flat=True)) == {"of the test", "also of the test"}


def test_a_connection_that_was_named_and_not_opened_is_none_that_was_left(mq_settings):
    """As `apublish()` does, which looks for a transaction."""

    def in_a_new_thread():
        assert not connection.in_atomic_block
        assert connection.connection is None
        with databases_within() as found:
            Group.objects.count()
            was_disturbed = found.is_disturbed()
            connection.close()
        return was_disturbed

    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(in_a_new_thread).result()


def test_a_broken_connection_costs_one_error(rig, monkeypatch):
    broken = []

    def breaks(message):
        Group.objects.count()
        held = connection.connection
        # As a server does that has ended the session.
        held.close()
        broken.append(held)

    def counts(message):
        Group.objects.count()

    def catches(message):
        try:
            Group.objects.count()
        except Exception:  # noqa: BLE001 - whatever the driver says
            return

    outcomes = run(rig, breaks, counts, counts, breaks, catches, counts)
    assert [type(outcome) for outcome in outcomes] == [Ack, Retry, Ack, Ack, Ack, Ack]
    assert OperationalError.__name__ in outcomes[1].error or "ProgrammingError" in outcomes[1].error


@pytest.mark.parametrize("max_age", [0, None])
def test_an_idle_loop_keeps_no_connection_that_is_too_old(rig, max_age):
    """With CONN_MAX_AGE=0 that is each; with None there is none."""
    seen = []

    def ask():
        connection.close()
        connection.settings_dict["CONN_MAX_AGE"] = max_age
        Group.objects.count()
        seen.append(connections["default"])

    async def handler(message):
        await sync_to_async(ask)()

    run_coroutines(rig, handler)
    wait_until(lambda: not rig.loop._tasks)
    (used,) = seen
    used.settings_dict["CONN_MAX_AGE"] = 0
    assert (used.connection is None) is (max_age == 0)


def test_only_connections_of_the_settings_are_looked_at(rig):
    own = []

    def copies(message):
        own.append(connections["default"])
        Group.objects.count()
        other = connection.copy()
        other.connect()
        other.close()

    run(rig, *[copies] * 3)
    assert [held.connection for held in rig.threads.slots[0].databases.held] == own[:1]


def test_locale_and_time_zone_end_with_the_message(rig):
    found = []

    def changes(message):
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    def looks(message):
        found.append((translation.get_language(), timezone.get_current_timezone_name()))

    run(rig, looks, changes, looks)
    assert found[0] == found[1]


def test_the_messages_of_a_slot_share_its_cache_client(rig):
    found = []
    run(rig, *[lambda message: found.append(caches["default"])] * 3)
    assert found[0] is found[1] is found[2]


def test_a_thread_gets_back_the_connections_that_it_noted_before():
    def noted(databases):
        databases.held = ()
        connection.close()
        connection.ensure_connection()
        return [held.connection for held in databases.held]

    before = Databases.of_this_thread()
    with databases_within() as inner:
        assert (noted(inner), before.held is inner.held) == ([connections["default"]], False)
    assert noted(before) == [connections["default"]]


def test_the_queries_that_django_logs_with_debug_do_not_pile_up(rig, settings, monkeypatch):
    settings.DEBUG = True
    monkeypatch.setattr(call_path, "CONNECTION_CHECK", 0.0)
    logged = []

    def query(message):
        Group.objects.count()
        logged.append(len(connection.queries_log))

    run(rig, *[query] * 3)
    assert logged[0] == logged[-1] > 0


def test_a_test_keeps_the_queries_that_its_handlers_have_made(settings):
    settings.DEBUG = True
    reset_queries()
    with databases_within() as databases:
        Group.objects.count()
        databases.note(connection)
        databases.refresh()
    assert len(connection.queries) == 1
