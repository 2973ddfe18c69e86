"""Reads of queues, messages and dead letters for the admin and the command `mq`, and actions on them.

Readers return views: frozen values with the secrets in data, headers and errors replaced
(`mq_django.core.redaction`). Pages and `mq --json` show the same views.

    readers        choose the reader of a kind of queue: streams, RSMQ's format
    statistics     the counts of many queues, in one round trip a server
    queues, topics, consumers, dead_letters, message_lists, outbox_views, workflow_runs: what their names say
    explain        why a message is not running: the most immediate cause
    problem_list   what is wrong with queues: the one list of all pages, commands and signals
    action_log     who did what to queues, and what can be undone
    doctor/        what is wrong with a project

Everything that is read is bounded: lists are pages, scans look at a limited number of messages and go on from a
cursor, and a server that does not answer costs one timeout.

Producers and consumers never use this package, so that nothing people look at is on the way of a message.
"""

from mq_django.core.project import Thresholds
from mq_django.inspector.key_lines import KeyLine, key_line
from mq_django.inspector.problem_list import QueueProblem, problems
from mq_django.inspector.processes import ping
from mq_django.inspector.queues import Totals, activity, groups_of, overview, queue, totals
from mq_django.inspector.readers import ids

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
