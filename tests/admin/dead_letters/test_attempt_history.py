"""What became of a message's attempts, on its page: all of it to those who may see data, and harmless."""

import pytest

from mq_django.core.messages import Bury, Retry
from mq_django.stores.base import Settlement
from tests.admin.conftest import BASE
from tests.seeding import CONSUMER, dead_entry, publish, store, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

ERROR = "ValueError: <script>alert(1)</script> password=hunter2 \u202e"
TRACE = "Traceback <b>\nValueError: token: hunter2"


def fail(outcome):
    (delivery,) = take("emails", 1)
    assert store("emails").settle(CONSUMER, [Settlement(delivery, outcome, 60_000, 2_000_000)]) == []


@pytest.fixture
def url(request):
    """The page of a message that failed, waiting or dead."""
    message_id = publish("emails", "welcome", {"n": 1})
    if request.param == "dead":
        fail(Bury(ERROR, TRACE, reason="attempts"))
        return f"{BASE}emails/message/dead/{dead_entry('emails')}/"
    fail(Retry(error=ERROR, traceback=TRACE))
    return f"{BASE}emails/message/delayed/{message_id}/"


@pytest.mark.parametrize("url", ["waiting", "dead"], indirect=True)
def test_each_attempt_tells_who_when_how_long_and_why_harmless_and_without_secrets(operator, url):
    page = operator.get(url).content.decode()

    assert "Attempts" in page
    assert "Attempt 1" in page
    assert CONSUMER in page
    assert "ran for 2.0\xa0s" in page or "ran for 2.0 s" in page
    assert "Traceback &lt;b&gt;" in page
    assert "<script>alert" not in page
    assert "hunter2" not in page
    assert "\u202e" not in page
    assert "U+202E" in page


@pytest.mark.parametrize("url", ["waiting", "dead"], indirect=True)
def test_who_may_not_see_data_sees_the_class_of_the_error_only(viewer, url):
    page = viewer.get(url).content.decode()

    assert "ValueError" in page
    assert "alert(1)" not in page
    assert "Traceback &lt;b&gt;" not in page
    assert "You do not have permission to see tracebacks" in page


def test_a_message_that_never_failed_has_no_history(operator):
    message_id = publish("emails", "welcome", 1, delay=60)

    assert "attempts" not in operator.get(f"{BASE}emails/message/delayed/{message_id}/").content.decode()
