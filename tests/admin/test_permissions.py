"""Staff is not permission: each page and each button asks for its own."""

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from mq_django import inspector
from mq_django.admin.queue_admin import ROUTES
from tests.admin.conftest import BASE
from tests.seeding import bury, dead_entry, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

ALL = ("view_queue", "view_message_data", "operate_queue", "purge_queue")

#: Path, method, the permissions it takes.
PAGES = [
    ("", "get", {"view_queue"}),
    ("stats.json", "get", {"view_queue"}),
    ("emails/change/", "get", {"view_queue"}),
    ("emails/stats.json", "get", {"view_queue"}),
    ("emails/history/", "get", {"view_queue"}),
    ("emails/ready/", "get", {"view_queue"}),
    ("emails/pending/", "get", {"view_queue"}),
    ("emails/entry/ready/1-1/", "get", {"view_queue"}),
    ("emails/pause/", "post", {"view_queue", "operate_queue"}),
    ("emails/resume/", "post", {"view_queue", "operate_queue"}),
    ("emails/purge/ready/", "get", {"view_queue", "operate_queue", "purge_queue"}),
    ("emails/purge/ready/", "post", {"view_queue", "operate_queue", "purge_queue"}),
    ("emails/waiting/delayed/", "get", {"view_queue"}),
    ("emails/waiting/unhandled/", "get", {"view_queue"}),
    ("emails/waiting/delayed/m1/", "get", {"view_queue"}),
    ("emails/cancel/", "post", {"view_queue", "operate_queue"}),
    ("emails/dead/", "get", {"view_queue"}),
    ("emails/dead/groups/", "get", {"view_queue"}),
    ("emails/dead/export/", "get", {"view_queue", "view_message_data"}),
    ("emails/dead/1-1/edit/", "get", {"view_queue", "view_message_data", "operate_queue"}),
    ("emails/dead/1-1/edit/", "post", {"view_queue", "view_message_data", "operate_queue"}),
    ("emails/dead/1-1/", "get", {"view_queue"}),
    ("emails/dead/chosen/", "post", {"view_queue", "operate_queue"}),
    ("emails/dead/all/redrive/", "get", {"view_queue", "operate_queue"}),
    ("emails/dead/all/redrive/", "post", {"view_queue", "operate_queue"}),
    ("emails/dead/all/delete/", "get", {"view_queue", "operate_queue", "purge_queue"}),
    ("emails/dead/all/delete/", "post", {"view_queue", "operate_queue", "purge_queue"}),
    ("emails/figures/", "get", {"view_queue"}),
    ("emails/schedule/pause/", "post", {"view_queue", "operate_queue"}),
    ("emails/schedule/resume/", "post", {"view_queue", "operate_queue"}),
    ("emails/schedule/fire/", "post", {"view_queue", "operate_queue"}),
    ("emails/schedule/forget/", "post", {"view_queue", "operate_queue"}),
    ("orders/change/", "get", {"view_queue"}),
    ("orders/history/", "get", {"view_queue"}),
    ("orders/topic.json", "get", {"view_queue"}),
    ("orders/published/", "get", {"view_queue"}),
    ("orders/log/", "get", {"view_queue"}),
    ("orders/log/1-1/", "get", {"view_queue"}),
    ("orders:billing/change/", "get", {"view_queue"}),
    ("orders:billing/seek/", "get", {"view_queue", "operate_queue"}),
    ("orders:billing/seek/", "post", {"view_queue", "operate_queue"}),
    ("orders:billing/unsubscribe/", "post", {"view_queue", "operate_queue", "purge_queue"}),
]

#: Django's own addresses, of which a site of ours shows its pages.
OF_DJANGO = {"", "emails/change/", "emails/history/", "orders/change/", "orders/history/", "orders:billing/change/"}


@pytest.fixture(autouse=True)
def topics(mq_settings):
    mq_settings(TOPICS={"orders": {}})


def ask(client: Client, path: str, method: str) -> int:
    data = {"action": "redrive", "confirmed": "yes"} if method == "post" else None
    return getattr(client, method)(BASE + path, data).status_code


@pytest.mark.parametrize(("path", "method", "needed"), PAGES)
def test_each_page_takes_exactly_its_permissions(log_in, path, method, needed):
    assert ask(log_in(*needed), path, method) in (200, 302)
    for missing in needed:
        assert ask(log_in(*set(ALL) - {missing}), path, method) == 403


@pytest.mark.parametrize(("path", "method", "needed"), PAGES)
def test_nobody_gets_in_without_logging_in(client, path, method, needed):
    response = getattr(client, method)(BASE + path)
    assert response.status_code == 302
    assert response.url.startswith("/admin/login/")


def test_every_route_of_ours_is_in_the_table_above_and_names_its_permission():
    asked = {path.rsplit("?")[0] for path, _, _ in PAGES} - OF_DJANGO
    # Two paths share a route.
    assert len(ROUTES) == len(asked - {"emails/waiting/unhandled/", "emails/dead/all/delete/"})
    assert all(view.permissions for _, view, _, _ in ROUTES)


def test_a_queue_that_is_not_there_is_not_told_to_those_who_may_see_none(log_in, viewer):
    assert log_in().get(BASE + "nope/dead/").status_code == 403
    assert viewer.get(BASE + "nope/dead/").status_code == 302


def test_staff_without_permission_see_no_trace_of_queues(log_in):
    assert b"queue" not in log_in().get("/admin/").content.lower().replace(b"request", b"")


def test_the_index_links_to_the_queues(viewer):
    assert BASE.encode() in viewer.get("/admin/").content


@pytest.mark.parametrize("path", ["add/", "emails/delete/"])
def test_queues_are_neither_added_nor_deleted_here(operator, path):
    assert operator.get(BASE + path).status_code == 403
    assert operator.post(BASE + path, {"post": "yes"}).status_code == 403


def test_a_viewer_is_offered_nothing_to_press(viewer):
    bury("emails")
    publish("emails", "welcome", 1, delay=60, message_id="later")

    for path in ("dead/", f"dead/{dead_entry('emails')}/", "waiting/delayed/", "waiting/delayed/later/"):
        response = viewer.get(f"{BASE}emails/{path}")
        assert response.status_code == 200
        content = response.content.decode()
        main = content[content.index('id="content-main"') :]
        assert "<button" not in main
        assert "checkbox" not in main
        assert "/all/" not in main


def test_without_its_permission_no_page_shows_data(viewer):
    secret = "rumpelstiltskin"
    publish("emails", "later", {"x": secret}, delay=60, message_id="later", key=secret)
    bury("emails", "welcome", {"x": secret}, error=f"ValueError: {secret}", key=secret, headers={"h": secret})

    for path in (
        "change/",
        "dead/",
        f"dead/{dead_entry('emails')}/",
        "waiting/delayed/",
        "waiting/delayed/later/",
    ):
        response = viewer.get(f"{BASE}emails/{path}")
        assert response.status_code == 200
        assert secret not in response.content.decode()
    assert "ValueError" in viewer.get(f"{BASE}emails/dead/").content.decode()


def test_with_its_permission_data_is_shown(log_in):
    client = log_in("view_queue", "view_message_data")
    bury("emails", "welcome", {"x": "rumpelstiltskin"})

    assert "rumpelstiltskin" in client.get(f"{BASE}emails/dead/").content.decode()
    assert "rumpelstiltskin" in client.get(f"{BASE}emails/dead/{dead_entry('emails')}/").content.decode()


def test_a_get_changes_nothing(operator):
    bury("emails")
    publish("emails", "later", 1, delay=60, message_id="later")
    before = inspector.queue("emails")

    for path in ("dead/all/redrive/", "dead/all/delete/"):
        response = operator.get(f"{BASE}emails/{path}", {"confirmed": "yes", "until": dead_entry("emails")})
        assert response.status_code == 200
    for path in ("dead/chosen/", "cancel/"):
        fields = {"confirmed": "yes", "action": "delete", "_selected_action": dead_entry("emails")}
        assert operator.get(f"{BASE}emails/{path}", fields).status_code == 405

    after = inspector.queue("emails")
    assert (after.ready, after.delayed, after.dead) == (before.ready, before.delayed, before.dead)
    assert not LogEntry.objects.exists()


def test_a_post_without_its_token_is_refused(operator):
    operator.handler.enforce_csrf_checks = True

    assert operator.post(f"{BASE}emails/dead/all/redrive/", {"confirmed": "yes"}).status_code == 403
