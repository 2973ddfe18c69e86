"""Reads of queues, messages and dead letters for the admin and the command `mq`, and actions on them.

Producers and consumers do not use it. Its views are frozen values, with the secrets in data, headers and errors
replaced (`mq_django.core.redaction`).
"""

from mq_django.core.thresholds import Thresholds
from mq_django.inspector.found_problems import QueueProblem, problems
from mq_django.inspector.key_lines import KeyLine, key_line
from mq_django.inspector.message_ids import ids
from mq_django.inspector.processes import ping
from mq_django.inspector.queues import Totals, activity, groups_of, overview, queue, totals

__all__ = [
    "KeyLine",
    "QueueProblem",
    "Thresholds",
    "Totals",
    "activity",
    "groups_of",
    "ids",
    "key_line",
    "overview",
    "ping",
    "problems",
    "queue",
    "totals",
]
