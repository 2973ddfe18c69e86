"""The URLs of a page that shows a stream."""

from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.urls import path

from mq_django.views import message_stream

PAGE = """{% load static mq_django %}<!doctype html><title>Answers</title>
<main>{% message_stream url %}{% message_stream url %}</main>"""


def show(request: HttpRequest) -> HttpResponse:
    return HttpResponse(Template(PAGE).render(Context({"url": "/answers/m1"})))


def may_read(request: HttpRequest, message_id: str) -> bool:
    return message_id == "m1"


urlpatterns = [
    path("favicon.ico", lambda _: HttpResponse(status=204)),
    path("page", show),
    path("answers/<str:id>", message_stream, {"may_read": may_read, "queue": "default"}),
]
