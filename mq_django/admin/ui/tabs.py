"""The tabs of one queue's pages, and of the pages for all queues."""

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.utils import quote
from django.utils.translation import gettext as _

from mq_django.admin.ui.page import Page
from mq_django.admin.ui.text import number
from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.inspector.outbox_views import uses_outbox
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.topics import TopicView


def _parked(page: Page, name: str, current: str, view: QueueView) -> list[tuple[str, str, str, int]]:
    """Return the tab of parked messages if keys are limited or messages are parked."""
    if not (view.parked or current == "parked" or get_config().queue(name).limits.of_keys):
        return []
    return [("parked", _("Parked"), page.url("waiting", name, "parked"), view.parked)]


def _handled(page: Page, name: str, current: str) -> list[tuple[str, str, str, None]]:
    """Return the tab of handled messages if the queue keeps what became of them."""
    if current != "handled" and get_config().queue(name).keep_handled is None:
        return []
    return [("handled", _("Handled"), page.url("handled", name), None)]


def tabs(page: Page, name: str, current: str, view: QueueView | None = None) -> list[dict[str, Any]]:
    """Return the tabs of a queue's pages with message counts."""
    view = view or quick_stats(name)
    found = [
        ("queue", _("Group") if GROUP_SEPARATOR in name else _("Queue"), page.queue_url(name), None),
        ("ready", _("Ready"), page.url("ready", name), view.ready),
        ("pending", _("Pending"), page.url("pending", name), view.pending),
        ("delayed", _("Delayed"), page.url("waiting", name, "delayed"), view.delayed),
        ("unhandled", _("Unhandled"), page.url("waiting", name, "unhandled"), view.unhandled),
        *_parked(page, name, current, view),
        ("dead", _("Dead letters"), page.url("dead", name), view.dead),
        *_handled(page, name, current),
        ("history", _("History"), page.url("history", quote(name)), None),
    ]
    return _tabs(found, current)


def waiting_url(page: Page, view: QueueView) -> str:
    """Return the URL of the first list of waiting messages that is not empty."""
    room = "unhandled" if view.unhandled else "parked" if view.parked else "delayed"
    return page.url("waiting", view.name, "delayed" if view.delayed else room)


def topic_tabs(page: Page, view: TopicView, current: str) -> list[dict[str, Any]]:
    """Return the tabs of a topic's pages."""
    found = [
        ("topic", _("Topic"), page.queue_url(view.name), None),
        ("log", _("Log"), page.url("log", view.name), view.length),
        ("history", _("History"), page.url("history", quote(view.name)), None),
    ]
    return _tabs(found, current)


def _tabs(found: Sequence[tuple[str, str, str, int | None]], current: str) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "url": url,
            "count": None if count is None else number(count),
            "is_current": key == current,
        }
        for key, label, url, count in found
    ]


def sections(page: Page, current: str) -> list[dict[str, Any]]:
    """Return the tabs of the pages for all queues."""
    found = [
        ("queues", _("Queues"), page.url("changelist")),
        ("consumers", _("Consumers"), page.url("consumers")),
        ("workflows", _("Workflows"), page.url("workflows")),
    ]
    if current == "outbox" or uses_outbox():
        found.append(("outbox", _("Outbox"), page.url("outbox")))
    return [{"label": label, "url": url, "count": None, "is_current": key == current} for key, label, url in found]
