"""What people look at: queues, messages, dead letters, and the few things they do to them.

The admin and the command `mq` are its clients; what publishes and consumes never is. Everything comes out as
frozen values, with the secrets in data, headers and errors replaced (`mq_django.core.redaction`).
"""

from mq_django.inspector.message_ids import ids
from mq_django.inspector.queues import Totals, activity, groups_of, overview, queue, totals

__all__ = ["Totals", "activity", "groups_of", "ids", "overview", "queue", "totals"]
