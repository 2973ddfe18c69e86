"""The filter of data, for those who may see data."""

import pytest

from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import bury

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DATA = "data=customer%3DC-9999"


def test_the_list_the_question_and_the_job_have_the_filter(operator):
    wanted = bury("emails", "welcome", {"customer": "C-9999"})
    other = bury("emails", "welcome", {"customer": "C-1"})
    shown = main_of(operator.get(f"{BASE}emails/dead/?{DATA}"))
    assert wanted in shown
    assert other not in shown

    question = main_of(operator.get(f"{BASE}emails/dead/all/delete/?{DATA}"))
    assert "data has “customer=C-9999”" in question
    fields = {"data": "customer=C-9999", "until": "9999999999999-0", "confirmed": "yes"}
    job = operator.post(f"{BASE}emails/dead/all/delete/", fields, follow=True)
    assert "data has “customer=C-9999”" in main_of(job)
    left = main_of(operator.get(f"{BASE}emails/dead/"))
    assert wanted not in left
    assert other in left


def test_the_history_and_the_job_tell_nobody_what_was_looked_for(operator, viewer):
    bury("emails", "welcome", {"customer": "C-9999"})
    fields = {"data": "customer=C-9999", "until": "9999999999999-0", "confirmed": "yes"}
    operator.post(f"{BASE}emails/dead/all/delete/", fields)
    history = operator.get(f"{BASE}emails/history/").content.decode()
    assert "data has “…”" in history
    assert "C-9999" not in history
    job = viewer.get(f"{BASE}emails/dead/job/").content.decode()
    assert "data has “…”" in job
    assert "C-9999" not in job


def test_an_odd_one_is_a_sentence(operator):
    for odd in ("%22open", "x%3D", "%22%22", "a+" * 30, "a" + ".a" * 40 + "%3D1"):
        response = operator.get(f"{BASE}emails/dead/?data={odd}")
        assert response.status_code == 400
        assert "cannot be looked for in data" in main_of(response)
