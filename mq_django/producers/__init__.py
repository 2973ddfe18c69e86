"""Publishing: now, later, in bulk, and with the commit."""

from mq_django.producers.queues import Queue, Queues, queues

__all__ = ["Queue", "Queues", "queues"]
