# /// script
# dependencies = [
#   "dramatiq[redis]==2.2.1", "hiredis==3.5.0", "orjson==3.13.0", "Django>=5.2,<6", "psycopg[binary]>=3.2,<4",
# ]
#
# [tool.bench]
# name = "Dramatiq in Django"
# one_by_one = 0
# bulk = 0
# handled = 6000
# fast = "send() by transaction.on_commit(), else as Dramatiq"
# ///
"""Dramatiq in a Django project."""

from functools import partial
from typing import Any

from django.db import transaction

from benchmarks.peers import dramatiq
from benchmarks.peers.dramatiq import consumer

__all__ = ["consumer", "publish"]


def publish(kind: str, data: dict[str, Any]) -> None:
    transaction.on_commit(partial(dramatiq.publish, kind, data))
