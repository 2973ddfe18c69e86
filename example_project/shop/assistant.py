"""An assistant that answers questions about the goods word by word, while the visitor reads along.

It takes the place of a language model: it knows what is on the shelves and asks nobody, so that it says the same each
time. The words go through the stream of the message, so the answer outlasts a closed tab and a killed consumer.
"""

import re
import time
from collections.abc import Iterator

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from example_project.ledger import book
from example_project.shop.models import Product
from mq_django import Message, queues, stream

QUEUE = "assistant"
#: In the session: the questions of the visitor with the ids of their messages, the latest first, so many at most.
QUESTIONS, MOST = "questions", 3
#: So many products are spoken of at most.
MOST_PRODUCTS = 4


def ask(request: HttpRequest, question: str) -> None:
    """Have a question answered, and note in the session that the visitor may read the answer."""
    with transaction.atomic():
        message_id = queues[QUEUE].publish("question", {"question": question})
        book.accept(message_id, queue=QUEUE, name="question")
    request.session[QUESTIONS] = [[message_id, question], *questions(request)][:MOST]


def questions(request: HttpRequest) -> list[list[str]]:
    """Return what this visitor has asked: the id of the message and the question of each, the latest first."""
    found: list[list[str]] = request.session.get(QUESTIONS, [])
    return found


def may_read(request: HttpRequest, message_id: str) -> bool:
    """Say whether this visitor has asked the question of a message."""
    return any(message_id == asked for asked, _ in questions(request))


def answer(message: Message) -> None:
    """Stream the answer to a question. After the death of a process the next attempt begins it again."""
    stream.log(f"Looking for: {message.data['question']}")
    for word in words_about(message.data["question"]):
        stream(word)
        time.sleep(settings.ASSISTANT_WORD_SECONDS)
    book.handle(message)


def words_about(question: str) -> list[str]:
    """Return the words of the answer, each with the space after it."""
    return re.findall(r"\S+\s?", " ".join(sentences_about(question)))


def sentences_about(question: str) -> Iterator[str]:
    """Yield the sentences of the answer."""
    asked, goods = plain_words(question), list(Product.objects.all())
    found = [product for product in goods if asked & plain_words(f"{product.name} {product.slug}")]
    if not found:
        yield "I know nothing but our shelves, and nothing there is like that."
        found = sorted(goods, key=lambda product: product.price)
    for product in found[:MOST_PRODUCTS]:
        yield f"The {product.name.lower()} costs {product.price} EUR."
        yield product.description
    yield "What would you like to know next?"


def plain_words(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return set(re.findall(r"[a-z]+", text.lower()))
