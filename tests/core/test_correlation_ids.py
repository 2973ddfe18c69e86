"""Which texts are correlation ids."""

from mq_django.core.ids import correlation_id_in, valid_correlation_id


def test_short_printable_ascii_is_valid(subtests):
    for value in ["a", "7f9c-1", "!~", "x" * 128]:
        with subtests.test(value=value):
            assert valid_correlation_id(value) == value
            assert correlation_id_in({"correlationid": value}) == value


def test_anything_else_is_not(subtests):
    for value in [None, 7, "", "a b", "a\n", "\x7f", "é", "x" * 129]:
        with subtests.test(value=value):
            assert valid_correlation_id(value) is None


def test_a_message_without_the_header_has_none():
    assert correlation_id_in({"correlation": "a"}) is None
