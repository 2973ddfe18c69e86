"""A pool of a database with fewer connections than threads is named before and after it fails."""

import pytest
from django.core.checks import run_checks
from django.db import OperationalError, connections

from mq_django import queues, registry
from mq_django.checks import TAG
from mq_django.consumers.outage import pool_hint, small_pools
from mq_django.registry import Handler, handler
from tests.working import work

POSTGRES = "django.db.backends.postgresql"


@pytest.fixture
def pooled(monkeypatch):
    """Return a function that adds a database with a pool."""

    def add(pool, engine=POSTGRES):
        monkeypatch.setitem(connections.databases, "pooled", {"ENGINE": engine, "OPTIONS": {"pool": pool}})

    return add


class PoolTimeout(Exception):
    """As that of psycopg_pool, which need not be installed."""

    __module__ = "psycopg_pool.errors"


def test_a_pool_is_compared_with_threads(pooled, subtests):
    for pool, most in [
        (True, 4),
        ({"min_size": 2}, 2),
        ({"min_size": 2, "max_size": None}, 2),
        ({"max_size": 7}, 7),
        ({"timeout": 5}, 4),
        ({"max_size": 8}, None),
        (False, None),
        ({}, None),
        ({"max_size": "x"}, None),
    ]:
        with subtests.test(pool=pool):
            pooled(pool)
            found = small_pools(8)
            assert len(found) == (most is not None)
            assert all(f"DATABASES['pooled'] has at most {most} connections" in sentence for sentence in found)
    pooled(True, engine="django.db.backends.sqlite3")
    assert small_pools(8) == []


def test_check_warns_of_it_where_something_is_handled(pooled, mq_settings, monkeypatch, subtests):
    pooled(True)
    task = Handler(name="shop.tasks.add", queue=None, call=print)
    for handled in ({}, {(None, task.name): task}):
        with subtests.test(handled=list(handled)):
            monkeypatch.setattr(registry, "_handlers", handled)
            found = [message.msg for message in run_checks(tags=[TAG]) if message.id == "mq_django.W011"]
            assert len(found) == len(handled)
            assert all("'pooled'" in text for text in found)


def test_the_error_of_a_handler_that_waited_in_vain_names_it(pooled, handlers, mq_settings, caplog):
    pooled({"max_size": 2})

    @handler("default", "query")
    def query(message):
        raise OperationalError("couldn't get a connection after 30.00 sec") from PoolTimeout()

    queues["default"].publish("query", {})
    work("default")
    assert "DATABASES['pooled'] has at most 2" in caplog.text
    assert pool_hint(OperationalError("gone")) == pool_hint(PoolTimeout()) == ""
