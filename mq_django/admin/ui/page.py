"""The base of all pages: check permissions, render, handle errors of Redis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import django
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.core.visible import escape
from mq_django.errors import (
    ConfigurationError,
    ConnectionLost,
    InvalidFilter,
    MQError,
    NotSupported,
    StoreError,
    UnknownQueue,
)
from mq_django.inspector.queues import require_queue
from mq_django.models import Queue
from mq_django.transport.sessions import within

logger = get_logger(__name__)

#: Permissions by their short names.
VIEW, SEE_DATA, OPERATE, PURGE = "view_queue", "view_message_data", "operate_queue", "purge_queue"

View = Callable[..., HttpResponse]

#: Total seconds for requests to Redis per page, so that a page takes at most 2.
SECONDS = 1.2


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
        return reverse(f"admin:mq_django_queue_{name}", args=args, current_app=site)

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
                **self._links_back(str(context.get("queue", ""))),
                "title": title,
                **context,
            },
            status=status,
        )

    def parts(self, names: Sequence[str], context: dict[str, Any]) -> JsonResponse:
        """Return the live parts of a page as JSON, by name."""
        self.request.current_app = self.model_admin.admin_site.name
        context = {**self._frame(), **context}
        return JsonResponse(
            {
                "summary": context["summary"],
                "parts": {
                    name: render_to_string(f"admin/mq_django/queue/parts/{name}.html", context, self.request)
                    for name in names
                },
            }
        )

    def _frame(self) -> dict[str, Any]:
        return {
            "opts": self.model_admin.opts,
            "overview_url": self.url("changelist"),
            "can_see_data": self.can(SEE_DATA),
            "can_operate": self.can(OPERATE),
            "can_purge": self.can(OPERATE, PURGE),
            # Django 6.1 styles breadcrumbs only as a list.
            "crumbs_are_a_list": django.VERSION >= (6, 1),
        }

    def _links_back(self, queue: str) -> dict[str, str]:
        """Return the links from a page to its queue, and from a group's page to its topic."""
        if not queue:
            return {}
        topic, separator, group = queue.partition(GROUP_SEPARATOR)
        of_group = {"topic": topic, "topic_url": self.queue_url(topic), "leaf": group} if separator else {}
        return {"queue_url": self.queue_url(queue), **of_group}

    def say(self, level: int, text: str) -> None:
        """Show a message on the next page."""
        messages.add_message(self.request, level, text)

    def log(self, queue: str, text: str) -> None:
        """Write an action on a queue to the admin's log."""
        self.model_admin.log_change(self.request, Queue(name=queue), escape(text))


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
    wants_json = page.request.path.endswith(".json")
    try:
        with within(SECONDS):
            if "name" in kwargs:
                require_queue(kwargs["name"])
            elif "topic" in kwargs:
                get_config().topic(kwargs["topic"])
            return view(page, **kwargs)
    except UnknownQueue:
        # Only users who may do this to a queue may learn which ones exist.
        if not page.can(VIEW, *getattr(view, "permissions", ())):
            raise PermissionDenied from None
        name = escape(kwargs.get("name") or kwargs.get("topic", ""))[:160]
        sentence = _("There is no queue “%(name)s” in the settings.") % {"name": name}
        if wants_json:
            return JsonResponse({"error": sentence}, status=404)
        page.say(messages.WARNING, sentence)
        return HttpResponseRedirect(page.url("changelist"))
    except InvalidFilter as error:
        return page.render("refused", _("Queues"), status=400, sentence=str(error))
    except (StoreError, ConfigurationError) as error:
        if not page.can(VIEW):
            raise PermissionDenied from None
        logger.warning("An admin page could not be rendered: %s", error)
        if wants_json:
            return JsonResponse({"error": sentence_of(error)}, status=503)
        return page.render(
            "unreachable", _("Queues"), status=503, sentence=sentence_of(error), detail=escape(str(error))
        )


def sentence_of(error: MQError) -> str:
    """Return the text of an error for operators."""
    if isinstance(error, ConnectionLost):
        return _("Cannot reach Redis, or it did not reply in time. Try again in a moment.")
    if isinstance(error, ConfigurationError):
        return _("The setting MQ_DJANGO is invalid. Run manage.py check for details.")
    if isinstance(error, NotSupported):
        return _("The store of this queue cannot do that.")
    return _("Redis could not perform this operation.")
