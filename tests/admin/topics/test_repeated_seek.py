"""Moving a group whose subscriber has `@exactly_once`."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import exactly_once, subscriber, topics
from mq_django.models import InboxPass
from tests.admin.conftest import BASE
from tests.admin.pages import main_of

pytestmark = pytest.mark.usefixtures("handlers")

SEEK = f"{BASE}orders:billing/seek/"
QUESTION = "Let the effects happen again"


@pytest.fixture(autouse=True)
def orders(mq_settings):
    topics["orders"].group("billing").subscribe()
    topics["orders"].publish("paid", 1, on_commit=False)
    topics["orders"].group("billing").seek("end")


def subscribe(*, once):
    def book(message):
        """Do nothing."""

    subscriber("orders", group="billing")(exactly_once(book) if once else book)


def test_the_page_asks_whether_effects_happen_again(operator):
    subscribe(once=True)
    assert QUESTION in main_of(operator.post(SEEK, {"to": "beginning"}))
    # Nothing comes again.
    assert QUESTION not in main_of(operator.post(SEEK, {"to": "end"}))


def test_it_does_not_ask_about_other_subscribers(operator):
    subscribe(once=False)
    assert QUESTION not in main_of(operator.post(SEEK, {"to": "beginning"}))
    operator.post(SEEK, {"to": "beginning", "confirmed": "yes", "repeat": "yes"})
    assert not InboxPass.objects.exists()


@pytest.mark.parametrize("repeat", [True, False])
def test_the_answer_raises_the_pass(operator, repeat):
    subscribe(once=True)
    operator.post(SEEK, {"to": "beginning", "confirmed": "yes", **({"repeat": "yes"} if repeat else {})})
    assert [found.number for found in InboxPass.objects.all()] == [int(repeat)]
    assert ("effects happen again" in LogEntry.objects.get().change_message) is repeat
