"""What holds on every page there is: permissions, a slow Redis, other sites, prefixes, a log-in for everything."""

import re
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import include, path, set_script_prefix

from mq_django.admin import QueueAdmin
from mq_django.admin.queue_admin import ROUTES
from mq_django.admin.ui import page
from mq_django.models import Queue
from mq_django.transport.connections import TIMEOUTS, close_clients
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, VISITS, main_of, world

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

EVERY = pytest.mark.parametrize("visit", VISITS, ids=str)
#: Pages that show nothing of Redis, or a file that has begun.
WITHOUT_REDIS = ("=history", "dead_export", "outbox", "outbox_stats", "outbox_act")
LOOK = pytest.mark.parametrize("visit", LOOKS, ids=str)

#: What a page may take, as it is outside of tests.
SECONDS = page.SECONDS
SENTENCE = "Cannot reach Redis, or it did not reply in time."


def test_every_page_is_in_the_table():
    """A page that is added without a line in it would be tested by nothing here."""
    assert {name for *_, name in ROUTES} == {visit.name for visit in VISITS if not visit.name.startswith("=")}


def test_every_view_names_its_permissions():
    unguarded = [name for _, view, _, name in ROUTES if not getattr(view, "permissions", ())]
    assert unguarded == []


@pytest.mark.parametrize("visit", [visit for visit in LOOKS if visit.name != "dead_export"], ids=str)
def test_each_landmark_has_a_name_of_its_own(operator, visit):
    world()
    page = main_of(visit.send(operator, follow=True))
    tags = re.findall(r'<(?:nav|[a-z]+ [^>]*role="region")[^>]*>', page)
    names = [re.search(r'aria-label="([^"]*)"', tag)[1] for tag in tags]
    assert len({*names}) == len(names)


@EVERY
def test_each_takes_exactly_its_permissions(log_in, visit):
    world()
    assert visit.send(log_in(*visit.needs)).status_code in (200, 302)
    every = {"view_queue", "view_message_data", "operate_queue", "purge_queue"}
    for missing in visit.needs:
        assert visit.send(log_in(*every - {missing})).status_code == 403
    assert visit.send(log_in()).status_code == 403


@EVERY
def test_nobody_gets_in_without_logging_in(client, visit):
    response = visit.send(client)
    assert response.status_code == 302
    assert response.url.startswith("/admin/login/")


@EVERY
def test_what_changes_something_needs_its_token(operator, visit):
    operator.handler.enforce_csrf_checks = True
    if visit.method == "post":
        assert visit.send(operator).status_code == 403


class Stalling:
    """A Redis behind a wire that passes some replies on, each late, and then none any more."""

    def __init__(self, url: str, *, replies: int, late: float = 0.0) -> None:
        self._target = urlsplit(url)
        self._left, self._late = replies, late
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self.accepted = 0
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = self._connect()
                self._open += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._target.scheme == "unix":
            found = socket.socket(socket.AF_UNIX)
            found.connect(self._target.path)
            return found
        return socket.create_connection((self._target.hostname, self._target.port))

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        from_server = target in self._open[1::2]
        with suppress(OSError):
            while piece := source.recv(1 << 20):
                if from_server:
                    self._left -= 1
                    if self._left < 0:
                        continue
                    time.sleep(self._late)
                target.sendall(piece)

    def __enter__(self) -> "Stalling":
        return self

    def __exit__(self, *_: object) -> None:
        close_clients()
        for found in self._open:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()


#: Why there is no such test on a cluster.
BEHIND_A_PROXY = "the nodes of a cluster name each other, and not the proxy before one of them"


@pytest.fixture
def hurried(monkeypatch):
    """Let pages wait a quarter as long as they do: two hundred of them that wait their time would take minutes."""
    monkeypatch.setattr(page, "SECONDS", SECONDS / 4)
    monkeypatch.setitem(TIMEOUTS, "inspect", tuple(seconds / 4 for seconds in TIMEOUTS["inspect"]))


def test_a_page_waits_so_long_that_it_answers_within_two_seconds():
    connecting, answering = TIMEOUTS["inspect"]
    assert max(SECONDS, connecting + answering) <= 1.5


@pytest.mark.single_server(why=BEHIND_A_PROXY)
@pytest.mark.retried(why="a busy machine may keep a process waiting for longer than the 0.6 s that are left for that")
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("replies", "late"), [(0, 0.0), (5, 0.0), (10_000, 0.09)])
@EVERY
def test_it_answers_soon_when_redis_stalls_or_is_slow(operator, mq_settings, redis_url, visit, replies, late):
    """Whether Redis stops at once, in the middle of a page, or takes its time for each answer."""
    world()
    with Stalling(redis_url, replies=replies, late=late) as stalling:
        mq_settings(CONNECTION=stalling.url)
        began = time.monotonic()
        response = visit.send(operator)
        took = time.monotonic() - began

        assert took < 1.0
        if not replies and visit.name not in WITHOUT_REDIS:
            told = response.content.decode() + " ".join(map(str, get_messages(response.wsgi_request)))
            assert SENTENCE in told
            assert "Traceback" not in told
        assert response.status_code in (200, 302, 503)


@pytest.mark.single_server(why=BEHIND_A_PROXY)
@pytest.mark.parametrize("path", ["", "stats.json", "consumers/", "pause/"])
def test_a_server_that_stalls_is_asked_once_and_the_other_is_shown(operator, mq_settings, redis_url, path):
    with Stalling(redis_url, replies=0) as stalling:
        mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {"CONNECTION": stalling.url}})
        response = operator.get(BASE + path)

        assert response.status_code == 200
        assert "emails" in response.content.decode()
        assert stalling.accepted == 1


own_site = AdminSite(name="backoffice")
own_site.register(Queue, QueueAdmin)

urlpatterns = [path("shop/", include([path("staff/", own_site.urls)]))]


@pytest.mark.urls("tests.admin.test_everywhere")
@EVERY
def test_it_works_in_another_admin_site_that_is_mounted_elsewhere(visit):
    world()
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))

    response = visit.send(client, "/shop/staff/mq_django/queue/")

    assert response.status_code in (200, 302)
    if response.status_code == 302:
        assert response.url.startswith("/shop/staff/mq_django/queue/")
    elif not response.streaming:
        assert "/admin/" not in re.sub(r'"/?static/[^"]*"', "", response.content.decode())


@EVERY
def test_it_works_behind_a_prefix(operator, visit, settings):
    settings.FORCE_SCRIPT_NAME = "/behind"
    settings.STATIC_URL = "static/"
    world()
    set_script_prefix("/behind/")
    try:
        response = visit.send(operator)
    finally:
        set_script_prefix("/")

    assert response.status_code in (200, 302)
    if response.status_code == 302:
        assert response.url.startswith(f"/behind{BASE}")
    elif not response.streaming and "json" not in response["Content-Type"] and visit.name != "=history":
        links = re.findall(r'(?:href|action|data-mq-live)="(/[^"]*)"', main_of(response))
        assert links
        assert [link for link in links if not link.startswith("/behind/")] == []


@EVERY
def test_it_works_where_every_view_requires_a_log_in(operator, client, settings, visit):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    world()

    assert visit.send(operator).status_code in (200, 302)
    assert visit.send(client).status_code == 302


@LOOK
def test_no_look_has_inline_code_or_style_and_tables_are_named(operator, visit):
    world()
    response = visit.send(operator)
    if response.streaming or response.status_code != 200:
        return
    page = response.content.decode()
    if "json" in response["Content-Type"]:
        page = "".join(response.json()["parts"].values())

    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    if visit.name != "=history":
        for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
            assert "<caption" in table
            assert all("scope=" in head for head in re.findall(r"<th[ >][^>]*", table))
    assert page.count('aria-live="polite"') <= 1
