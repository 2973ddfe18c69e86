"""Triggers: signals that enqueue tasks or publish messages.

A trigger connects a signal of Django, such as `post_save`, to a task or a message. It fires when the transaction in
which the signal was sent commits, with a delay if it has one. `@on_signal` declares one in code, and
`MQ_DJANGO["SIGNALS"]` in the settings; both make the same `declarations.Trigger`:

    signal -> Receiver: the condition, the arguments, the key -> Target: a task, or a message of a queue

With a key and a delay, a later signal about the same object replaces the message of an earlier one. A trigger may
name signals that cancel what it has published.

Models and signals are named by text, such as "shop.Order", and connected when all apps are loaded. Nothing is
imported by a name that comes from a message. What a trigger raises is logged, and the change that sent the signal
goes on, unless the trigger is strict.

Fixtures that are loaded send no messages.
"""

from mq_django.triggers.declarations import check_triggers, connect_all, on_signal

__all__ = ["check_triggers", "connect_all", "on_signal"]
