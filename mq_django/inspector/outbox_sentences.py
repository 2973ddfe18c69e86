"""The problems of outboxes as sentences, in the current language."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.core.visible import escape, truncate
from mq_django.inspector.figures import duration, number
from mq_django.inspector.outbox_views import OutboxProblem, OutboxView

#: Characters of an error of a database or a relay that a sentence shows.
LONGEST = 300


def outbox_sentence(view: OutboxView, what: OutboxProblem) -> str:
    """Return a text about a problem of an outbox, which follows the name of its queue or topic."""
    match what:
        case "unreadable":
            return _("cannot be read: %(error)s") % {"error": truncate(escape(view.error), LONGEST)}
        case "stopped":
            return _("gets no messages from its outbox: %(why)s") % {"why": truncate(escape(view.stopped), LONGEST)}
        case "late":
            return ngettext(
                "has %(count)s message in its outbox, which has waited for %(time)s. Is a relay running?",
                "has %(count)s messages in its outbox. The oldest has waited for %(time)s. Is a relay running?",
                view.waiting,
            ) % {"count": counted(view.waiting, is_more=view.is_more), "time": duration(view.waited_ms or 0)}
        case "set aside":
            return ngettext(
                "has %(count)s message in its outbox that cannot be published and was set aside.",
                "has %(count)s messages in its outbox that cannot be published and were set aside.",
                view.set_aside,
            ) % {"count": counted(view.set_aside, is_more=view.is_more)}


def counted(count: int, *, is_more: bool) -> str:
    """Return a number of rows, with a plus if there may be more."""
    return f"{number(count)}+" if is_more else number(count)
