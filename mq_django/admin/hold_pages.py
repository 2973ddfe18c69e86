"""What is held of a queue: the section of its page, the form that holds some of its messages, and their release."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.message_pages import state_of
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, because, confirm, needs, reason_input
from mq_django.core.breakers import MAX_HOLDS, Hold, hold_score
from mq_django.core.jsontext import whole
from mq_django.core.message_format import MAX_NAME_LENGTH
from mq_django.core.redaction import redact_forms
from mq_django.errors import InvalidFilter, QueueFull, StoreError
from mq_django.inspector import holds
from mq_django.inspector.actions import MAX_REASON
from mq_django.inspector.message_lists import get_message
from mq_django.inspector.message_views import ref_of
from mq_django.inspector.problem_sentences import breaker_cause, hold_details, period
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats

#: For how long messages may be held; without one of these, until they are released.
SPANS = tuple(timedelta(minutes=minutes) for minutes in (15, 60, 240, 1440, 10_080))

FIELDS = ("name", "key", "span", "probe", "reason")


def section(page: Page, view: QueueView) -> dict[str, Any]:
    """Return what is held of a queue, and the address of the form that holds more."""
    found = view.holds
    # How many messages wait is shown as unknown then.
    with suppress(StoreError):
        found = holds.counted(view.name, found)
    can_hold = page.can(OPERATE) and holds.can_hold(view.name)
    return {
        "held": [_row(page, view, hold) for hold in found],
        "hold_url": page.url("hold", view.name) if can_hold else "",
    }


def _row(page: Page, view: QueueView, hold: Hold) -> dict[str, Any]:
    cause = breaker_cause(hold) if hold.by_breaker else hold.reason
    return {
        "what": _what(page, hold),
        "messages": "" if hold.messages is None else text.number(hold.messages),
        "why": text.visible(cause, limit=MAX_REASON) if cause else "",
        "who": text.visible(hold.who, limit=80) if hold.who else "",
        "since": text.moment(hold.since_ms, now=view.now_ms),
        "until": _until(view, hold),
        "url": page.url("end_hold", view.name, str(hold_score(hold.subject))) if hold.holds(view.now_ms) else "",
    }


def _what(page: Page, hold: Hold) -> SafeString | str:
    """Return what is held. A key may contain message data."""
    if hold.kind == "queue":
        return _("the whole queue")
    if hold.kind == "key" and not page.can(SEE_DATA):
        return _("a key")
    words = _("name %(value)s") if hold.kind == "name" else _("key %(value)s")
    return format_html(words.replace("%(value)s", "{}"), text.visible(redact_forms(hold.value), limit=200))


def _until(view: QueueView, hold: Hold) -> SafeString | str:
    if not hold.holds(view.now_ms):
        return _("it is being released")
    if hold.state == "ramp":
        return ngettext("%(count)s message at once", "%(count)s messages at once", hold.level) % {
            "count": text.number(hold.level)
        }
    if hold.state == "open":
        if hold.next_ms is None or hold.next_ms <= view.now_ms:
            return _("the next message is a probe")
        return format_html("{} {}", _("next probe:"), text.moment(hold.next_ms, now=view.now_ms))
    return text.moment(hold.until_ms, now=view.now_ms) or _("it is released")


@needs(VIEW, OPERATE)
def hold(page: Page, name: str) -> HttpResponse:
    """Hold the messages of a name or a key, or open a breaker, by a form."""
    if not holds.can_hold(name):
        return page.leave(page.queue_url(name), _("Messages of a queue in RSMQ's format cannot be held."))
    if not page.is_confirmed:
        return _form(page, name, _begun(page, name))
    asked = {field: page.request.POST.get(field, "").strip() for field in FIELDS}
    try:
        _hold(page, name, asked)
    except InvalidFilter as error:
        page.say(messages.ERROR, str(error))
    except QueueFull:
        most = {"most": text.number(MAX_HOLDS)}
        page.say(messages.ERROR, _("The queue has %(most)s holds, which are the most it can have.") % most)
    else:
        page.log(name, f"{_logged(asked)}{because(asked['reason'])}")
        return page.leave(page.queue_url(name), _("The messages are held."), messages.SUCCESS)
    return _form(page, name, asked)


def _begun(page: Page, name: str) -> dict[str, str]:
    """Return the first content of the form: what a link has, which names a message rather than its key."""
    asked = {**dict.fromkeys(FIELDS, ""), "name": filter_form.given(page, "name") or ""}
    ref = filter_form.given(page, "ref")
    if ref and page.can(SEE_DATA):
        view = get_message(name, state_of(filter_form.given(page, "state") or ""), ref_of(text.from_url(ref)))
        asked["key"] = (view.key if view is not None else None) or ""
        if not asked["key"]:
            page.say(messages.WARNING, _("The message is no longer here: give its key."))
    return asked


def _hold(page: Page, name: str, asked: dict[str, str]) -> None:
    """Hold messages.

    Raises:
        InvalidFilter: the form does not say which, or for how long.
        QueueFull: the queue has too many holds.
    """
    about = {field: asked[field] or None for field in ("name", "key")}
    given: dict[str, Any] = {**about, "who": page.username, "reason": asked["reason"]}
    span, probe = {period(span): span for span in SPANS}.get(asked["span"]), whole(asked["probe"])
    if bool(asked["probe"]) != bool(probe) or bool(asked["span"]) != (span is not None):
        raise InvalidFilter(_("There is no such time."))
    if asked["name"] and asked["key"]:
        raise InvalidFilter(_("Give a name or a key, not both."))
    if probe and span is not None:
        raise InvalidFilter(_("A breaker closes when a probe is handled: give one of both times."))
    if probe:
        holds.open_breaker(name, probe=probe, **given)
    elif not any(about.values()):
        raise InvalidFilter(_("Give a name or a key. To hold all messages, pause the queue."))
    else:
        holds.hold(name, lasts=span, **given)


def _logged(asked: dict[str, str]) -> str:
    """Return the text for the admin's log, without the key."""
    verb = "Opened a breaker for" if asked["probe"] else "Held"
    what = f"messages named {asked['name']}" if asked["name"] else "the messages of a key" if asked["key"] else "all"
    return f"{verb} {what}"


def _form(page: Page, name: str, asked: dict[str, str]) -> HttpResponse:
    most = str(MAX_NAME_LENGTH)
    inputs: list[dict[str, Any]] = [
        {"name": "name", "label": _("Name"), "maxlength": most, "help": _("All messages with this name, or")},
        {"name": "key", "label": _("Key"), "maxlength": most, "help": _("all messages with this key.")},
        {
            "name": "span",
            "label": _("For"),
            "choices": [period(span) for span in SPANS],
            "is_optional": True,
            "help": _("Without a time, until they are released."),
        },
        {
            "name": "probe",
            "label": _("Breaker: a probe every so many seconds"),
            "max": str(int(holds.LONGEST_PROBE.total_seconds())),
            "help": _(
                "Optional. One message at a time is let through. When it is handled, more and more are, and all at "
                "last. Without a name or a key, a breaker is for the whole queue."
            ),
        },
        reason_input(_("Optional. Shown with your name until they are released.")),
    ]
    return confirm(
        page,
        name,
        _("Hold some messages?"),
        _(
            "They wait, and no attempt is counted, while others go on. Running handlers finish. With ORDERED, the "
            "later messages of their keys wait, too."
        ),
        _("Yes, hold them"),
        inputs=[{**each, "value": asked[each["name"]]} for each in inputs],
    )


@needs(VIEW, OPERATE)
def release(page: Page, name: str, score: str) -> HttpResponse:
    """Release what is held, after a confirmation. The address has a hash: keys may contain message data."""
    view, url = quick_stats(name), page.queue_url(name)
    found = [each for each in view.holds if str(hold_score(each.subject)) == score and each.holds(view.now_ms)]
    if not found:
        return page.leave(url, _("This hold is over."), messages.INFO)
    if not page.is_confirmed:
        (counted,) = holds.counted(name, (found[0],))
        sentence = ngettext(
            "%(count)s message becomes ready and will be handled.",
            "%(count)s messages become ready and will be handled.",
            counted.messages or 0,
        ) % {"count": text.number(counted.messages or 0)}
        details = breaker_cause(counted) if counted.by_breaker else hold_details(counted)
        listed = [format_html("{} {}", _what(page, counted), text.visible(details, limit=1000))]
        return confirm(page, name, _("Release these messages?"), sentence, _("Yes, release them"), listed=listed)
    about = {} if found[0].kind == "queue" else {found[0].kind: found[0].value}
    if holds.end_hold(name, **about):
        named = found[0].value if found[0].kind == "name" else f"of a {found[0].kind}"
        page.log(name, f"Released the messages {named}")
    return page.leave(url, _("The messages were released."), messages.SUCCESS)
