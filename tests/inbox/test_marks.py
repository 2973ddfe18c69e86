"""The mark `@exactly_once`, and what is checked before anything runs."""

import functools

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from mq_django import exactly_once, handler, registry, subscriber, task
from mq_django.conf import get_config
from mq_django.consumers.supervisor.preflight import check_inbox
from mq_django.core.handler_options import database_of
from mq_django.errors import ConfigurationError
from mq_django.inbox.once import databases_of, once_databases
from mq_django.registry import find, kinds
from mq_django.task_backend import backend
from tests.inbox.conftest import ALIAS

pytestmark = pytest.mark.usefixtures("handlers")


def nothing(message):
    """Do nothing."""


async def wait(message):
    """Do nothing, on a loop."""


def fresh(function):
    """Return a copy without marks: each test decorates one of its own."""

    @functools.wraps(function)
    def copy(message):
        return function(message)

    return copy


def test_it_names_the_database():
    class Books:
        def book(self, message):
            """Do nothing."""

    assert database_of(nothing) is None
    assert database_of(exactly_once(fresh(nothing))) == "default"
    assert database_of(exactly_once(using="other")(fresh(nothing))) == "other"
    assert database_of(exactly_once(Books().book)) == "default"


def test_the_registry_knows_it():
    handler("emails", "n")(exactly_once(using="other")(fresh(nothing)))
    subscriber("orders", group="g")(exactly_once(fresh(nothing)))
    assert find("emails", "n").once == "other"
    assert find("orders:g", "n").once == "default"
    assert (databases_of("emails"), databases_of("orders:g"), databases_of("sms")) == (["other"], ["default"], [])
    assert once_databases() == ["default", "other"]


def test_a_coroutine_function_runs_in_a_thread(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "_kinds", {})

    @handler("emails", "n")
    @exactly_once
    async def add(message):
        await wait(message)

    found = find("emails", "n")
    assert (found.is_async, found.on_loop) == (True, False)
    assert kinds("emails") == {False}


def test_another_decorator_in_between_passes_it_on():
    function = fresh(exactly_once(fresh(nothing)))
    handler("emails", "n")(function)
    assert find("emails", "n").once == "default"


def test_the_wrong_order_is_an_error_at_import(monkeypatch):
    # A task is in all queues, also of other tests.
    monkeypatch.setattr(backend, "_tasks", dict(backend._tasks))
    registered = handler("emails", "n")(fresh(nothing))
    with pytest.raises(ConfigurationError, match="is written below @handler"):
        exactly_once(registered)
    with pytest.raises(ConfigurationError, match="and not above"):
        exactly_once(task(fresh(nothing)))
    assert find("emails", "n").once is None


def test_what_is_no_alias_or_no_function_is_an_error():
    for using in ("", 7, None):
        with pytest.raises(ConfigurationError, match="alias of a database"):
            exactly_once(using=using)
    for function in (7, functools.partial(nothing), print):
        with pytest.raises(ConfigurationError, match="directly above a function"):
            exactly_once(function)


class TestChecks:
    def test_a_database_that_is_not_in_the_settings(self):
        handler("emails", "n")(exactly_once(using="nowhere")(fresh(nothing)))
        found = [message for message in run_checks() if message.id == "mq_django.E013"]
        assert len(found) == 1
        assert "'nowhere'" in found[0].msg
        with pytest.raises(ImproperlyConfigured, match="'nowhere'"):
            check_inbox([get_config().queue("emails")])

    def test_tables_that_are_there(self, using):
        handler("emails", "n")(exactly_once(using=ALIAS)(fresh(nothing)))
        assert [m for m in run_checks(databases=[ALIAS]) if m.id == "mq_django.W007"] == []
        check_inbox([get_config().queue("emails")])

    @pytest.mark.django_db(databases=["default", "other"], transaction=True)
    def test_tables_that_are_missing(self, monkeypatch):
        handler("emails", "n")(exactly_once(using="other")(fresh(nothing)))
        monkeypatch.setattr("django.db.backends.sqlite3.introspection.DatabaseIntrospection.table_names", lambda _: [])
        assert [m for m in run_checks() if m.id == "mq_django.W007"] == []
        found = [message.msg for message in run_checks(databases=["other"]) if message.id == "mq_django.W007"]
        assert len(found) == 2
        assert "migrate mq_django --database other" in found[0]
        with monkeypatch.context() as started:
            started.setattr("sys.argv", ["manage.py", "migrate"])
            assert [m for m in run_checks(databases=["other"]) if m.id == "mq_django.W007"] == []
        monkeypatch.setattr("django.db.backends.sqlite3.base.DatabaseWrapper.close", lambda _: None)
        with pytest.raises(ConfigurationError, match="no table mq_django_inbox"):
            check_inbox([get_config().queue("emails")])

    def test_without_the_mark_no_database_is_asked(self):
        check_inbox([get_config().queue("emails")])
