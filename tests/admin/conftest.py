"""Users of the admin, by what they may do."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

BASE = "/admin/mq_django/queue/"

MQSettings = Callable[..., dict[str, Any]]


@pytest.fixture
def mq_settings(mq_settings: MQSettings) -> MQSettings:
    """Configure a topic beside the queues."""

    def configure(**overrides: Any) -> dict[str, Any]:
        return mq_settings(**{"TOPICS": {"orders": {}}, **overrides})

    configure()
    return configure


LogIn = Callable[..., Client]


@pytest.fixture
def log_in(db: None) -> LogIn:
    """Return a client of a new staff user who holds some of our permissions."""

    def log_in(*permissions: str, **user: object) -> Client:
        name = f"user{User.objects.count()}"
        found = User.objects.create_user(name, password="x", is_staff=True, **user)
        found.user_permissions.set(
            Permission.objects.filter(content_type__app_label="mq_django", codename__in=permissions)
        )
        client = Client()
        client.force_login(found)
        return client

    return log_in


@pytest.fixture
def operator(log_in: LogIn) -> Client:
    """Return a client of a user who may do everything."""
    return log_in("view_queue", "view_message_data", "operate_queue", "purge_queue")


@pytest.fixture
def viewer(log_in: LogIn) -> Client:
    """Return a client of a user who may look, but not at data."""
    return log_in("view_queue")


#: Seconds that a page gives to what it does within a request.
LIMITS = (
    "mq_django.admin.bulk_pages.SECONDS",
    "mq_django.admin.bulk_pages.SEARCH",
    "mq_django.inspector.jobs.SECONDS",
    "mq_django.admin.find_page.SECONDS",
    "mq_django.admin.find_page.STEP",
    "mq_django.admin.run_pages.SECONDS",
    "mq_django.admin.run_pages.RETRYING",
    "mq_django.admin.ui.page.BUSY_AFTER",
)


@pytest.fixture(autouse=True)
def _patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a request the time to end what it began, also on a busy machine."""
    for limit in LIMITS:
        monkeypatch.setattr(limit, 30.0)


def history(client, name="emails"):
    """Return what the history of a queue says, the latest first."""
    return [entry.get_change_message() for entry in client.get(f"{BASE}{name}/history/").context["action_list"]]


def url_of_all(page, what):
    """Return the address that a list offers for an action on all its messages, or on all that match."""
    return next(url for url, _ in page.context["all_actions"] if f"/all/{what}/" in url)
