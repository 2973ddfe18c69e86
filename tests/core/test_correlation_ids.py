"""Which texts are correlation ids."""

import pytest

from mq_django.core.correlation_ids import correlation_id_in, valid_correlation_id


@pytest.mark.parametrize("value", ["a", "7f9c-1", "!~", "x" * 128])
def test_short_printable_ascii_is_valid(value):
    assert valid_correlation_id(value) == value
    assert correlation_id_in({"correlationid": value}) == value


@pytest.mark.parametrize("value", [None, 7, "", "a b", "a\n", "\x7f", "é", "x" * 129])
def test_anything_else_is_not(value):
    assert valid_correlation_id(value) is None


def test_a_message_without_the_header_has_none():
    assert correlation_id_in({"correlation": "a"}) is None
