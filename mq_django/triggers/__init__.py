"""Triggers: signals that enqueue tasks or publish messages."""

from mq_django.triggers.configured import check_triggers, connect_all
from mq_django.triggers.declarations import on_signal

__all__ = ["check_triggers", "connect_all", "on_signal"]
