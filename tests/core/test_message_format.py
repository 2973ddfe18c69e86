"""The wire protocol: what producers may write, and what a consumer makes of anything else."""

from itertools import product

from mq_django.core.jsontext import LAST_MS, dumps
from mq_django.core.message_format import (
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
from mq_django.core.messages import Delivery, Message, Undecodable

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


def test_an_id_that_was_added_to_a_body_that_had_one_wins():
    # As the scripts add it, when the id is taken and another program wrote it into the body, too.
    assert decode("message", '{"id":"m1","type":"n","data":1,"id":"m2"}').message.id == "m2"


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


def in_both_forms(**attributes):
    """Decode an entry that has these attributes as JSON, and one that has them as fields, where it can."""
    yield decode("message", dumps(attributes))
    flat = {name: value if isinstance(value, str) else dumps(value).decode() for name, value in attributes.items()}
    # The field `data` is JSON, so it can be null.
    if None not in [value for name, value in attributes.items() if name != "data"]:
        yield decode(*(part for pair in flat.items() for part in pair))


def test_a_message_without_data_has_none(subtests):
    for data in [{}, {"data": None}]:
        with subtests.test(data=data):
            for found in in_both_forms(type="ping", **data):
                assert (found.message.data, found.data_text) == (None, b"null")


def test_numbers_are_numbers_or_text(subtests):
    for number in [7, "7", 7.0]:
        with subtests.test(number=number):
            found = decode("message", dumps({"type": "n", "data": 1, "attempt": number, "priority": number}))
            assert (found.message.attempt, found.message.priority) == (7, 7)


def test_a_number_or_a_boolean_is_the_text_that_json_has_for_it(subtests):
    for value, text in [
        ("true", "true"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
        (2**70, str(2**70)),
    ]:
        with subtests.test(value=value):
            for found in in_both_forms(
                type="n", data=1, **dict.fromkeys(("id", "partitionkey", "unique", "flag"), value)
            ):
                message = found.message
                assert (message.id, message.key, message.unique, message.headers["flag"]) == (text,) * 4


def test_a_time_has_any_form_of_rfc_3339_or_is_a_number(subtests):
    for time in [
        *(1795341600123, "1795341600123", 1795341600123.4, "2026-11-22T10:00:00.123Z"),
        *("2026-11-22t10:00:00.123456789z", "2026-11-22 11:00:00.123+01:00", "2026-11-22T10:00:00.123"),
    ]:
        with subtests.test(time=time):
            found = decode("message", dumps({"type": "n", "data": 1, "time": time, "expires": time}))
            assert (found.message.published_ms, found.message.expires_ms) == (1795341600123, 1795341600123)


def test_null_is_as_if_the_attribute_were_absent():
    names = ("id", "time", "partitionkey", "attempt", "expires", "priority", "unique", "claim", "specversion", "story")
    found = decode("message", dumps({"type": "n", "data": 1, "flag": None, "alone": None} | dict.fromkeys(names)))
    assert found == decode("message", '{"type":"n","data":1}')
    assert (found.history, found.message.headers) == ("", {})


def test_an_attribute_other_than_data_is_no_array_or_object(subtests):
    for name, value in product(
        ["id", "type", "partitionkey", "time", "attempt", "priority", "unique", "story"], [{"a": 1}, [1]]
    ):
        with subtests.test(name=name, value=value):
            found = decode("message", dumps({"type": "n", "data": 1, name: value}))
            assert found.reason.endswith(" is not text")


def test_a_number_outside_of_its_bounds_is_refused_as_in_a_publish(subtests):
    for name, value, bounds in [
        *(("attempt", 0, "from 1 to"), ("attempt", -1, "from 1 to"), ("attempt", 2**63, "from 1 to")),
        *(("attempt", True, "from 1 to"), ("priority", 101, "from -100 to 100")),
        *(("priority", -101, "from -100 to 100"), ("priority", 1.5, "from -100 to 100")),
        *(("priority", "", "from -100 to 100"), ("priority", "9" * 5000, "from -100 to 100")),
        ("priority", "\u0665", "from -100 to 100"),
    ]:
        with subtests.test(name=name):
            for found in in_both_forms(type="n", data=1, **{name: value}):
                assert f"{name} is not a whole number {bounds}" in found.reason


def test_the_name_of_a_header_is_checked_as_in_a_publish(subtests):
    for name in ["partitionKey", "x-flag", "traceparent ", "", "é", "a" * 65]:
        with subtests.test(name=name):
            for found in in_both_forms(type="n", data=1, **{name: "1"}):
                assert "not the name of an attribute" in found.reason


def test_fields_beside_an_object_win_over_its_data_too():
    found = decode("message", '{"type":"n","data":1}', "data", '{"a": 2}')
    assert (found.message.data, found.data_text) == ({"a": 2}, b'{"a": 2}')


EVENT = {"specversion": "1.0", "id": "17", "source": "/shop", "type": "order.paid", "time": "2026-11-22T10:00:00Z"}


def test_a_cloudevent_is_a_message():
    found = decode("message", dumps(EVENT | {"subject": "order:7", "sampled": True, "sequence": 3, "data": {"n": 7}}))
    assert (found.message.id, found.message.name, found.message.data) == ("17", "order.paid", {"n": 7})
    assert found.message.headers == {"source": "/shop", "subject": "order:7", "sampled": "true", "sequence": "3"}
    assert decode("message", dumps(EVENT)).message.data is None


def test_a_message_becomes_a_cloudevent_as_the_page_says_and_comes_back():
    headers = {"subject": "order:7", "traceparent": "00-1"}
    message = Message("m1", "order.paid", {"n": 7}, "q", key="order:7", published_ms=1795341600123, headers=headers)
    event = {"specversion": "1.0", "source": "/shop", "id": message.id, "type": message.name, "data": message.data}
    event |= {"time": moment(message.published_ms), "partitionkey": message.key} | headers
    back = decode("message", dumps(event)).message
    assert back == message._replace(headers=headers | {"source": "/shop"})


def test_the_bytes_of_a_cloudevent_are_base64_text_and_a_header_says_so(subtests):
    for beside in [{}, {"data": None}]:
        with subtests.test(beside=beside):
            for found in in_both_forms(**EVENT, **beside, datacontenttype="image/png", data_base64="iVBORw=="):
                assert (found.message.data, found.data_text) == ("iVBORw==", b'"iVBORw=="')
                assert found.message.headers == {
                    "source": "/shop",
                    "datacontenttype": "image/png",
                    "datacontentencoding": "base64",
                }
                again = decode("message", encode_body(found.message, found.data_text, member=""))
                assert again.message == found.message


def test_what_is_no_message_is_told_with_its_reason_and_bytes(subtests):
    for fields, reason in [
        ((), "attribute type is missing"),
        (("type", "n", "data_base64", "a"), "data_base64 is not Base64"),
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
        (("type", "n", "data", "9" * 5000), "not JSON"),
        (("type", "n", "data", '"' + "x" * 3_000_000 + '"'), f"more than the {MAX_ENTRY_BYTES}"),
        (("id", "i", "type", "n", "data", '"' + "x" * 3_000_000 + '"'), f"more than the {MAX_ENTRY_BYTES}"),
        (("id", "i\n", "type", "n", "data", "1"), "not an id"),
        (("id", "u:x", "type", "n", "data", "1"), "not an id"),
        (("type", "n", "data", "1", "id", "x" * 300), "not an id"),
        (("type", "n", "data", "1", "attempt", "many"), "attempt is not a whole number"),
        (("type", "n", "data", "1", "priority", "high"), "priority is not a whole number"),
        (("type", "n", "data", "1", "time", "yesterday"), "not a time: 'yesterday'"),
        (("type", "n", "data", "1", "time", "9" * 19), "not a time"),
        (("type", "n", "data", "1", "expires", "9999-12-31T23:59:59-14:00"), "not a time"),
        (("type", "n", "data", "1", "specversion", "2.0"), "unknown version"),
        (("message", "[]"), "not a JSON object"),
        (("message", "{}"), "attribute type is missing"),
        (("message", '{"type":"n","data":1,"data_base64":"YQ=="}'), "both data and data_base64"),
        (("message", '{"type":"n","data_base64":7}'), "data_base64 is not Base64"),
        (("id", "", "type", "n", "data", "1"), "not an id"),
        (("message", '{"data":1}'), "attribute type is missing"),
        (("message", '{"type":["n"],"data":1}'), "type is not text"),
        (("message", '{"type":"n","data":1e999}'), "not JSON"),
        (("message", '{"type":"n","time":-1,"data":1}'), "not a time"),
        (("message", '{"type":"n","data":' + "[" * 100_000 + "]" * 100_000 + "}"), "not JSON"),
        (tuple("x" * 1002), "more than the 1000"),
        (("message", dumps({"type": "n", "data": 1} | {f"h{n}": "" for n in range(500)})), "502 attributes"),
    ]:
        with subtests.test(fields=fields):
            found = decode(*fields)
            assert isinstance(found, Undecodable)
            assert reason in found.reason
            assert len(found.reason) <= 400
            assert len(found.fields) == len(fields)


def test_no_depth_of_data_breaks_the_decoder(subtests):
    for depth in range(960, 1030, 3):
        with subtests.test(depth=depth):
            deep = "[" * depth + "]" * depth
            assert isinstance(decode("message", '{"type":"n","data":' + deep + "}"), Delivery | Undecodable)
            for name in ("id", "type", "attempt", "time", "partitionkey", "specversion", "story", "header"):
                body = f'{{"data":1,"type":"n","{name}":{deep}}}'
                assert isinstance(decode("message", body), Delivery | Undecodable)


def test_a_number_that_nobody_can_write_again_is_no_data(subtests):
    for number, beside in product(
        ["1e999", "-1e999", "1" + "0" * 400 + ".0", "9" * 5000], ["", ",10000000000000000000000"]
    ):
        with subtests.test(number=number, beside=beside):
            assert isinstance(decode("type", "n", "data", f"[{number}{beside}]"), Undecodable)
            assert isinstance(decode("message", f'{{"type":"n","data":[{number}{beside}]}}'), Undecodable)


def test_whatever_decoding_raises_concerns_its_entry_alone(monkeypatch):
    def broken(*args):
        raise ArithmeticError

    monkeypatch.setattr("mq_django.core.message_format._message_of", broken)
    assert decode("type", "n", "data", "1").reason == "not a message: ArithmeticError"


def test_an_entry_with_an_absurd_id_still_has_a_moment():
    found = decode("id", "i", "type", "n", "data", "1", entry=b"18446744073709551614-1")
    assert found.message.published_ms == LAST_MS
    assert encode_body(found.message, b"1", member="i")


def test_an_entrys_id_starts_with_its_time():
    assert entry_ms(b"1700000000000-12") == 1700000000000
