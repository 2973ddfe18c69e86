"""The read side: queues, messages and dead letters for the admin and the command `mq`, and their actions.

Producers and consumers do not use it. It returns frozen values, with the secrets in data, headers and errors replaced
(`mq_django.core.redaction`).
"""

from mq_django.inspector.message_ids import ids
from mq_django.inspector.queues import Totals, activity, groups_of, overview, queue, totals

__all__ = ["Totals", "activity", "groups_of", "ids", "overview", "queue", "totals"]
