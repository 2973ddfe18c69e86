"""Entries that are decoded together come to the same deliveries as one by one."""

from mq_django.core.jsontext import dumps
from mq_django.core.message_format import MAX_ENTRY_BYTES, decode_entries, decode_entry
from mq_django.core.messages import Delivery, Message, Undecodable

ENTRY = b"1700000000000-0"


def entry(data, *, message_id=b"m1", name=b"n", at=ENTRY, more=()):
    return [at, [b"id", message_id, b"type", name, b"data", data, *more]]


def decoded(*entries):
    copies = [[at, None if fields is None else list(fields)] for at, fields in entries]
    return decode_entries(copies, queue="q", stream=1, read_at=5.0, id_end=".3")


def one_by_one(*entries):
    return [decode_entry(f or [], queue="q", stream=1, entry=at, read_at=5.0, id_end=".3") for at, f in entries]


MANY = [
    entry(b"1"),
    entry(b'{"a":[1.5,null]}', at=b"1700000000000-1", message_id=b"m2"),
    entry(b"true", at=b"1700000000001-0", message_id=b"0123.7"),
    entry(b"[]", at=b"17000000000010-0"),
    entry(b"[]", at=b"18446744073709551615-18446744073709551615"),
    entry(b"12345678901234567890123"),
    entry(b'"\\ud800"'),
    entry(b"nope"),
    entry(b'"a'),
    entry(b'b"'),
    entry(b"NaN"),
    entry(b"[" * 5000),
    entry(b"1", message_id=b"\xff"),
    entry(b"1", message_id=b"u:1"),
    entry(b"1", message_id=b"m" * 300),
    entry(b"1", name=b""),
    entry(b"1", name=b"another"),
    entry(b"1", more=[b"attempt", b"3"]),
    entry(b"1", more=[b"alone", b"suspect"]),
    entry(b"1", more=[b"id", b"twice"]),
    [ENTRY, [b"type", b"n", b"data", b"1"]],
    [ENTRY, [b"type", b"n", b"id", b"m1", b"data", b"1"]],
    [ENTRY, [b"data", b"1", b"data", b"2", b"data", b"3"]],
    [ENTRY, []],
    [ENTRY, None],
]


def test_they_come_to_the_same_together_as_one_by_one():
    together, alone = decoded(*MANY), one_by_one(*MANY)
    assert [type(each) for each in together] == [type(each) for each in alone]
    assert [each for each in together if isinstance(each, Delivery)] == [d for d in alone if isinstance(d, Delivery)]
    assert [each[:3] for each in together if isinstance(each, Undecodable)] == [
        each[:3] for each in alone if isinstance(each, Undecodable)
    ]


def test_each_comes_to_the_same_by_itself(subtests):
    for one in MANY:
        with subtests.test(one=one):
            assert repr(decoded(one)) == repr(one_by_one(one))


def test_all_attributes_of_the_usual_entry():
    decoded(entry(b"0"))
    (found,) = decoded(entry(b'{"a":1}'))
    message = Message("m1", "n", {"a": 1}, "q", published_ms=1700000000000)
    assert found == Delivery(message, 1, ENTRY, b'{"a":1}', read_at=5.0)


def test_large_ones_are_not_copied_into_one_text():
    text = dumps("x" * (MAX_ENTRY_BYTES - 100))
    large, other = decoded(entry(text), entry(text))
    assert (large.message.data, other.data_text) == (other.message.data, text)


def test_numbers_that_touch_are_no_long_number():
    assert [each.message.data for each in decoded(*[entry(b"1234567890")] * 3)] == [1234567890] * 3
