"""The base of all pages: check permissions, render, confirm an action, handle errors of Redis."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

import django
from django.conf import settings
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, get_urlconf, reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from mq_django import errors
from mq_django.admin.ui import text
from mq_django.admin.ui.live import LiveParts, LiveRows, Rendered, shared
from mq_django.admin.ui.text import number, one_time
from mq_django.conf import current_time_zone, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.core.partitions import public_name
from mq_django.core.texts import escape, truncate
from mq_django.discovery import import_declaring
from mq_django.inspector.actions import MAX_REASON, Outcome
from mq_django.inspector.outbox_views import uses_outbox
from mq_django.inspector.problem_list import QueueProblem
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats, require_queue
from mq_django.inspector.topics import TopicView
from mq_django.models import Queue
from mq_django.stores.activity import acting
from mq_django.transport.sessions import within

logger = get_logger(__name__)

#: Permissions by their short names.
VIEW, SEE_DATA, OPERATE, PURGE = "view_queue", "view_message_data", "operate_queue", "purge_queue"

#: The form field of a confirmed action.
CONFIRMED = "confirmed"

View = Callable[..., HttpResponse]

Word = TypeVar("Word", bound=str)

#: Total seconds for requests to Redis per page, so that a page takes at most 2.
SECONDS = 1.2
#: Redis is not blamed for a page that took this many seconds, of which the process computed at least this share: it
#: may have had no time to read the replies.
BUSY_AFTER, BUSY_SHARE = 0.5, 0.4


@dataclass(frozen=True, slots=True)
class Page:
    """A request to a page."""

    model_admin: "ModelAdmin[Queue]"
    request: HttpRequest

    def can(self, *permissions: str) -> bool:
        """Return whether the user has all of the permissions."""
        app = self.model_admin.opts.app_label
        user = self.request.user
        return user.is_active and user.has_perms([f"{app}.{permission}" for permission in permissions])

    def url(self, name: str, *args: str) -> str:
        """Return the URL of a page in this admin site."""
        site = self.model_admin.admin_site.name
        where = get_script_prefix(), get_urlconf() or settings.ROOT_URLCONF, get_language()
        return _url(name, args, site, _where=where)

    def queue_url(self, queue: str) -> str:
        """Return the URL of a queue's page, which is the change page of the model."""
        return self.url("change", quote(queue))

    def render(self, template: str, title: str, *, status: int = 200, **context: Any) -> TemplateResponse:
        """Render a page in the layout of the admin."""
        site = self.model_admin.admin_site
        self.request.current_app = site.name
        return TemplateResponse(
            self.request,
            f"admin/mq_django/queue/{template}.html",
            {
                **site.each_context(self.request),
                **self._frame(),
                **self._crumbs(title, str(context.get("queue", "")), context.get("tabs", ())),
                "title": title,
                "shortcuts": [
                    (tab["shortcut"], tab["label"], tab["url"]) for tab in sections(self, "") if tab["shortcut"]
                ],
                **context,
            },
            status=status,
        )

    def parts(self, names: Sequence[str], context: dict[str, Any]) -> HttpResponse:
        """Return the answer to a poll of a page: the live parts that differ from what the browser shows."""
        return self.live(names, context).response(self.request)

    def live(
        self, names: Sequence[str], context: dict[str, Any], rows: Mapping[str, LiveRows] | None = None
    ) -> LiveParts:
        """Return the live parts of a page by name: those with templates, and those in rows."""
        self.request.current_app = self.model_admin.admin_site.name
        context = {**self._frame(), **context}
        whole = {
            name: Rendered.of(render_to_string(f"admin/mq_django/queue/parts/{name}.html", context, self.request))
            for name in names
        }
        return LiveParts(context["summary"], {**whole, **(rows or {})})

    def shared(self, name: str, compute: Callable[[], LiveParts]) -> LiveParts:
        """Return the live parts of a page for a poll, computed once for all viewers who may see the same.

        Raises:
            MQError: they could not be computed, for this viewer or another one.
        """
        rights = self.can(VIEW), self.can(SEE_DATA), self.can(OPERATE), self.can(OPERATE, PURGE)
        where = self.model_admin.admin_site.name, self.url("changelist"), self.request.get_full_path()
        return shared((name, rights, where, get_language(), str(current_time_zone())), compute)

    def _frame(self) -> dict[str, Any]:
        return {
            "opts": self.model_admin.opts,
            "overview_url": self.url("changelist"),
            "shown_at": text.time_of_day(),
            "find_url": (find_url := self.url("find")),
            "search_text": self.request.GET.get("q", "") if self.request.path == find_url else "",
            "can_see_data": self.can(SEE_DATA),
            "can_operate": self.can(OPERATE),
            "can_purge": self.can(OPERATE, PURGE),
            # Django 6.1 styles breadcrumbs only as a list.
            "crumbs_are_a_list": django.VERSION >= (6, 1),
        }

    def _crumbs(self, title: str, queue: str, tabs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the pages above a page as URLs and labels, and the label of the page itself."""
        above = {self.url("changelist"): str(capfirst(self.model_admin.opts.verbose_name_plural))}
        if queue:
            whole = public_name(queue)
            topic, _separator, group = whole.partition(GROUP_SEPARATOR)
            labels = {topic: topic, whole: group or whole, queue: queue if queue != whole else group or whole}
            above |= {self.queue_url(name): label for name, label in labels.items()}
        for tab in tabs:
            if tab["is_current"]:
                above.setdefault(tab["url"], tab["label"])
        if title == queue:
            title = above.pop(self.queue_url(queue))
        # Without the page itself, and what stands for it where it cannot be shown.
        crumbs = [(url, label) for url, label in above.items() if unquote(url) != self.request.path and label != title]
        return {"crumbs": crumbs, "crumb_here": title}

    @property
    def query(self) -> str:
        """Return the query of the request for another URL, "" without one."""
        found = self.request.GET.urlencode()
        return f"?{found}" if found else ""

    @property
    def is_confirmed(self) -> bool:
        """Return whether the request does an action that the user has confirmed."""
        return self.request.method == "POST" and CONFIRMED in self.request.POST

    @property
    def username(self) -> str:
        """Return the name of the user."""
        return str(self.request.user.get_username())

    def say(self, level: int, text: str) -> None:
        """Show a message on the next page."""
        messages.add_message(self.request, level, text)

    def leave(self, url: str, text: str, level: int = messages.WARNING) -> HttpResponse:
        """Go to another page, and show a message there."""
        self.say(level, text)
        return HttpResponseRedirect(url)

    def log(self, queue: str, text: str) -> None:
        """Write an action on a queue to the admin's log."""
        self.model_admin.log_change(self.request, Queue(name=queue), escape(text))


@lru_cache(maxsize=4096)
def _url(name: str, args: Sequence[str], site: str, *, _where: object) -> str:
    # Cached, because a page of all queues has several for each. `_where` is what reverse() depends on besides.
    return reverse(f"admin:mq_django_queue_{name}", args=args, current_app=site)


def needs(*permissions: str) -> Callable[[View], View]:
    """Require permissions for a view. Being staff is not enough."""

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(page: Page, **kwargs: str) -> HttpResponse:
            if not page.can(*permissions):
                raise PermissionDenied
            return view(page, **kwargs)

        checked.permissions = permissions  # type: ignore[attr-defined]
        return checked

    return decorate


def answer(view: View, page: Page, **kwargs: str) -> HttpResponse:
    """Return the response of a view, or an error page."""
    import_declaring()
    wants_json, load = page.request.path.endswith(".json"), _Load()
    _load.set(load)
    try:
        with within(SECONDS), one_time(), acting(page.username, "admin"):
            if "name" in kwargs:
                require_queue(kwargs["name"])
            elif "topic" in kwargs:
                get_config().topic(kwargs["topic"])
            return view(page, **kwargs)
    except errors.UnknownQueue:
        # Only users who may do this to a queue may learn which ones exist.
        if not page.can(VIEW, *getattr(view, "permissions", ())):
            raise PermissionDenied from None
        name = escape(kwargs.get("name") or kwargs.get("topic", ""))[:160]
        sentence = _("There is no queue “%(name)s” in the settings.") % {"name": name}
        if wants_json:
            return JsonResponse({"error": sentence}, status=404)
        return page.leave(page.url("changelist"), sentence)
    except errors.InvalidFilter as error:
        return page.render("refused", _("Queues"), status=400, sentence=str(error))
    except (errors.StoreError, errors.ConfigurationError) as error:
        if not page.can(VIEW):
            raise PermissionDenied from None
        busy = load.sentence() if isinstance(error, errors.ConnectionLost) else ""
        logger.warning("An admin page could not be rendered: %s", busy or error)
        if wants_json:
            return JsonResponse({"error": busy or sentence_of(error)}, status=503)
        return page.render(
            "unreachable",
            _("Queues"),
            status=503,
            sentence=busy or sentence_of(error),
            detail="" if busy else escape(str(error)),
            is_retried=page.request.method == "GET",
        )


def one_of(word: str, known: Iterable[Word]) -> Word:
    """Return the one of these words that an address has.

    Raises:
        Http404: it has none of them.
    """
    for each in known:
        if word == each:
            return each
    raise Http404


def attachment(name: str) -> dict[str, str]:
    """Return the headers of a file to download."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


class _Load:
    """How busy this process has been since a page began."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), time.process_time()

    def sentence(self) -> str:
        """Return that the process itself was too slow, "" if it mostly waited."""
        took, used = time.monotonic() - self._began, time.process_time() - self._used
        if took < BUSY_AFTER or used < took * BUSY_SHARE:
            return ""
        return _("This page took too long to build, because this web process is busy. Redis may be reachable.")


#: How busy the process has been since the page of this thread began: pages also show errors of a part of their reads.
_load: ContextVar[_Load | None] = ContextVar("mq_django_page_load", default=None)


def sentence_of(error: errors.MQError) -> str:
    """Return the text of an error for operators."""
    if isinstance(error, errors.ConnectionLost):
        load = _load.get()
        return (load.sentence() if load is not None else "") or _(
            "Cannot reach Redis, or it did not reply in time. Try again in a moment."
        )
    if isinstance(error, errors.ConfigurationError):
        return _("The setting MQ_DJANGO is invalid. Run manage.py check for details.")
    if isinstance(error, errors.NotSupported):
        return _("The store of this queue cannot do that.")
    if isinstance(error, errors.QueueFull):
        return _("The queue is at its MAX_DEPTH.")
    return _("Redis could not perform this operation.")


# The tabs of one queue's pages, and of the pages for all queues.


def state_labels() -> dict[str, str]:
    """Return the names of the states of messages."""
    return {
        "ready": _("Ready"),
        "pending": _("Pending"),
        "delayed": _("Delayed"),
        "unhandled": _("Unhandled"),
        "parked": _("Parked"),
        "dead": _("Dead letters"),
        "handled": _("Handled"),
    }


def tabs(page: Page, name: str, current: str, view: QueueView | None = None) -> list[dict[str, Any]]:
    """Return the tabs of a queue's pages with message counts."""
    view, config = view or quick_stats(name), get_config().queue(name)
    labels = state_labels()
    # Only some queues have these.
    has_parked = view.parked or config.limits.of_keys
    absent = {"parked": not has_parked, "handled": config.history is None}
    states = [state for state in labels if state == current or not absent.get(state)]
    found: list[tuple[str, str, str, int | None]] = [
        ("queue", _("Group") if GROUP_SEPARATOR in name else _("Queue"), page.queue_url(name), None),
        *((state, labels[state], page.url("messages", name, state), getattr(view, state, None)) for state in states),
        ("history", _("History"), page.url("history", quote(name)), None),
        ("activity", _("Activity"), f"{page.url('activity')}?{urlencode({'queue': public_name(name)})}", None),
    ]
    return _tabs(found, current)


def waiting_url(page: Page, view: QueueView) -> str:
    """Return the URL of the first list of waiting messages that is not empty."""
    state = "unhandled" if view.unhandled else "parked" if view.parked else "delayed"
    return page.url("messages", view.name, "delayed" if view.delayed else state)


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
    """Return the tabs of the pages for all queues, each with the key that opens it after "g"."""
    found = [
        ("queues", _("Queues"), page.url("changelist"), "o"),
        ("problems", _("Problems"), page.url("problems"), "p"),
        ("metrics", _("Metrics"), page.url("metrics"), "m"),
        ("consumers", _("Consumers"), page.url("consumers"), "c"),
        ("workflows", _("Workflows"), page.url("workflows"), "w"),
        ("activity", _("Activity"), page.url("activity"), "a"),
    ]
    if any(config.has_schedules for config in get_config().queues.values()):
        found.append(("schedules", _("Schedules"), page.url("schedules"), "s"))
    if current == "outbox" or uses_outbox():
        found.append(("outbox", _("Outbox"), page.url("outbox"), ""))
    return [
        {"label": label, "url": url, "count": None, "is_current": key == current, "shortcut": shortcut}
        for key, label, url, shortcut in found
    ]


# The confirmation page of an action, and its result messages.

#: The form field with the selected items, as in the admin's own actions.
CHOSEN = "_selected_action"

#: The most selected items that are listed.
MAX_LISTED = 20


def chosen(page: Page) -> list[str]:
    """Return the selected items of a form without duplicates."""
    return list(dict.fromkeys(page.request.POST.getlist(CHOSEN)))


def confirm(
    page: Page,
    queue: str,
    title: str,
    sentence: str,
    button: str,
    *,
    tab: str = "",
    act_url: str = "",
    back_url: str = "",
    fields: Sequence[tuple[str, str]] = (),
    listed: Sequence[SafeString] = (),
    count: int = 0,
    dangerous: bool = False,
    inputs: Sequence[Mapping[str, Any]] = (),
    detail: tuple[str, str] | None = None,
    samples: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """Render the confirmation page of an action on a queue, or on all queues if `queue` is empty.

    Without `act_url` the address of this page does it. `count` is the number of items if `listed` has only the first
    of them. `detail` is the label and the URL of a page to see before, and
    `samples` the context of the filter and of some messages that match.
    """
    return page.render(
        "confirm",
        title,
        queue=queue,
        tabs=tabs(page, queue, tab or "queue") if queue else sections(page, tab or "queues"),
        sentence=sentence,
        button=button,
        act_url=act_url or page.request.path,
        back_url=back_url or (page.queue_url(queue) if queue else page.url("changelist")),
        fields=[*fields, (CONFIRMED, "yes")],
        listed=listed[:MAX_LISTED],
        unlisted=text.beyond(max(count, len(listed)), MAX_LISTED),
        dangerous=dangerous,
        inputs=inputs,
        detail=detail,
        **(samples or {}),
    )


def reason_input(help_text: str, *, value: str = "") -> dict[str, str]:
    """Return the field for the reason of an action, for a confirmation page."""
    shown = {"name": "reason", "label": _("Reason"), "value": value, "help": help_text}
    return {**shown, "maxlength": str(MAX_REASON)}


def because(reason: str) -> str:
    """Return a reason as the end of a text for the admin's log; "" without one."""
    return f": {reason.strip()[:MAX_REASON]}" if reason.strip() else ""


def interrupted(error: errors.MQError) -> str:
    """Return the text of an error that has ended an action on several things."""
    more = _("Changes made so far stay. You can safely try again.")
    return f"{sentence_of(error)} {more}"


def report(page: Page, queue: str, outcome: Outcome, *, done: str, logged: str, refused: str = "") -> None:
    """Show the result of an action to the user, and write it to the admin's log.

    `refused` is the sentence about messages that were refused, if it is not that they cannot be redriven.
    """
    if outcome.done:
        page.say(messages.SUCCESS, done)
    for count, sentence in (
        (
            outcome.missing,
            ngettext("%(count)s no longer existed.", "%(count)s no longer existed.", outcome.missing),
        ),
        (
            outcome.refused,
            refused
            or ngettext(
                "%(count)s is not a valid message and cannot be redriven.",
                "%(count)s are not valid messages and cannot be redriven.",
                outcome.refused,
            ),
        ),
    ):
        if count:
            page.say(messages.WARNING, sentence % {"count": number(count)})
    if outcome.error is not None:
        page.say(messages.ERROR, interrupted(outcome.error))
    if outcome.done or outcome.error is not None:
        # Redis may have executed the last batch although its reply was lost, so the log mentions it.
        doubt = " (interrupted; up to one more batch may have been done)" if outcome.error is not None else ""
        page.log(queue, truncate(logged, 1000) + doubt)


#: The most problems that the page of a queue or topic lists, and that of all queues.
MAX_PROBLEMS, TOP_PROBLEMS = 50, 3


def listed_problems(
    page: Page, found: Sequence[QueueProblem], *, own: str = "", most: int = MAX_PROBLEMS
) -> dict[str, Any]:
    """Return the context of a list of problems without muted ones.

    Those of `own`, the queue or topic of the page, have no link to it.
    """
    unmuted = [problem for problem in found if problem.mute is None]
    return {
        "problems": [shown_problem(page, problem, own=own) for problem in unmuted[:most]],
        "more_problems": text.beyond(len(unmuted), most),
        "muted_problems": text.beyond(len(found), len(unmuted)),
        "problems_url": page.url("problems"),
        "summary": problem_summary(len(unmuted)),
    }


def problem_summary(count: int) -> str:
    """Return how many problems there are, as a sentence."""
    if not count:
        return _("No problems found.")
    return ngettext("%(count)s problem found.", "%(count)s problems found.", count) % {"count": text.number(count)}


def shown_problem(page: Page, problem: QueueProblem, *, own: str = "") -> dict[str, Any]:
    """Return a problem for a list: the queue with a link, and the sentence that follows its name."""
    elsewhere = {"outbox": "outbox", "stuck": "workflows"}.get(problem.kind)
    url = page.url(elsewhere) if elsewhere else "" if problem.queue == own else page.queue_url(problem.queue)
    return {
        "queue": problem.queue,
        "url": url,
        "sentence": problem.words,
        "what": problem.kind,
        "severity": problem.severity,
    }
