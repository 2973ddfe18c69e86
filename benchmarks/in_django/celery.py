# /// script
# dependencies = ["celery[redis]==5.7.0", "hiredis==3.5.0", "Django>=5.2,<6", "psycopg[binary]>=3.2,<4"]
#
# [tool.bench]
# name = "Celery in Django"
# one_by_one = 0
# bulk = 0
# handled = 3000
# processes_for_eight = 8
# fast = "delay_on_commit(), else as Celery"
# ///
"""Celery in a Django project. It finds Django by the environment variable with the settings."""

from typing import Any

from benchmarks.peers.celery import consumer, handle

__all__ = ["consumer", "publish"]


def publish(kind: str, data: dict[str, Any]) -> None:
    handle.delay_on_commit(kind, data)
