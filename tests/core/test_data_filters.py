"""What a filter of data matches: texts and values, but nothing that is not shown."""

import json

import pytest

from mq_django.core.filters import Filter, may_match
from mq_django.core.jsontext import dumps
from mq_django.core.messages import Message
from mq_django.core.redaction import REDACTED, redact
from mq_django.errors import InvalidFilter

DATA = {
    "customer": "C-4242",
    "amount": 42,
    "paid": True,
    "note": 'He said "hi"\nthere',
    "a.b": {"c": "dotted"},
    "items": [{"sku": "X1"}, {"sku": "X2", "tags": ["urgent", 7]}],
    "nothing": None,
    "kwargs": {"order": 7},
}


def matches(words, data=DATA):
    return Filter(data=words).matches(Message("m1", "a", data, "emails"))


@pytest.mark.parametrize(
    "words",
    [
        *("c-4242", "customer", "said there", r'"said \"hi\""', r'"\"customer\":\"C-"', "dotted X2"),
        *("customer=C-4242", 'customer="C-4242"', "amount=42", "amount=42.0", "paid=true", "nothing=null"),
        *("a.b.c=dotted", "items.sku=X2", "items.tags=urgent", "items.tags=7", "order=7", "amount=42 customer"),
    ],
)
def test_what_data_have(words):
    assert matches(words)
    # A look at their text finds it, too, however it is written.
    assert may_match([dumps(DATA)], words)
    assert may_match([json.dumps(DATA, indent=4).encode()], words)


def test_data_without_the_letters_of_a_text_need_not_be_read():
    assert [
        may_match([b'{"customer":"C-4242"}'], words) for words in ("C-4243", "customer=K-1", "4243", "C-4242 x")
    ] == [False] * 4


@pytest.mark.parametrize(
    "words",
    ["C-42421", "customer=C-42", "customer=c-4242", "amount=43", "paid=True", "items=X1", "a.b=dotted", "X1 X3"],
)
def test_what_they_do_not_have(words):
    assert not matches(words)


def test_a_number_is_compared_with_all_its_digits():
    assert not matches("n=9007199254740993", {"n": 9007199254740992})
    assert not matches(f"n=1e{'9' * 30}", {"n": 1})


def test_no_search_finds_out_what_is_hidden():
    secret = {"password": "hunter2", "pin": 1234, "url": "redis://bob:geheim@host/", "args": ["--token", "abcdef"]}
    shown = str(redact(secret))
    assert "hunter2" not in shown
    for guess in ("hunter2", "hunt", "1234", "geheim", "abcdef", "password=hunter2", "pin=1234", "args=abcdef"):
        assert not matches(guess, secret)
    # What stands in place of a secret is part of no text: a guess of its letters would tell those of the secret.
    for guess in (REDACTED, "redacted", "[", "bob:[", f"password={REDACTED}"):
        assert not matches(guess, {**secret, "args": 1})
    assert matches("host", secret)


def test_a_message_without_data_matches_nothing():
    assert not matches("null", None)


@pytest.mark.parametrize("odd", ['"open', "x=", "  ", '""', "a" + ".a" * 30 + "=1", "a " * 30, "\udc80"])
def test_what_cannot_be_looked_for_is_refused(odd):
    with pytest.raises(InvalidFilter):
        Filter(data=odd)


def test_data_that_are_nested_deep_are_searched_no_deeper_than_they_are_shown():
    deep = {"a": 1}
    for _ in range(500):
        deep = [deep]
    assert not matches("a=1", deep)
