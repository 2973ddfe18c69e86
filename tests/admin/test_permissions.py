"""Staff is not permission: each page and each button asks for its own."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from tests.admin.conftest import BASE
from tests.seeding import bury, dead_entry, publish

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]


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


def test_a_get_changes_nothing(operator):
    bury("emails")
    publish("emails", "later", 1, delay=60, message_id="later")
    before = inspector.queue("emails")

    for path in ("dead/all/redrive/", "dead/all/delete/"):
        response = operator.get(f"{BASE}emails/{path}", {"confirmed": "yes", "until": dead_entry("emails")})
        assert response.status_code == 200
    for path in ("dead/chosen/", "delayed/chosen/"):
        fields = {"confirmed": "yes", "action": "delete", "_selected_action": dead_entry("emails")}
        assert operator.get(f"{BASE}emails/{path}", fields).status_code == 405

    after = inspector.queue("emails")
    assert (after.ready, after.delayed, after.dead) == (before.ready, before.delayed, before.dead)
    assert not LogEntry.objects.exists()
