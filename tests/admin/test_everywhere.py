"""What holds on every page there is: permissions, a slow Redis, other sites, prefixes, a log-in for everything."""

import re
import socket
from functools import cache

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import include, path, set_script_prefix

from mq_django import schedules
from mq_django.admin import QueueAdmin, find_page, run_pages
from mq_django.admin import consumer_pages as stacks
from mq_django.admin.queue_admin import ROUTES
from mq_django.admin.ui import page
from mq_django.inspector import jobs
from mq_django.models import Queue
from mq_django.transport.connections import TIMEOUTS, close_clients
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, POSTS, VIEW, VISITS, Visit, every_visit, main_of, world
from tests.seeding import publish, take
from tests.slow_wire import SlowWire

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings", "unanswered")]

ALL = frozenset({"view_queue", "view_message_data", "operate_queue", "purge_queue"})
#: Pages that show nothing of Redis, or a file that has begun.
WITHOUT_REDIS = (
    *("=history", "dead_export", "outbox", "outbox_stats", "outbox_row", "outbox_act"),
    *("old_purge", "old_list", "old_waiting", "old_entry", "old_handled", "old_dead"),
)

#: What a page may take, as it is outside of tests.
SECONDS, RUN_SECONDS, STEP, WAIT = page.SECONDS, run_pages.SECONDS, find_page.STEP, stacks.WAIT
SENTENCE = "Cannot reach Redis, or it did not reply in time."


@pytest.fixture
def unanswered(monkeypatch):
    """Let no page wait for the stacks of a consumer that does not exist."""
    monkeypatch.setattr(stacks, "WAIT", 0.0)


def test_every_page_is_in_the_table_with_each_of_its_methods():
    """A page that is added without a line in it would be tested by nothing here."""
    asked = {
        (name, method)
        for *_, methods, name in ROUTES
        for method in ("get", "post")
        if methods(lambda _: HttpResponse())(RequestFactory().generic(method.upper(), "/")).status_code == 200
    }
    assert asked == {(visit.name, visit.method) for visit in VISITS if not visit.name.startswith("=")}


def test_every_view_names_its_permissions():
    unguarded = [name for _, view, _, name in ROUTES if not getattr(view, "permissions", ())]
    assert unguarded == []


def faults(html, *, is_ours):
    """Return what is wrong with the HTML of a page, or of a part of one."""
    found = []
    if re.search(r"<script(?![^>]*\bsrc=)", html):
        found.append("inline code")
    if re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html):
        found.append("inline style or code")
    if html.count('aria-live="polite"') > 1:
        found.append("several parts that speak")
    for table in re.findall(r"<table.*?</table>", html, re.DOTALL) if is_ours else ():
        if "<caption" not in table:
            found.append("a table without a caption")
        if not all("scope=" in head for head in re.findall(r"<th[ >][^>]*", table)):
            found.append("a heading without a scope")
    return found


def faults_of_page(response, *, is_ours):
    """Return what is wrong with the HTML of a whole page."""
    html, main = response.content.decode(), main_of(response)
    found = faults(html, is_ours=is_ours)
    if is_ours and [main.count("<h1"), html.count("<h1")] != [1, 1]:
        found.append("not one heading")
    tags = re.findall(r'<(?:nav|[a-z]+ [^>]*role="region")[^>]*>', main)
    names = [re.search(r'aria-label="([^"]*)"', tag)[1] for tag in tags]
    return found + (["landmarks with the same name"] if len({*names}) < len(names) else [])


def test_each_page_takes_exactly_its_permissions(log_in):
    client_with = cache(log_in)
    failed = []
    for visit in every_visit():
        refused = [ALL - {missing} for missing in visit.needs]
        answers = [visit.send(client_with(*sorted(held))).status_code for held in refused]
        if {*answers} != {403} or visit.send(client_with(*sorted(visit.needs))).status_code not in (200, 302):
            failed.append(str(visit))
    assert failed == []


#: What leads to an action, or is one.
ACTIONS = re.compile(r'…</(?:a|button)>|formaction|_selected_action|href="[^"]*/(?:all|cancel|skip|retry|seek|add)/')


#: Pages that offer each kind of action to those who may act.
OFFERING = ("emails/change/", "emails/dead/", "emails/schedule/?schedule=digest")


def test_who_may_only_look_is_offered_no_action(viewer, operator):
    world()
    schedules.create("digest", queue="emails", every=60, message="m")
    for queue in ("default", "emails"):
        publish(queue, "welcome", 1)
    take("default", 1)
    jobs.begin("emails", "redrive", who="ann")
    held, *_ = operator.get(f"{BASE}default/pending/").context["rows"]
    pending = Visit("entry", held["url"].removeprefix(BASE), VIEW)
    offered = {}
    for visit in [*(visit for visit in LOOKS if visit.needs == VIEW), pending]:
        response = visit.send(viewer)
        is_page = response.status_code == 200 and not response.streaming
        offered[str(visit)] = ACTIONS.findall(main_of(response)) if is_page else []
    assert {name: found for name, found in offered.items() if found} == {}
    # They would have been there.
    pressed = {found for path in OFFERING for found in ACTIONS.findall(main_of(operator.get(BASE + path)))}
    assert pressed >= {"…</a>", "…</button>", "formaction", "_selected_action"}


def test_nobody_gets_in_without_logging_in_and_nothing_is_changed_without_its_token(client, operator):
    operator.handler.enforce_csrf_checks = True
    answers = {str(visit): visit.send(client) for visit in VISITS}
    assert [name for name, answer in answers.items() if answer.status_code != 302] == []
    assert {answer.url.partition("?")[0] for answer in answers.values()} == {"/admin/login/"}
    assert [str(visit) for visit in POSTS if visit.send(operator).status_code != 403] == []


def told_by(response):
    """Return what a page, a poll or the message after a button says."""
    page = "" if response.streaming else response.content.decode()
    return page + " ".join(map(str, get_messages(response.wsgi_request)))


def test_redis_away_is_a_sentence_on_every_page_and_after_every_button(operator, mq_settings, tmp_path):
    mq_settings(CONNECTION=f"unix://{tmp_path}/nobody.sock")
    failed = []
    for visit in VISITS:
        response = visit.send(operator)
        told = told_by(response)
        if visit.name not in WITHOUT_REDIS and (SENTENCE not in told or "Traceback" in told):
            failed.append((str(visit), told[-200:]))
        if response.status_code not in ((200, 302) if visit.name in WITHOUT_REDIS else (302, 503)):
            failed.append((str(visit), response.status_code))
    assert failed == []


def test_a_page_waits_so_long_that_it_answers_within_two_seconds():
    connecting, answering = TIMEOUTS["inspect"]
    assert max(SECONDS, connecting + answering) <= 1.5
    assert SECONDS + WAIT < 2


@pytest.mark.single_server(why="on a cluster, a page waits for each node")
@pytest.mark.parametrize(("replies", "late"), [(5, 0.0), (10_000, 0.36)], ids=["in the middle", "slow"])
def test_no_page_waits_for_longer_when_redis_stalls_or_is_slow(operator, monkeypatch, replies, late):
    """Whether Redis stops in the middle of a page, or takes its time for each answer."""
    monkeypatch.setattr(page, "SECONDS", SECONDS)
    monkeypatch.setattr(run_pages, "SECONDS", RUN_SECONDS)
    monkeypatch.setattr(find_page, "STEP", STEP)
    failed = []
    for visit in every_visit():
        close_clients()
        with monkeypatch.context() as patches:
            transport = SlowWire(patches, replies=replies, late=late)
            response = visit.send(operator)
        if transport.seconds > sum(TIMEOUTS["inspect"]) or response.status_code not in (200, 302, 503):
            failed.append((str(visit), response.status_code, transport.seconds, transport.timeouts))
    assert failed == []


@pytest.mark.single_server(why="the nodes of a cluster name each other, and not the address of the test")
@pytest.mark.parametrize("path", ["", "stats.json", "consumers/", "pause/"])
def test_a_server_that_stalls_is_asked_once_and_the_other_is_shown(operator, mq_settings, monkeypatch, path):
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        port = stalled.getsockname()[1]
        mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {"CONNECTION": f"redis://127.0.0.1:{port}/0"}})
        transport = SlowWire(monkeypatch, port=port)
        response = operator.get(BASE + path)

    assert response.status_code == 200
    assert "emails" in response.content.decode()
    assert transport.timeouts == 1


own_site = AdminSite(name="backoffice")
own_site.register(Queue, QueueAdmin)

#: The other site is there, too: a link that forgets its own would lead to it.
urlpatterns = [path("admin/", admin.site.urls), path("shop/", include([path("staff/", own_site.urls)]))]


@pytest.fixture
def elsewhere(settings):
    """Where the pages are in another admin site, behind a prefix, in a project where each view requires a log-in."""
    settings.ROOT_URLCONF = __name__
    settings.FORCE_SCRIPT_NAME = "/behind"
    settings.STATIC_URL = "static/"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    set_script_prefix("/behind/")
    yield "/shop/staff/"
    set_script_prefix("/")


@pytest.mark.versions
@pytest.mark.cluster
def test_each_page_keeps_the_rules_of_html_and_its_links_in_another_admin_site_behind_a_prefix(elsewhere, client):
    boss = Client()
    boss.force_login(User.objects.create_superuser("boss", password="x"))
    base = f"{elsewhere}mq_django/queue/"
    failed = []
    for visit in every_visit():
        if visit.send(client, base).status_code != 302:
            failed.append((str(visit), "without a log-in"))
        response = visit.send(boss, base)
        links, found = [], []
        if response.streaming:
            assert b"".join(response.streaming_content)
        elif response.status_code == 302:
            links = [response.url]
        elif "json" in response["Content-Type"]:
            parts = "".join(response.json()["parts"].values())
            links, found = links_in(parts), faults(parts, is_ours=True)
        else:
            links = links_in(main_of(response))
            found = faults_of_page(response, is_ours=visit.name != "=history")
            found += [] if links or visit.name == "=history" else ["no links"]
        if response.status_code not in (200, 302):
            found.append(response.status_code)
        if "/admin/" in re.sub(r'"[^"]*/static/[^"]*"', "", "" if response.streaming else response.content.decode()):
            found.append("a link to the other admin site")
        found += [link for link in links if not link.startswith(f"/behind{elsewhere}")]
        failed += [(str(visit), *found)] if found else []
    assert failed == []


def links_in(html):
    return re.findall(r'(?:href|action|data-mq-live)="(/[^"]*)"', html)
