"""The page of a key's line, and what lets the key go on without its head.

Its address has the hash of the key: keys may contain message data.
"""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.queues.limits_section import share_words, shown_key
from mq_django.admin.ui import references, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm, report
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs
from mq_django.admin.ui.tabs import tabs
from mq_django.core.visible import escape
from mq_django.errors import NotSupported
from mq_django.inspector import key_lines
from mq_django.inspector.cause_sentences import head_words
from mq_django.inspector.key_lines import KeyLine, LineHead, line_hash, line_of

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
        "share": "" if found.share is None else share_words(found.share),
        "waits": _waits(found) if found.parked and head else "",
        "heads": [_head(page, name, each, found.now_ms) for each in found.heads],
        "unlisted_heads": text.number(found.tokens - len(found.heads)) if found.tokens > len(found.heads) else "",
        "rows": [
            {
                "id": _id(message.id),
                "url": page.url("message", name, "parked", text.to_url(message.member)),
                "name": text.visible(message.name, limit=60),
                "published": text.moment(message.published_ms, now=found.now_ms),
            }
            for message in found.first
        ],
        "unlisted": text.number(found.parked - len(found.first)) if found.parked > len(found.first) else "",
        "head_field": HEAD,
        "head_id": "" if head is None else _reference(head),
        "skip_url": page.url("line_skip", name, line) if head and head.can_be_skipped else "",
        "redrive_url": page.url("line_redrive", name, line) if head and head.place == "dead" else "",
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
    elif CONFIRMED not in page.request.POST:
        return _confirm(
            page,
            found,
            head,
            _("Let the key go on without this message?"),
            sentence=_("The next messages of its key run before it. It stays a dead letter, and is out of order.")
            if head.place == "dead"
            else _("The next messages of its key run before it. It stays where it is, and is handled out of order."),
            button=_("Yes, skip it"),
            act_url=page.url("line_skip", name, line),
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
    if head is None or head.place != "dead":
        _say_changed(page, found)
    elif CONFIRMED not in page.request.POST:
        return _confirm(
            page,
            found,
            head,
            _("Redrive this dead letter in place?"),
            sentence=_("It becomes ready at its first attempt, before the other messages of its key."),
            button=_("Yes, redrive it"),
            act_url=page.url("line_redrive", name, line),
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


def _confirm(
    page: Page, found: KeyLine, head: LineHead, title: str, *, sentence: str, button: str, act_url: str
) -> HttpResponse:
    return confirm(
        page,
        found.queue,
        title,
        tab="parked",
        sentence=sentence,
        button=button,
        act_url=act_url,
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
    page.say(messages.WARNING, f"{_('Nothing was done, because the line has changed meanwhile.')} {now}")


def _waits(found: KeyLine) -> str:
    """Return what the parked messages wait for, as a sentence; "" without a head."""
    if found.blocking is None:
        return ""
    return _("The next messages wait for %(message)s") % {"message": head_words(found.blocking, found.now_ms)}


def _label(head: LineHead) -> str:
    return escape(references.without_unique(head.id))[:200]


def _reference(head: LineHead) -> str:
    return text.to_url(references.without_unique(head.id).encode(errors="replace"))


def _id(message_id: str) -> SafeString:
    return text.visible(references.without_unique(message_id), limit=60)


def _state(head: LineHead) -> str:
    states = {
        "running": _("running"),
        "held": _("held by a consumer"),
        "fetched": _("fetched, not started"),
        "abandoned": _("held by a consumer that is gone"),
        "ready": _("ready"),
        "delayed": _("delayed"),
        "unhandled": _("no consumer has a handler"),
        "dead": _("dead letter"),
        "gone": _("no longer exists"),
    }
    return states[head.place]


def _head(page: Page, name: str, head: LineHead, now_ms: int) -> dict[str, Any]:
    return {
        "id": _id(head.id),
        "url": _head_url(page, name, head),
        "name": text.visible(head.name, limit=60),
        "state": _state(head),
        "consumer": text.visible(head.consumer, limit=60) if head.consumer else "",
        "when": text.moment(head.due_ms if head.place == "delayed" else head.since_ms, now=now_ms),
        "attempt": text.number(head.attempt),
    }


def _head_url(page: Page, name: str, head: LineHead) -> str:
    """Return the address of the page of a head, "" if it has none."""
    if head.place == "gone":
        return ""
    if head.place == "dead":
        return page.url("dead_letter", name, head.entry)
    if head.source is not None:
        return page.url("entry", name, head.source, text.to_url(head.entry.encode()))
    # A unique key may contain message data; the id names the message as well, if it is known.
    member = head.entry if references.without_unique(head.entry) == head.entry else head.id
    if references.without_unique(member) != member:
        return ""
    room = "delayed" if head.place == "delayed" else "unhandled"
    return page.url("message", name, room, text.to_url(member.encode(errors="replace")))
