"""Queues in Django's admin: statistics, messages, dead letters, and actions on them.

`queue_admin.QueueAdmin` is one entry in the admin's index. Its `ROUTES` lead to the pages, which are functions in the
modules whose names end in `_page` or `_pages`, and share what is in `ui/`. Pages read through the inspector and act
through its actions:

    overview -> queue_page -> message_lists -> message_pages: one message
                           -> job_pages: background jobs, bulk_pages: act on what is selected, or on all that match
             -> topic_pages -> topic_log
             -> find_page: messages of all queues
             -> consumer_pages, outbox_page, schedule_rows, schedule_pages, run_pages, metrics_pages, activity_pages

The model `Queue` has the permissions: to see queues, to see the data of messages, to operate queues, to purge
them. Each page names what it needs. Each action is a POST and is written into the admin's log; what cannot be undone
asks first.

A page never imports redis, never shows more than a screen has room for, and never waits for longer than its budget
when a server is slow.
"""

from django.contrib import admin

from mq_django.admin.queue_admin import QueueAdmin
from mq_django.models import Queue

__all__ = ["QueueAdmin"]

admin.site.register(Queue, QueueAdmin)
