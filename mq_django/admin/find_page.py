"""The page that finds messages in all queues: by an id, at once, or by a query, step by step."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from mq_django.admin.message_lists import COLUMNS, LOG_COLUMNS, TITLES, chosen_actions, row_of, state_words, table
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.page import CHOSEN, SEE_DATA, VIEW, Page, needs, sections, sentence_of
from mq_django.core import clock
from mq_django.core.jsontext import whole
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector.message_lists import FoundMessageIn, SearchResult, find_everywhere
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.search import Listing, Problem, Query, Step, parse, problem_sentence, step

# Find one by its id.

#: Seconds for which ready and pending messages are searched, so that the page takes at most 2.
SECONDS = 0.5
#: The most names of queues in a sentence.
MAX_NAMES = 10


@needs(VIEW)
def find(page: Page) -> HttpResponse:
    """Find messages by a query, or one by its id, or by `u:` and its unique key."""
    message_id = page.request.GET.get("id", "").strip()[:MAX_TEXT]
    if not message_id:
        return _find_all(page)
    search = SearchResult(found=(), not_searched=(), errors={})
    if message_id.startswith(UNIQUE_PREFIX) and not page.can(SEE_DATA):
        page.say(messages.WARNING, _("You do not have permission to search by unique keys: they may contain data."))
    else:
        search = find_everywhere(message_id, seconds=SECONDS)
    return _render(page, message_id, search)


def _render(page: Page, message_id: str, search: SearchResult, **context: Any) -> HttpResponse:
    return page.render(
        "find",
        _("Find messages"),
        tabs=sections(page, ""),
        message_id=message_id,
        asked=text.visible(message_id, limit=200),
        rows=[_found_row(page, message_id, one) for one in search.found],
        not_searched=_names(list(search.not_searched)),
        errors=_names(sorted(search.errors)),
        **{"chips": [], "step": None, **context},
    )


def _names(names: list[str]) -> str:
    """Return the names of queues for a sentence."""
    more = [_("%(count)s more") % {"count": text.number(len(names) - MAX_NAMES)}] if len(names) > MAX_NAMES else []
    return ", ".join([*map(escape, names[:MAX_NAMES]), *more])


def _found_row(page: Page, message_id: str, one: FoundMessageIn) -> dict[str, Any]:
    view = one.view
    known = view if isinstance(view, MessageView) else None
    name = getattr(view, "name", "")
    return {
        "id": text.visible(message_id if known is None else filter_form.without_unique(known.id), limit=60),
        "name": text.visible(name, limit=60) if name else "",
        "queue": one.queue,
        "queue_url": page.queue_url(one.queue),
        "url": "" if known is None else filter_form.message_url(page, one.queue, known),
        "state": state_words(one.state, one.view.ending if isinstance(one.view, MessageView) else None),
        "when": text.moment(view.at_ms if isinstance(view, MessageView) else view.ms),
    }


# Find all that match a query. Each step is a request, so that nothing is read while nobody looks.

#: Seconds of a step.
STEP = 0.15


#: The parameters of the numbers of a Progress.
NUMBERS = ("seen", "found", "failed")


class Progress(NamedTuple):
    """Where a search goes on, what it has read and found before, and how many lists could not be read."""

    after: str = ""
    scanned: int = 0
    found: int = 0
    failed: int = 0


def _find_all(page: Page) -> HttpResponse:
    """Show the first step of a search, or the step that an address goes on with."""
    asked = _asked(page)
    nothing = SearchResult(found=(), not_searched=(), errors={})
    if asked is None:
        return _render(page, "", nothing)
    begun = _begun(page)
    by_id = nothing
    if asked.named and not begun.after:
        # The steps search what has no index.
        by_id = find_everywhere(asked.named, seconds=0)
    known = SearchResult(found=by_id.found, not_searched=(), errors={})
    is_held = bool(by_id.found) and asked.is_id_of_ours
    return _render(
        page,
        asked.named if by_id.found else "",
        known,
        chips=_chips(page, asked),
        step=_shown(page, asked, begun, None if is_held else step(asked, begun.after, seconds=STEP)),
        is_held=is_held,
        is_continued=bool(begun.after),
        start_url=_address(page, "find", Progress()),
    )


@needs(VIEW)
def more(page: Page) -> HttpResponse:
    """Return the next step of a search."""
    asked, begun = _asked(page), _begun(page)
    if asked is None:
        return JsonResponse({"error": _("There is nothing to search for.")}, status=400)
    page.request.current_app = page.model_admin.admin_site.name
    shown = _shown(page, asked, begun, step(asked, begun.after, seconds=STEP))
    html = render_to_string("admin/mq_django/queue/parts/found.html", shown, page.request)
    names = ("said", "count", "next_url", "go_on_url")
    return JsonResponse({"parts": {"found": html}, **{name: str(shown[name]) for name in names}})


def _begun(page: Page) -> Progress:
    given = page.request.GET
    return Progress(given.get("after", "")[:MAX_TEXT], *(whole(given.get(name, "")) or 0 for name in NUMBERS))


def _asked(page: Page) -> Query | None:
    """Return the query of a request; None without one.

    Raises:
        InvalidFilter: it cannot be searched for, or not by this user.
    """
    if not (asked := (filter_form.given(page, "q") or "").strip()):
        return None
    query = parse(asked)
    if isinstance(query, Problem):
        raise InvalidFilter(problem_sentence(query))
    if not query.needs_data or page.can(SEE_DATA):
        return query
    if query.named and not query.named.startswith(UNIQUE_PREFIX) and not query.where.id:
        return query.by_id()
    raise InvalidFilter(
        _(
            "You do not have permission to search for keys, data or errors, because this shows what messages contain. "
            "You can search by name:, state:, queue:, since:, until: and by the id of a message."
        )
    )


def _address(page: Page, name: str, at: Progress, words: str = "") -> str:
    fields = {"q": words or page.request.GET.get("q", "")}
    if at.after:
        fields |= {"after": at.after, **{name: str(number) for name, number in zip(NUMBERS, at[1:], strict=True)}}
    return f"{page.url(name)}?{urlencode(fields)}"


def _chips(page: Page, query: Query) -> list[dict[str, Any]]:
    """Return the words of a query, each with the address of the search without it."""
    more = len(query.words) > 1
    return [
        {
            "word": text.visible(word, limit=200),
            "url": _address(page, "find", Progress(), query.without(number)) if more else page.url("find"),
        }
        for number, word in enumerate(query.words)
    ]


def _shown(page: Page, query: Query, begun: Progress, found: Step | None) -> dict[str, Any]:
    """Return the context of what a step has found, and of where the search goes on; without a step of its start."""
    if found is None:
        return {
            "groups": [],
            "failed": [],
            "said": "",
            "count": 0,
            "next_url": _address(page, "find_stats", begun),
            "go_on_url": _address(page, "find", begun),
        }
    listings: dict[Listing, list[MessageView]] = {}
    for listing, view in found.found:
        listings.setdefault(listing, []).append(view)
    at = Progress(
        found.after, begun.scanned + found.scanned, begun.found + len(found.found), begun.failed + found.failed
    )
    failed: dict[str, list[str]] = {}
    for name, error in found.errors.items():
        failed.setdefault(sentence_of(error), []).append(name)
    return {
        "groups": [_group(page, query, listing, views) for listing, views in listings.items()],
        "failed": [(_names(names), sentence) for sentence, names in failed.items()],
        "said": _said(found, at),
        "count": at.found,
        "next_url": _address(page, "find_stats", at) if found.after else "",
        "go_on_url": _address(page, "find", at) if found.after else "",
    }


def _said(found: Step, at: Progress) -> str:
    numbers = {name: text.number(value) for name, value in (("found", at.found), ("scanned", at.scanned))}
    numbers |= {"done": text.number(max(0, found.done - at.failed)), "total": text.number(found.total)}
    if found.listing is None:
        return (
            _("Found %(found)s. %(done)s of %(total)s lists were searched, and %(scanned)s messages scanned.") % numbers
        )
    here = {"title": _title(found.listing), "queue": escape(found.listing.queue)[:100]}
    return _(
        "Found %(found)s. %(done)s of %(total)s lists searched, %(scanned)s messages scanned. "
        "Next: %(title)s, %(queue)s."
    ) % {**numbers, **here}


def _title(listing: Listing) -> str:
    return _("Log") if listing.state == "log" else str(TITLES[listing.state])


#: The columns of what was found, where a list has them.
SHOWN = ("name", "error", "at", "published", "data_code")


def _group(page: Page, query: Query, listing: Listing, views: Sequence[MessageView]) -> dict[str, Any]:
    """Return the context of the messages of a listing."""
    state, name = listing.state, listing.queue
    columns = LOG_COLUMNS if state == "log" else [column for column in COLUMNS[state] if column.cell in SHOWN]
    now_ms = clock.now_ms()
    actions = [] if state == "log" else chosen_actions(page, name, state)
    has_list = _has_list(query, state, views)
    where = f"?{urlencode(fields)}" if has_list and (fields := _fields(query)) else ""
    list_url = page.url("log", name) if state == "log" else page.url("messages", name, state)
    return {
        "key": f"{state} {name}",
        "queue": name,
        "title": _title(listing),
        "queue_url": page.queue_url(name),
        "list_url": list_url + where if has_list else "",
        "act_url": page.url("chosen", name, state) + where if actions else "",
        "actions": actions,
        "chosen_field": CHOSEN,
        **table(page, columns, [row_of(page, name, view, {}, now_ms=now_ms) for view in views]),
    }


def _has_list(query: Query, state: MessageState, views: Sequence[MessageView]) -> bool:
    """Return whether a list can have the same filter."""
    where = query.where
    is_by_id = bool(where.id) or any(view.id == query.named for view in views)
    # The times in that of handled messages are about when they ended.
    has_times = state == "handled" and (where.since_ms, where.until_ms) != (None, None)
    return not is_by_id and not has_times


def _fields(query: Query) -> Mapping[str, str]:
    """Return the fields of the filter of a list that finds the same."""
    where = query.where
    found = {"name": where.name, "key": where.key, "data": where.data, "error": where.error}
    times = {"from": where.since_ms, "to": where.until_ms}
    found |= {field: text.form_time(ms, "%Y-%m-%dT%H:%M:%S") for field, ms in times.items()}
    return {field: value for field, value in found.items() if value}
