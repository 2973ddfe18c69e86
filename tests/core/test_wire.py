"""The wire protocol: what producers may write, and what a consumer makes of anything else."""

import pytest

from mq_django.core.jsontext import dumps
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.numbers import LAST_MS
from mq_django.core.wire import (
    CHARGED,
    MAX_ENTRY_BYTES,
    SUSPECT,
    alone_of,
    decode_entry,
    encode_body,
    encode_entry,
    entry_ms,
    moment,
)

ENTRY = b"1700000000000-0"


def decode(*fields, entry=ENTRY):
    raw = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
    return decode_entry(raw, queue="q", stream=0, entry=entry)


def test_the_smallest_entry_is_a_message_whose_id_and_time_are_the_entrys():
    found = decode("type", "welcome", "data", '{"user_id":7}')
    assert isinstance(found, Delivery)
    assert found.message == Message("1700000000000-0", "welcome", {"user_id": 7}, "q", published_ms=1700000000000)


def test_every_attribute_survives_an_entry_and_a_body():
    message = Message("m1", "n", [1], "q", 3, "order:7", 1700000000123, 1800000000000, -5, "u", {"traceparent": "00-1"})
    text = dumps(message.data)
    by_entry = decode(*encode_entry(message, text), "time", moment(1700000000123))
    by_body = decode("message", encode_body(message, text, member="other"))
    assert by_entry.message == by_body.message == message
    assert by_entry.data_text == by_body.data_text == text


def test_a_body_leaves_out_the_id_it_waits_under():
    body = encode_body(Message("m1", "n", 1, "q"), b"1", member="m1")
    assert b'"id"' not in body
    assert decode("id", "m1", "message", body).message.id == "m1"


def test_fields_beside_a_body_win():
    found = decode("message", '{"type":"n","data":1,"attempt":"1"}', "attempt", "4", "alone", "1")
    assert found.message.attempt == 4
    assert (found.alone, found.suspect, alone_of(found)) == (True, False, CHARGED)


def test_alone_travels_in_a_body_and_is_no_header():
    found = decode("message", encode_body(Message("m", "n", 1, "q"), b"1", member="m", alone=SUSPECT))
    assert (found.alone, found.suspect, alone_of(found)) == (True, True, SUSPECT)
    assert found.message.headers == {}


def test_what_recovery_notes_is_no_header():
    found = decode("type", "n", "data", "1", "lost", "1")
    assert found.message.headers == {}
    assert not found.alone


@pytest.mark.parametrize("attempt", ["-4", "0", "1"])
def test_an_attempt_is_at_least_the_first(attempt):
    assert decode("type", "n", "data", "1", "attempt", attempt).message.attempt == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((), "field data is missing"),
        (("type", "n"), "field data is missing"),
        (("data", "1"), "attribute type is missing"),
        (("type", "", "data", "1"), "attribute type is missing"),
        (("type", "a\nb", "data", "1"), "not a name"),
        (("type", "n" * 256, "data", "1"), "not a name"),
        (("", "", "", ""), "twice"),
        (("type", "n", "type", "m", "data", "1"), "twice"),
        (("type", b"\xff", "data", "1"), "utf-8"),
        ((b"\xff", "n", "data", "1"), "utf-8"),
        (("type", "n", "data", b"\xff"), "not JSON"),
        (("type", "n", "data", "NaN"), "not JSON"),
        (("type", "n", "data", "-Infinity"), "not JSON"),
        (("type", "n", "data", ""), "not JSON"),
        (("type", "n", "data", "[" * 100_000 + "]" * 100_000), "not JSON"),
        (("type", "n", "data", '"\\ud800"'), "not JSON"),
        (("type", "n", "data", "9" * 5000), "not JSON"),
        (("type", "n", "data", '"' + "x" * 3_000_000 + '"'), f"more than the {MAX_ENTRY_BYTES}"),
        (("id", "i", "type", "n", "data", '"' + "x" * 3_000_000 + '"'), f"more than the {MAX_ENTRY_BYTES}"),
        (("id", "i\n", "type", "n", "data", "1"), "not an id"),
        (("id", "u:x", "type", "n", "data", "1"), "not an id"),
        (("type", "n", "data", "1", "id", "x" * 300), "not an id"),
        (("type", "n", "data", "1", "attempt", "many"), "attempt is not a whole number"),
        (("type", "n", "data", "1", "priority", "high"), "priority is not a whole number"),
        (("type", "n", "data", "1", "time", "yesterday"), "not a time"),
        (("type", "n", "data", "1", "time", "9" * 19), "not a time"),
        (("type", "n", "data", "1", "expires", "9999-12-31T23:59:59-14:00"), "not a time"),
        (("type", "n", "data", "1", "specversion", "2.0"), "unknown version"),
        (("message", "[]"), "not a JSON object"),
        (("message", "{}"), "has no data"),
        (("message", '{"data":1}'), "attribute type is missing"),
        (("message", '{"type":["n"],"data":1}'), "attribute type is missing"),
        (("message", '{"type":"n","data":1e999}'), "not JSON"),
        (("message", '{"type":"n","time":-1,"data":1}'), "not a time"),
        (("message", '{"type":"n","data":' + "[" * 100_000 + "]" * 100_000 + "}"), "not JSON"),
        (tuple("x" * 1002), "more than the 1000"),
        (("message", dumps({"type": "n", "data": 1} | {f"h{n}": "" for n in range(500)})), "502 attributes"),
    ],
    ids=range(37),
)
def test_what_is_no_message_is_told_with_its_reason_and_bytes(fields, reason):
    found = decode(*fields)
    assert isinstance(found, Undecodable)
    assert reason in found.reason
    assert len(found.reason) <= 400
    assert len(found.fields) == len(fields)


@pytest.mark.parametrize("depth", range(960, 1030, 3))
def test_no_depth_of_data_breaks_the_decoder(depth):
    deep = "[" * depth + "]" * depth
    assert isinstance(decode("message", '{"type":"n","data":' + deep + "}"), Delivery | Undecodable)
    for name in ("id", "type", "attempt", "time", "partitionkey", "specversion", "story", "header"):
        body = f'{{"data":1,"type":"n","{name}":{deep}}}'
        assert isinstance(decode("message", body), Delivery | Undecodable)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400 + ".0", "9" * 5000], ids=len)
@pytest.mark.parametrize("beside", ["", ",10000000000000000000000"])
def test_a_number_that_nobody_can_write_again_is_no_data(number, beside):
    assert isinstance(decode("type", "n", "data", f"[{number}{beside}]"), Undecodable)
    assert isinstance(decode("message", f'{{"type":"n","data":[{number}{beside}]}}'), Undecodable)


def test_whatever_decoding_raises_concerns_its_entry_alone(monkeypatch):
    def broken(*args):
        raise ArithmeticError

    monkeypatch.setattr("mq_django.core.wire._message_of", broken)
    assert decode("type", "n", "data", "1").reason == "not a message: ArithmeticError"


def test_an_entry_with_an_absurd_id_still_has_a_moment():
    found = decode("id", "i", "type", "n", "data", "1", entry=b"18446744073709551614-1")
    assert found.message.published_ms == LAST_MS
    assert encode_body(found.message, b"1", member="i")


def test_an_entrys_id_starts_with_its_time():
    assert entry_ms(b"1700000000000-12") == 1700000000000
