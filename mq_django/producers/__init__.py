"""Publishing to queues and topics."""

from mq_django.producers.queues import Queue, Queues, queues
from mq_django.producers.topics import Group, Topic, Topics, topics

__all__ = ["Group", "Queue", "Queues", "Topic", "Topics", "queues", "topics"]
