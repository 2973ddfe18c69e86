"""The limits of a queue, their usage, and the keys with parked messages; changing limits at run time."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui import charts, filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, because, confirm, needs, reason_input, report, tabs
from mq_django.conf import get_config
from mq_django.core.limits import NO_LIMIT, Limits, Rate, Weights
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape
from mq_django.errors import InvalidArguments, NotSupported
from mq_django.inspector import key_lines, plans
from mq_django.inspector.action_log import to_undo
from mq_django.inspector.explain import head_words
from mq_django.inspector.holds import SETTINGS, set_limits
from mq_django.inspector.key_lines import HeadState, KeyLine, KeyShare, LineHead, line_hash, line_of
from mq_django.inspector.message_views import name_of
from mq_django.inspector.plans import KeyUse, LimitUse
from mq_django.inspector.problem_sentences import changed_limit, limit_label
from mq_django.inspector.queues import quick_stats

#: The most keys with parked messages that are listed.
MAX_KEYS = 20


def section(page: Page, name: str) -> dict[str, Any]:
    """Return a queue's limits, their usage, and the keys with parked messages. Keys may contain message data."""
    use = plans.limits(name, count=MAX_KEYS)
    if use is None:
        return {}
    limits, whole = use.limits, limits_of_whole(name)
    return {
        "limits": _rows(limits, use),
        "limit_changes": [text.visible(changed_limit(change, whole), limit=1000) for change in use.changes.values()],
        "limits_url": page.url("limits", name) if whole.changeable and page.can(OPERATE) else "",
        "limit_keys": [_key(page, name, limits, found, use.now_ms) for found in use.page],
        "keys_waiting": text.number(use.keys),
        "keys_unlisted": text.beyond(use.keys, len(use.page)),
        "parked": text.number(use.parked),
        "has_key_rate": limits.key_rate is not None,
        "has_key_concurrency": limits.key_concurrency is not None,
        **({"keys": [_noisy(page, name, found) for found in plans.noisiest(name)]} if limits.of_keys else {}),
    }


def _rows(limits: Limits, use: LimitUse) -> list[dict[str, Any]]:
    rows = []
    if limits.rate is not None:
        rows.append(_used(limit_label("rate"), _rate(limits.rate), use.granted, limits.rate.count))
    if limits.concurrency is not None:
        rows.append(
            _used(limit_label("concurrency"), text.number(limits.concurrency), use.concurrent, limits.concurrency)
        )
    if limits.key_rate is not None:
        rows.append({"label": limit_label("key_rate"), "limit": _rate(limits.key_rate)})
    if limits.ordered:
        rows.append({"label": _("Order"), "limit": _("one message of each key at a time, in order")})
    elif limits.key_concurrency is not None:
        rows.append({"label": limit_label("key_concurrency"), "limit": text.number(limits.key_concurrency)})
    if limits.fair is not None:
        rows.append({"label": _("Turns"), "limit": _turns(limits.fair)})
    ended = [name for name, change in use.changes.items() if change.value == NO_LIMIT]
    return [*rows, *({"label": limit_label(name), "limit": _("no limit")} for name in ended)]


def _turns(weights: Weights) -> SafeString | str:
    if not weights:
        return _("keys take turns")
    shown = text.visible(", ".join(f"{key}: {weight:g}" for key, weight in weights), limit=500)
    return format_html("{} ({})", _("keys take turns"), shown)


def shown_key(page: Page, key: str) -> SafeString | str:
    """Return a key as HTML, for users who may see data; secrets in it are replaced already."""
    if not page.can(SEE_DATA):
        return _("hidden")
    return text.visible(key, limit=80) if key else _("no key")


def share_words(share: float) -> str:
    """Return the share of a key of the parked messages."""
    return _("about %(share)s of the parked messages") % {"share": text.percent(share)}


def _noisy(page: Page, name: str, found: KeyShare) -> dict[str, Any]:
    words = share_words(found.share)
    return {
        "key": shown_key(page, redact_forms(found.key)),
        "url": page.url("line", name, str(found.hash)),
        "share": words,
        "meter": charts.meter(found.share, label=words, bad=False),
    }


def _used(label: str, limit: str, used: int, most: int) -> dict[str, Any]:
    words = _of(used, most)
    return {
        "label": label,
        "limit": limit,
        "used": words,
        "meter": charts.meter(used / most, label=words, bad=used >= most),
    }


def _key(page: Page, name: str, limits: Limits, found: KeyUse, now_ms: int) -> dict[str, Any]:
    rate, most = limits.key_rate, limits.key_concurrency
    return {
        "key": shown_key(page, redact_forms(found.key)),
        "url": _line_url(page, name, found),
        "parked": text.number(found.parked),
        "granted": "" if rate is None else _of(found.granted, rate.count),
        "concurrent": "" if most is None else _of(found.concurrent, most),
        "next_check": _("now") if found.next_check_ms <= now_ms else text.moment(found.next_check_ms, now=now_ms),
    }


def _line_url(page: Page, name: str, found: KeyUse) -> str:
    """Return the URL of the line of a key: with partitions, of the one that has it."""
    config = get_config().queue(name)
    if config.parts and not found.key:
        # Each partition has a line of messages without a key.
        return page.queue_url(name)
    return page.url("line", config.partition_for(key=found.key).name, str(found.hash))


def _of(used: int, most: int) -> str:
    return _("%(used)s of %(most)s") % {"used": text.number(used), "most": text.number(most)}


def _rate(rate: Rate) -> str:
    return _("%(count)s in %(time)s") % {"count": text.number(rate.count), "time": text.period(rate.window)}


# The page of a key's line, and what lets the key go on without its head.
#
# Its address has the hash of the key: keys may contain message data.

#: The form field with the id of the head that the user has seen.
HEAD = "message"

PARTS = ("tabs", "line_waits", "line_about", "line_heads", "line_parked")


@needs(VIEW)
def show(page: Page, name: str, line: str) -> HttpResponse:
    """Show what is parked in the line of a key, and where the messages are that this waits for."""
    found = _found(page, name, line)
    if found is None:
        return HttpResponseRedirect(page.queue_url(name))
    context = _context(page, found)
    live = page.live(PARTS, context).context()
    return page.render("line", _("Line of a key"), live=live, live_url=page.url("line_stats", name, line), **context)


@needs(VIEW)
def stats(page: Page, name: str, line: str) -> HttpResponse:
    """Return the live parts of the page."""
    of = _hash(line)
    try:
        live = page.shared(f"line {name} {of}", lambda: page.live(PARTS, _context(page, line_of(name, of))))
    except NotSupported:
        return JsonResponse({"error": _("This queue has no lines of keys.")}, status=404)
    return live.response(page.request)


def _context(page: Page, found: KeyLine) -> dict[str, Any]:
    name, line, head = found.queue, str(found.hash), found.blocking
    return {
        "summary": _summary(found),
        "queue": name,
        "tabs": tabs(page, name, "parked"),
        "key": shown_key(page, found.key) if found.key or found.hash == line_hash(None) else "",
        "parked": text.number(found.parked),
        "waits": _waits(found) if found.parked and head else "",
        "heads": [_head(page, name, each, found.now_ms) for each in found.heads],
        "unlisted_heads": text.beyond(found.tokens, len(found.heads)),
        "rows": [
            {
                "id": _id(message.id),
                "url": page.url("message", name, "parked", text.to_url(name_of(message.ref))),
                "name": text.visible(message.name, limit=60),
                "published": text.moment(message.published_ms, now=found.now_ms),
            }
            for message in found.first
        ],
        "unlisted": text.beyond(found.parked, len(found.first)),
        "head_field": HEAD,
        "head_id": "" if head is None else _reference(head),
        "skip_url": page.url("line_skip", name, line) if head and head.can_be_skipped else "",
        "redrive_url": page.url("line_redrive", name, line) if head and head.state == "dead" else "",
    }


def _summary(found: KeyLine) -> str:
    """Return the state of the line without numbers and times: screen readers announce each change."""
    if not found.parked:
        return _("No parked messages.")
    if not found.heads:
        return _("The next message of the line may run.")
    if head := found.blocking:
        return _("The line waits for a message: %(state)s.") % {"state": _state(head)}
    return _("The line waits for a limit.")


@needs(VIEW, OPERATE)
def skip(page: Page, name: str, line: str) -> HttpResponse:
    """Let the key go on without its head, after confirmation."""
    found, back_url = _found(page, name, line), page.url("line", name, line)
    if found is None:
        return HttpResponseRedirect(page.queue_url(name))
    head = _seen_head(page, found)
    if head is None or not head.can_be_skipped:
        _say_changed(page, found)
    elif not page.is_confirmed:
        return _confirm(
            page,
            found,
            head,
            _("Let the key go on without this message?"),
            _("The next messages of its key run before it. It stays a dead letter, and is out of order.")
            if head.state == "dead"
            else _("The next messages of its key run before it. It stays where it is, and is handled out of order."),
            _("Yes, skip it"),
        )
    elif key_lines.skip(name, found.hash, head.token) != "SKIPPED":
        _say_changed(page, line_of(name, found.hash))
    else:
        page.say(
            messages.SUCCESS,
            _("The key goes on without message %(id)s, which is out of order from now on.") % {"id": _label(head)},
        )
        page.log(name, f"Skipped message {_label(head)} in the line of its key")
    return HttpResponseRedirect(back_url)


@needs(VIEW, OPERATE)
def redrive(page: Page, name: str, line: str) -> HttpResponse:
    """Redrive the dead letter that the key waits for before the other messages of the key, after confirmation."""
    found, back_url = _found(page, name, line), page.url("line", name, line)
    if found is None:
        return HttpResponseRedirect(page.queue_url(name))
    head = _seen_head(page, found)
    if head is None or head.state != "dead":
        _say_changed(page, found)
    elif not page.is_confirmed:
        return _confirm(
            page,
            found,
            head,
            _("Redrive this dead letter in place?"),
            _("It becomes ready at its first attempt, before the other messages of its key."),
            _("Yes, redrive it"),
        )
    else:
        report(
            page,
            name,
            key_lines.redrive_head(name, head),
            done=_("The dead letter was redriven, before the other messages of its key."),
            logged=f"Redrove 1 dead letter in place: {_label(head)}",
        )
    return HttpResponseRedirect(back_url)


def _found(page: Page, name: str, line: str) -> KeyLine | None:
    """Return a line; None if the queue cannot have lines, which the user is told."""
    try:
        return line_of(name, _hash(line))
    except NotSupported:
        page.say(messages.WARNING, _("This queue has no lines of keys."))
        return None


def _hash(line: str) -> int:
    if not (line.isascii() and line.isdecimal() and len(line) <= 17):
        raise Http404
    return int(line)


def _confirm(page: Page, found: KeyLine, head: LineHead, title: str, sentence: str, button: str) -> HttpResponse:
    return confirm(
        page,
        found.queue,
        title,
        sentence,
        button,
        tab="parked",
        back_url=page.url("line", found.queue, str(found.hash)),
        fields=[(HEAD, _reference(head))],
        listed=[text.visible(f"{head.name} {_label(head)}".strip(), limit=200)],
    )


def _seen_head(page: Page, found: KeyLine) -> LineHead | None:
    """Return the head of a line if it is the one that the user has seen."""
    head = found.blocking
    return head if head is not None and page.request.POST.get(HEAD) == _reference(head) else None


def _say_changed(page: Page, found: KeyLine) -> None:
    now = _waits(found) or _("The key waits for no message.")
    said = _("Nothing was done, because the line has changed meanwhile.")
    page.say(messages.WARNING, f"{said} {now}")


def _waits(found: KeyLine) -> str:
    """Return what the parked messages wait for, as a sentence; "" without a head."""
    if found.blocking is None:
        return ""
    return _("The next messages wait for %(message)s") % {"message": head_words(found.blocking, found.now_ms)}


def _label(head: LineHead) -> str:
    return escape(filter_form.without_unique(head.id))[:200]


def _reference(head: LineHead) -> str:
    return text.to_url(filter_form.without_unique(head.id).encode(errors="replace"))


def _id(message_id: str) -> SafeString:
    return text.visible(filter_form.without_unique(message_id), limit=60)


def _state(head: LineHead) -> str:
    states = {
        "running": _("running"),
        "held": _("held by a consumer"),
        "fetched": _("fetched, not started"),
        "abandoned": _("held by a consumer that is gone"),
        "ready": _("ready"),
        "delayed": _("delayed"),
        "unhandled": _("no consumer has a handler"),
        "on hold": _("on hold"),
        "dead": _("dead letter"),
        "gone": _("no longer exists"),
    }
    return states[head.state]


def _head(page: Page, name: str, head: LineHead, now_ms: int) -> dict[str, Any]:
    return {
        "id": _id(head.id),
        "url": _head_url(page, name, head),
        "name": text.visible(head.name, limit=60),
        "state": _state(head),
        "consumer": text.visible(head.consumer, limit=60) if head.consumer else "",
        "when": text.moment(head.due_ms if head.state == "delayed" else head.since_ms, now=now_ms),
        "attempt": text.number(head.attempt),
    }


def _head_url(page: Page, name: str, head: LineHead) -> str:
    """Return the address of the page of a head, "" if it has none."""
    if head.state == "gone":
        return ""
    if head.state == "dead":
        return page.url("message", name, "dead", head.entry)
    if head.ref is not None:
        return page.url("message", name, "pending", text.to_url(name_of(head.ref)))
    # A unique key may contain message data; the id names the message as well, if it is known.
    member = head.entry if filter_form.without_unique(head.entry) == head.entry else head.id
    if filter_form.without_unique(member) != member:
        return ""
    states: dict[HeadState, str] = {"delayed": "delayed", "on hold": "parked"}
    state = states.get(head.state, "unhandled")
    return page.url("message", name, state, text.to_url(member.encode(errors="replace")))


# The form that changes the limits of a queue at run time, and changes them back.

#: Before the name of a field: its value when the form was shown. Only what the user has changed is changed.
SEEN = "seen_"


def limits_of_whole(name: str) -> Limits:
    """Return the limits that the settings have for a queue, or for the queue of a partition."""
    return get_config().queue(get_config().queue(name).public_name).limits


@needs(VIEW, OPERATE)
def change(page: Page, name: str) -> HttpResponse:
    """Change limits of a queue by a form, which may begin with what an entry of the activity has changed."""
    url, names, entry = page.queue_url(name), limits_of_whole(name).changeable, filter_form.given(page, "entry") or ""
    known = quick_stats(name).limit_changes
    if not names:
        return page.leave(url, _("The settings give this queue no limit that could be changed."))
    now = {**dict.fromkeys(names, SETTINGS), **{each.limit: each.value for each in known.values()}}
    action = to_undo(entry) if entry and not page.is_confirmed else None
    if entry and action is None and not page.is_confirmed:
        return page.leave(url, _("These limits were changed anew since."))
    if not page.is_confirmed:
        return _form(page, name, now, {**now, **({} if action is None else action.undo["before"])})
    posted = {field: value.strip() for field, value in page.request.POST.items() if isinstance(value, str)}
    values: Any = {each: posted.get(each) or SETTINGS for each in names if posted.get(each) != posted.get(SEEN + each)}
    reason = posted.get("reason", "")
    try:
        if not values or not set_limits(name, **values, who=page.username, reason=reason):
            return page.leave(url, _("No limit was changed."), messages.INFO)
    except InvalidArguments:
        page.say(messages.ERROR, _("A rate is such as 10/s, 100/m or 5/10s, a concurrency a number from 1."))
        return _form(page, name, {each: posted.get(SEEN + each, "") for each in names}, posted)
    said = ", ".join(f"{each} {value}" for each, value in values.items())
    page.log(name, f"Changed limits: {said}{because(reason)}")
    return page.leave(url, _("The limits are changed."), messages.SUCCESS)


def _form(page: Page, name: str, seen: dict[Any, str], asked: dict[Any, str]) -> HttpResponse:
    configured = limits_of_whole(name)
    inputs: list[dict[str, Any]] = [
        {
            "name": each,
            "label": limit_label(each),
            "value": asked.get(each, ""),
            "maxlength": "20",
            "help": _("In the settings: %(value)s. Or “settings”: as there, or “none”: no limit.")
            % {"value": getattr(configured, each)},
        }
        for each in configured.changeable
    ]
    shown = _("Optional. Shown with your name until they are changed back.")
    return confirm(
        page,
        name,
        _("Change the limits?"),
        _("They hold from the next fetch on, until they are changed back. Running handlers are not interrupted."),
        _("Yes, change them"),
        fields=[(SEEN + each, seen.get(each, "")) for each in configured.changeable],
        inputs=[*inputs, reason_input(shown, value=asked.get("reason", ""))],
    )
