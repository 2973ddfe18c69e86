"""The URLs of a page that shows a stream."""

import re
from pathlib import Path
from types import SimpleNamespace

from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.urls import path

from mq_django.views import message_stream

GUIDE = (Path(__file__).parents[2] / "docs" / "howto" / "stream-answers.md").read_text(encoding="utf-8")
PAGE = "<!doctype html><title>Answers</title>{% load static mq_django %}"
TWO = "<main>{% message_stream url %}{% message_stream url %}</main>"


def box(language: str) -> str:
    """Return the boxes of the guide in a language."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL))


def show(request: HttpRequest) -> HttpResponse:
    return HttpResponse(Template(PAGE + TWO).render(Context({"url": "/answers/m1"})))


def guide(request: HttpRequest) -> HttpResponse:
    return HttpResponse(Template(PAGE + box("html")).render(Context({"result": SimpleNamespace(id="m1")})))


def may_read(request: HttpRequest, message_id: str) -> bool:
    return message_id == "m1"


urlpatterns = [
    path("favicon.ico", lambda _: HttpResponse(status=204)),
    path("page", show),
    path("guide", guide),
    path("answers/<str:id>", message_stream, {"may_read": may_read, "queue": "default"}, "answer"),
]
