"""The assistant answers word by word, and only who has asked reads along."""

import pytest
from django.test import Client
from pytest_django import Settings

from example_project.ledger.models import Handled
from example_project.shop.assistant import MOST, words_about
from example_project.shop.models import Product
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db

ANSWER = "The enamel mug costs 12.50 EUR. Holds half a litre. What would you like to know next?"


@pytest.fixture(autouse=True)
def _at_once(settings: Settings) -> None:
    settings.ASSISTANT_WORD_SECONDS = 0


@pytest.fixture
def asked(mq: MQ, client: Client, mug: Product) -> str:
    """A question that waits for its answer: the id of its message."""
    Product.objects.update(description="Holds half a litre.")
    client.post("/assistant/", {"question": "Do you have a mug?"})
    mq.commit()
    return mq.published("assistant", "question")[0].id


def texts(mq: MQ, message_id: str) -> list[str]:
    return [chunk.value for chunk in mq.streamed(message_id) if chunk.kind == "text"]


def test_a_question_is_answered_word_by_word(mq: MQ, asked: str) -> None:
    assert mq.streamed(asked) == []
    mq.run()
    assert texts(mq, asked)[:3] == ["The ", "enamel ", "mug "]
    assert "".join(texts(mq, asked)) == ANSWER
    assert mq.streamed(asked)[-1].outcome == "handled"
    assert Handled.objects.count() == 1


def test_the_visitor_who_has_asked_reads_along(mq: MQ, client: Client, asked: str) -> None:
    page = client.get("/assistant/").content.decode()
    assert "Do you have a mug?" in page
    assert f"/assistant/{asked}/" in page
    mq.run()
    response = client.get(f"/assistant/{asked}/")
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert b"enamel" in response.getvalue()


def test_other_visitors_do_not(mq: MQ, asked: str) -> None:
    mq.run()
    assert Client().get(f"/assistant/{asked}/").status_code == 403
    assert "mug" not in Client().get("/assistant/").content.decode()


def test_after_the_death_of_its_process_an_answer_begins_again(mq: MQ, asked: str) -> None:
    mq.crash_at("after_effect")
    mq.run()
    kinds = [chunk.kind for chunk in mq.streamed(asked)]
    assert kinds.count("restart") == kinds.count("end") == 1
    again = mq.streamed(asked)[kinds.index("restart") :]
    assert "".join(chunk.value for chunk in again if chunk.kind == "text") == ANSWER


def test_a_visitor_reads_the_latest_answers(mq: MQ, client: Client, mug: Product) -> None:
    for number in range(MOST + 2):
        client.post("/assistant/", {"question": f"question {number}"})
    page = client.get("/assistant/").content.decode()
    assert [number for number in range(MOST + 2) if f"question {number}" in page] == [2, 3, 4]


def test_what_is_not_on_the_shelves_is_answered_with_what_is(mug: Product) -> None:
    assert "".join(words_about("A submarine?")).startswith("I know nothing but our shelves")
    assert "The enamel mug costs" in "".join(words_about("A submarine?"))


def test_nothing_is_asked_without_a_question(mq: MQ, client: Client) -> None:
    assert client.post("/assistant/", {"question": " "}).status_code == 422
    mq.assert_nothing_published()
