"""Entries as one text."""

import pytest

from mq_django.core.message_format import unpacked
from mq_django.errors import DecodeError


def test_names_and_values_are_read_by_their_lengths():
    assert list(unpacked(b"4:type,7:welcome,4:data,4:a:,\xff,", 10)) == [("type", b"welcome"), ("data", b"a:,\xff")]


def test_anything_else_is_an_error(subtests):
    for text in [b"4:type", b"4:type,", b"5:type,1:a,", b"x:type,1:a,", b"4:type,99:a,", b"9" * 100, b"4"]:
        with subtests.test(text=text), pytest.raises(DecodeError, match="not a message of a line"):
            unpacked(text, 10)


def test_so_are_more_fields_than_an_entry_may_have():
    with pytest.raises(DecodeError):
        unpacked(b"1:a,1:b," * 6, 10)
