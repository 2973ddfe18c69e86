"""Queues in Django's admin: statistics, messages, dead letters, and actions on them."""

from django.contrib import admin

from mq_django.admin.queue_admin import QueueAdmin
from mq_django.models import Queue

__all__ = ["QueueAdmin"]

admin.site.register(Queue, QueueAdmin)
