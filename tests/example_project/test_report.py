"""The nightly report: a schedule in code; and the newsletter, one in the settings."""

from typing import Any

import pytest

from example_project import settings as example_settings
from example_project.office.tasks import write_report
from mq_django import cron, registry
from mq_django.conf import get_config
from mq_django.stores.schedule_status import statuses
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.optional import needs_croniter

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]


@needs_croniter
def test_the_report_has_its_time_in_the_settings() -> None:
    assert registry.schedules()[write_report.module_path].when == cron("0 3 * * *")
    assert cron("0 3 * * *", timezone="Europe/Berlin") == example_settings.REPORT_SCHEDULE


@needs_croniter
def test_the_newsletter_is_scheduled_without_code(mq_settings: Any) -> None:
    mq_settings(QUEUES=example_settings.QUEUES, SCHEDULES=example_settings.MQ_DJANGO["SCHEDULES"])
    found = statuses(get_config().queue("default"), Pooled(get_client("inspect"))).found
    letters = next(one for one in found if one.name == "newsletter")
    assert str(letters.entry.when) == "0 18 * * fri (Europe/Berlin)"  # type: ignore[union-attr]
    assert registry.find("default", letters.entry.message)  # type: ignore[union-attr]
