"""Read queues and messages, and act on them: what the admin and `manage.py mq` do, for pages and scripts of a project.

    from mq_django import inspect

    for queue in inspect.queues():  # in one round trip a server
        print(queue.name, queue.ready, queue.dead, queue.problems())

    page = inspect.messages("emails", "dead", inspect.Filter(name="invoice"), limit=50)
    for message in page.rows:
        print(message.id, message.name, message.error)
    inspect.redrive("emails", [message.id for message in page.rows])

Topics, groups and schedules have methods of their own: see `mq_django.topics` and `queues["emails"].schedules`.

A message is in one state: `ready`, `pending`, `delayed`, `unhandled`, `parked` or `dead`. With KEEP_HANDLED, `handled`
says what became of it. A topic has those of its `log`. Each list is read with a filter and a cursor, a bounded number
of messages at a time, so a call takes a fraction of a second however long the queue is.

Secrets in data, headers, keys and errors are replaced, as the setting REDACT says: nothing here returns them. Nothing
here asks who calls: a page checks the permissions of its user before.

Actions can be repeated, and act on what is still in its state: an Outcome counts what was done, what was gone and what
was refused. What concerns thousands of messages is a background job that consumers do: see start_job().

Producers and consumers never use this module, so that nothing people look at is on the way of a message.
"""

from mq_django.core.filters import FailureGroup, Filter
from mq_django.core.thresholds import Thresholds
from mq_django.inspector.actions import Outcome, cancel, pause, resume
from mq_django.inspector.dead_letters import delete_messages as delete
from mq_django.inspector.dead_letters import groups as dead_groups
from mq_django.inspector.dead_letters import redrive_messages as redrive
from mq_django.inspector.dead_letters import resubmit_message as resubmit
from mq_django.inspector.explain import why_not_running as why
from mq_django.inspector.found_problems import QueueProblem, problems
from mq_django.inspector.jobs import begin as start_job
from mq_django.inspector.jobs import cancel as cancel_job
from mq_django.inspector.jobs import look_all as jobs
from mq_django.inspector.message_lists import find_message, get_message, in_log, messages
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.moves import move_messages as move
from mq_django.inspector.processes import ask, ping
from mq_django.inspector.processes import everybody as consumers
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import activity, queue, totals
from mq_django.inspector.queues import overview as queues
from mq_django.inspector.stream_reader import Scanned
from mq_django.inspector.whereabouts import find_everywhere
from mq_django.inspector.workflow_runs import look_at_runs as runs
from mq_django.inspector.workflow_runs import look_at_steps as steps
from mq_django.inspector.workflow_runs import run

__all__ = [
    "FailureGroup",
    "Filter",
    "MessageView",
    "Outcome",
    "QueueProblem",
    "QueueView",
    "Scanned",
    "Thresholds",
    "activity",
    "ask",
    "cancel",
    "cancel_job",
    "consumers",
    "dead_groups",
    "delete",
    "find_everywhere",
    "find_message",
    "get_message",
    "in_log",
    "jobs",
    "messages",
    "move",
    "pause",
    "ping",
    "problems",
    "queue",
    "queues",
    "redrive",
    "resubmit",
    "resume",
    "run",
    "runs",
    "start_job",
    "steps",
    "totals",
    "why",
]
