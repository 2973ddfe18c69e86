"""The page of a message: why it does not run, what it streams, cancelling it, and what is done with dead letters."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.job_pages import CANCEL, DELETE, MOVE, REDRIVE
from mq_django.admin.message_lists import TITLES, Fact, ending_words, facts, offered, shown_error
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.filter_form import HIDDEN
from mq_django.admin.ui.live import LiveParts
from mq_django.admin.ui.page import (
    CHOSEN,
    OPERATE,
    SEE_DATA,
    VIEW,
    Page,
    attachment,
    confirm,
    needs,
    one_of,
    sentence_of,
    tabs,
)
from mq_django.admin.ui.text import bar_of
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.message_streams import Chunk
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape
from mq_django.errors import DecodeError, InvalidMessage, StoreError
from mq_django.inspector import actions, dead_letters, explain
from mq_django.inspector.dead_letters import DeadGroup, resubmit
from mq_django.inspector.explain import Cause, reason, why
from mq_django.inspector.holds import can_hold
from mq_django.inspector.key_lines import line_hash, line_of
from mq_django.inspector.message_lists import get_message
from mq_django.inspector.message_views import (
    MessageState,
    MessageView,
    StreamView,
    as_json,
    as_publish,
    as_xadd,
    exported,
    has_secrets,
    is_in_log,
    ref_of,
    stream_of,
)
from mq_django.inspector.queues import queue as read_queue

#: The form field that asks for the replacement of the process.
FORCE = "force"


def state_of(word: str) -> MessageState:
    """Return the state in an address, or raise Http404."""
    return one_of(word, TITLES)


def _get(page: Page, name: str, state: str, ref: str) -> MessageView | None:
    return get_message(name, state_of(state), ref_of(filter_form.named(page, ref)))


def _gone(page: Page, name: str, state: str) -> HttpResponse:
    sentences = {
        "dead": _("This dead letter no longer exists: it was redriven or deleted."),
        "handled": _("It is no longer kept what became of this message."),
    }
    waits = _("The message is no longer waiting: it is ready, was handled, or was deleted.")
    here = _("The message is no longer here: it was handled, retried or deleted.")
    return page.leave(
        page.url("messages", name, state), sentences.get(state) or (here if state in ("ready", "pending") else waits)
    )


@needs(VIEW)
def message(page: Page, name: str, state: str, ref: str) -> HttpResponse:
    """Show a message: why it is not running, what became of it, or why it is dead."""
    view = _get(page, name, state, ref)
    if view is None:
        return _gone(page, name, state)
    can_see_data = page.can(SEE_DATA)
    is_left = view.state in ("dead", "handled")
    cause = None if is_left else explain.cause_of(view, read_queue(name))
    runs_ms = cause.ms if cause is not None and cause.kind == "running" else None
    first, last = _about(view, runs_ms)
    stream = streamed(page, name, view)
    # The heartbeats of its consumer say so later than its stream.
    has_begun = runs_ms is None and view.state == "pending" and bool(stream.get("pieces"))
    return page.render(
        "message",
        _("Dead letter") if view.state == "dead" else _("Message"),
        queue=name,
        **(stream or {"tabs": tabs(page, name, view.state)}),
        act_url=page.url("chosen", name, view.state) + filter_form.query(page),
        chosen_field=CHOSEN,
        ref=filter_form.handle(page, view),
        buttons=[*_buttons(page, name, view), *_again(page, name, view)] if page.can(OPERATE) else [],
        is_running=runs_ms is not None,
        why="" if cause is None or has_begun else why(cause, name=view.name, can_see_data=can_see_data),
        line_url=_line_url(page, name, view, cause),
        hold_urls=_hold_urls(page, name, view),
        holds=_holds(page, name, view),
        **_copies(name, view, can_see_data=can_see_data),
        progress=None if is_left else bar_of(name, view.id, can_see_data=can_see_data),
        **_failure(view, can_see_data=can_see_data),
        **facts(view, can_see_data=can_see_data, first=first, last=last),
    )


def _copies(name: str, view: MessageView, *, can_see_data: bool) -> dict[str, Any]:
    """Return a message as texts to copy, for users who may see data."""
    if not can_see_data or not view.has_data:
        return {}
    found = [
        ("JSON", as_json(view)),
        ("manage.py mq publish", as_publish(name, view)),
        ("XADD (redis-cli)", as_xadd(name, view)),
    ]
    return {
        "copies": [(label, text.visible(copied, lines=True)) for label, copied in found if copied],
        "copies_redacted": has_secrets(view),
    }


def _about(view: MessageView, runs_ms: int | None) -> tuple[list[Fact], list[Fact]]:
    """Return what the state of a message says about it, for before and after the time of its publication."""
    at, consumer = text.moment(view.at_ms, exact=True), text.visible(view.consumer) if view.consumer else ""
    attempt = (_("Attempt"), str(view.attempt))
    match view.state:
        case "dead":
            tries = (_("Attempts"), text.number(view.tries))
            return [(_("Reason"), text.visible(reason(view.reason))), tries], [(_("Buried"), at)]
        case "handled":
            ending = "" if view.ending is None else ending_words(view.ending)
            times = [
                (_("Started"), text.moment(view.started_ms, exact=True)),
                (_("Ended"), at),
                (_("Took"), text.seconds(view.seconds)),
            ]
            return [(_("Ending"), ending), attempt, (_("Consumer"), consumer)], times
        case "ready" | "pending":
            lease = _("%(time)s ago") % {"time": text.duration(view.held_ms)} if consumer else ""
            running = "" if runs_ms is None else text.duration(runs_ms)
            held = [(_("Consumer"), consumer), (_("Running for"), running), (_("Lease extended"), lease)]
            return [attempt, *held], [(_("Ready since"), at)]
    return [(_("Due"), at), attempt], []


def _buttons(page: Page, name: str, view: MessageView) -> list[dict[str, str]]:
    """Return the buttons of a message: each with the address that it leads to, or the action that it posts."""
    ref = filter_form.handle(page, view)
    words = {CANCEL: _("Cancel…"), REDRIVE: _("Redrive…"), MOVE: _("Move…"), DELETE: _("Delete…")}
    if view.state in ("ready", "pending"):
        cancels = [{"label": words[CANCEL], "url": page.url("cancel", name, view.state, ref)}]
        can_move = MOVE in offered(name, view.state) and not is_in_log(view.state, view.ref)
        moves = [{"label": words[MOVE], "action": MOVE}] if can_move else []
        return [*(cancels if actions.can_cancel_running(name) else []), *moves]
    is_valid = view.state != "dead" or not view.problem
    posted = [
        {"label": words[what], "action": what}
        for what in offered(name, view.state)
        if what in words and (is_valid or what == DELETE)
    ]
    edit = {"label": _("Edit and resubmit…"), "url": page.url("dead_edit", name, ref)} if view.state == "dead" else None
    return [edit, *posted] if edit and is_valid and page.can(SEE_DATA) else posted


def _again(page: Page, name: str, view: MessageView) -> list[dict[str, str]]:
    """Return the link to the form that publishes a message again, which shows its data."""
    if not page.can(SEE_DATA) or not view.has_data or GROUP_SEPARATOR in name:
        return []
    query = urlencode({"state": view.state, "ref": filter_form.handle(page, view)})
    return [{"label": _("Publish again…"), "url": f"{page.url('publish', name)}?{query}"}]


def _line_url(page: Page, name: str, view: MessageView, cause: Cause | None) -> str:
    """Return the address of the line of a parked message, "" for others."""
    if view.state != "parked" or view.problem or cause is None or cause.kind in ("on hold", "released"):
        return ""
    return page.url("line", name, str(line_hash(view.key)))


def _hold_urls(page: Page, name: str, view: MessageView) -> list[tuple[str, str]]:
    """Return the links to the form that holds the messages of its name or key. That shows the key."""
    if view.problem or not view.name or not page.can(OPERATE) or not can_hold(name):
        return []
    url = page.url("hold", name)
    found = [(_("Hold all messages of this name…"), f"{url}?{urlencode({'name': view.name})}")]
    if view.key and page.can(SEE_DATA):
        # The address does not have the key, which may contain message data.
        query = urlencode({"state": view.state, "ref": filter_form.handle(page, view)})
        found.append((_("Hold all messages of this key…"), f"{url}?{query}"))
    return found


def _holds(page: Page, name: str, view: MessageView) -> dict[str, str] | None:
    """Return which key a dead letter holds, and how many messages wait for it; None if it holds none."""
    if view.state != "dead" or view.problem or not view.key or not get_config().queue(name).limits.ordered:
        return None
    line = line_of(name, line_hash(view.key), key=view.key)
    if line.blocking is None or line.blocking.state != "dead" or line.blocking.entry != view.ref:
        return None
    said = ngettext(
        "Holds the key %(key)s: %(count)s message waits.",
        "Holds the key %(key)s: %(count)s messages wait.",
        line.parked,
    )
    key = text.visible(redact_forms(view.key), limit=200) if page.can(SEE_DATA) else HIDDEN
    sentence = format_html(
        said.replace("%(key)s", "{key}").replace("%(count)s", "{count}"), key=key, count=text.number(line.parked)
    )
    return {"sentence": sentence, "url": page.url("line", name, str(line.hash))}


def _failure(view: MessageView, *, can_see_data: bool) -> dict[str, Any]:
    """Return what the page of a dead letter adds, and whether the data of the message is shown."""
    no_data = ""
    if view.state == "handled" and not view.has_data:
        no_data = _("The data was not kept. With DATA of HISTORY it is, up to 4 KiB.")
    is_broken = view.state == "dead" and bool(view.problem)
    return {
        "no_data": no_data,
        "is_broken": is_broken,
        "error": shown_error(view.error, can_see_data=can_see_data) if view.error else "",
        "traceback": text.visible(view.traceback, lines=True) if view.traceback and can_see_data else "",
        "has_traceback": bool(view.traceback),
        "raw": text.visible_bytes(view.raw) if view.raw and can_see_data else "",
    }


@needs(VIEW)
def old(page: Page, name: str, state: str = "", entry: str = "", source: str = "", member: str = "") -> HttpResponse:
    """Go from an old address of a list or a message to the one that it has now."""
    if not entry and not member:
        return HttpResponseRedirect(page.url("messages", name, state_of(state)) + page.query)
    if source:
        state, ref = "ready", f"{source}.{entry}"
    else:
        state, ref = (
            state or ("handled" if member else "dead"),
            f"{entry}.{member}" if member and entry else entry or member,
        )
    return HttpResponseRedirect(page.url("message", name, state_of(state), ref) + page.query)


# Cancel a message that is ready or being handled.


@needs(VIEW, OPERATE)
def cancel(page: Page, name: str, state: str, ref: str) -> HttpResponse:
    """Cancel a message that is ready or being handled, after confirmation."""
    view = _get(page, name, state, ref) if actions.can_cancel_running(name) else None
    if view is None:
        return _gone(page, name, "ready")
    back_url = page.url("message", name, view.state, ref)
    if not page.is_confirmed:
        return _confirm(page, name, view, back_url)
    message_id, force = view.id, page.request.POST.get(FORCE) == "yes"
    outcome = actions.cancel(name, [message_id], running=True, force=force)
    if outcome.error is not None:
        return page.leave(back_url, sentence_of(outcome.error), messages.ERROR)
    page.say(
        messages.SUCCESS,
        _("Its consumer was asked to cancel the message. It is told within a second.")
        if outcome.asked
        else _("The message was cancelled."),
    )
    how = ", and to replace its process if needed" if force else ""
    page.log(name, f"Asked to cancel the running message {escape(message_id)[:200]}{how}")
    return HttpResponseRedirect(page.url("messages", name, view.state))


def _confirm(page: Page, name: str, view: MessageView, back_url: str) -> HttpResponse:
    force = {
        "name": FORCE,
        "is_box": True,
        "label": _("Replace its process if it goes on"),
        "help": _(
            "For a handler that ignores the interrupt, or waits where Python cannot interrupt it. Other messages of "
            "the process may finish within the grace time, or return to the queue without a counted attempt."
        ),
    }
    stacks_url = page.url("stacks", text.to_url(view.consumer.encode(errors="replace")))
    return confirm(
        page,
        name,
        _("Cancel this message?"),
        _(
            "If its handler runs, it is interrupted where it is: its transaction is rolled back, and what it has done "
            "outside of it stays. If it has not started, it never will. The message is deleted."
        ),
        _("Yes, cancel it"),
        tab=view.state,
        back_url=back_url,
        listed=[text.visible(f"{view.name} {view.id}", limit=200)],
        dangerous=True,
        inputs=[force] if view.consumer else [],
        detail=(_("See where its handler is"), stacks_url) if view.consumer else None,
    )


# Edit and resubmit a dead letter, group dead letters by error, and export them.


@needs(VIEW, SEE_DATA, OPERATE)
def edit(page: Page, name: str, entry: str) -> HttpResponse:
    """Edit the data of a dead letter, and resubmit it."""
    view = dead_letters.get(name, entry)
    if view is None or view.problem:
        return page.leave(
            page.url("messages", name, "dead"), _("This dead letter no longer exists: it was redriven or deleted.")
        )
    written = page.request.POST.get("data")
    if written is None:
        return _form(page, name, entry, editable(view.data))
    try:
        changed = text.read_json(written)
    except text.NotJSON as error:
        return _form(page, name, entry, written, str(error))
    if not page.is_confirmed:
        changes = text.difference(view.data, changed)
        return confirm(
            page,
            name,
            _("Resubmit 1 dead letter with changed data?"),
            _("It is published as a new message, at its first attempt, and the dead letter is deleted."),
            _("Yes, resubmit it"),
            tab="dead",
            back_url=page.url("message", name, "dead", entry),
            fields=[("data", written)],
            listed=[text.visible(view.id, limit=200)],
            samples={
                "diff": changes or text.pretty(changed),
                "diff_title": _("Changes of the data") if changes else _("The data is unchanged"),
            },
        )
    try:
        message_id = resubmit(name, entry, written)
    except (DecodeError, InvalidMessage) as error:
        return _form(page, name, entry, written, str(error))
    if message_id is None:
        page.say(messages.WARNING, _("This dead letter no longer exists: it was redriven or deleted."))
    else:
        page.say(messages.SUCCESS, _("It was resubmitted as message %(id)s.") % {"id": message_id})
        page.log(name, f"Resubmitted dead letter {view.id[:200]} with other data as {message_id}")
    return HttpResponseRedirect(page.url("messages", name, "dead"))


def editable(data: Any) -> str:
    """Return data as JSON text to edit, with invisible characters escaped."""
    shown = json.dumps(data, indent=2, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in shown
    )


def _form(page: Page, name: str, entry: str, written: str, error: str = "") -> HttpResponse:
    return page.render(
        "dead_edit",
        _("Edit and resubmit"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        written=written,
        error=text.visible(error, limit=500) if error else "",
        act_url=page.url("dead_edit", name, entry),
        back_url=page.url("message", name, "dead", entry),
    )


@needs(VIEW)
def groups(page: Page, name: str) -> HttpResponse:
    """Show the counts of dead letters by name and error."""
    found, can_move = dead_letters.groups(name), bool(dead_letters.targets(name))
    return page.render(
        "dead_groups",
        _("Dead letters by name and error"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_group(page, name, group, can_move=can_move) for group in found],
        counted=text.number(sum(group.count for group in found)),
        list_url=page.url("messages", name, "dead"),
    )


def _group(page: Page, name: str, found: DeadGroup, *, can_move: bool) -> dict[str, Any]:
    row = {"count": text.number(found.count), "newest": text.moment(found.buried_ms), "is_rest": found.group is None}
    if found.group is None:
        return row
    named, error = found.group
    row["name"] = text.visible(named, limit=80) if named else ""
    if not filter_form.may_ask_for(page, error):
        return row | {"error": filter_form.HIDDEN}
    query = urlencode(filter_form.group_terms(found.group))
    return row | {
        "error": text.visible(error, limit=80) if error else "",
        "url": f"{page.url('messages', name, 'dead')}?{query}",
        "redrive_url": f"{page.url('act_on_all', name, 'dead', 'redrive')}?{query}",
        "move_url": f"{page.url('act_on_all', name, 'dead', 'move')}?{query}" if can_move else "",
        "delete_url": f"{page.url('act_on_all', name, 'dead', 'delete')}?{query}",
    }


@needs(VIEW, SEE_DATA)
def export(page: Page, name: str) -> Any:
    """Stream the matching dead letters as JSON lines, oldest first, with secrets replaced."""
    filter_form.refuse_others(page, *filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR)
    description = filter_form.describe(page, log=True)
    page.log(name, f"Exported the dead letters: {description}" if description else "Exported the dead letters")
    lines, file = _lines(name, filter_form.criteria(page)), f"{name.replace(GROUP_SEPARATOR, '-')}-dead.jsonl"
    return StreamingHttpResponse(lines, content_type="application/x-ndjson", headers=attachment(file))


def _lines(name: str, criteria: Filter) -> Iterator[str]:
    try:
        for view in dead_letters.every(name, criteria):
            yield json.dumps(exported(view)) + "\n"
    except StoreError as error:
        # The headers of the response were already sent.
        yield json.dumps({"incomplete": sentence_of(error)}) + "\n"


# What the handler of a message streams, as a live part of its page.

PARTS = ("tabs", "message_stream")


def streamed(page: Page, name: str, view: MessageView) -> dict[str, Any]:
    """Return what the page of a message adds if its queue keeps streams, and there is one or may be one."""
    found, may_stream = stream_of(name, view.id), view.state not in ("dead", "handled")
    if get_config().queue(name).stream is None or not (found or may_stream):
        return {}
    context = _context(page, name, view.state, found)
    url = page.url("message_stats", name, view.state, text.to_url(view.id.encode(errors="replace")))
    is_live = may_stream or (found is not None and found.end is None)
    return {"live": page.live(PARTS, context).context(), "live_url": url if is_live else "", **context}


@needs(VIEW)
def stats(page: Page, name: str, state: str, message: str) -> HttpResponse:
    """Return the live parts of the page of a message."""
    message_id = text.from_url(message).decode(errors="replace")

    def live() -> LiveParts:
        return page.live(PARTS, _context(page, name, state, stream_of(name, message_id)))

    return page.shared("message", live).response(page.request)


def _context(page: Page, name: str, state: str, found: StreamView | None) -> dict[str, Any]:
    context = {"tabs": tabs(page, name, state)}
    if found is None:
        return {**context, "summary": _("Nothing was streamed yet."), "pieces": [], "earlier": ""}
    can_see_data = page.can(SEE_DATA)
    said = ngettext("%(count)s earlier entry is not shown.", "%(count)s earlier entries are not shown.", found.earlier)
    shown = [chunk for chunk in found.chunks if can_see_data or chunk.kind in ("restart", "end")]
    streaming = _("The handler is streaming.") if state == "pending" else ""
    return {
        **context,
        "summary": _("The stream has ended.") if found.end else streaming,
        "pieces": [(chunk.kind, _html(chunk, can_see_data=can_see_data)) for chunk in shown],
        "earlier": said % {"count": text.number(found.earlier)} if found.earlier else "",
    }


def _html(chunk: Chunk, *, can_see_data: bool) -> SafeString | str:
    match chunk.kind:
        case "text":
            return text.visible(chunk.value[-text.LONGEST :], lines=True)
        case "log":
            return text.visible(chunk.value)
        case "json":
            return text.visible(json.dumps(chunk.value, ensure_ascii=False))
        case "bytes":
            return text.size(len(chunk.value))
        case "restart":
            return _("Restarted: attempt %(number)s") % {"number": text.number(chunk.attempt)}
    assert chunk.outcome  # of an end
    said = _("Ended: %(ending)s") % {"ending": ending_words(chunk.outcome)}
    error = shown_error(chunk.error, can_see_data=can_see_data, limit=1000) if chunk.error else ""
    return format_html("{}. {}", said, error) if error else said
