import enum
import json
import uuid
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext_lazy

from mq_django.core import jsontext
from mq_django.core.jsontext import dumps, loads
from mq_django.errors import DecodeError, InvalidMessage

pytestmark = pytest.mark.versions


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    ONE = "one"


Pair = namedtuple("Pair", "left right")


@dataclass
class Point:
    x: int


VALUES = [
    *(None, True, 0, -7, 2**70, 1.5, "", "naïve ☃ \U0001f600 \x00 \n", [], {}),
    *({"a": [1, {"b": None}], "": "empty name"}, ["/", "\\u0041", '"']),
]


@pytest.fixture(params=["fast", "standard"])
def _library(request, monkeypatch):
    if request.param == "standard":
        monkeypatch.setattr(jsontext, "_orjson", None)
    elif jsontext._orjson is None:
        pytest.skip("orjson is not installed")


@pytest.mark.usefixtures("_library")
def test_what_goes_in_comes_out(subtests):
    for value in VALUES:
        with subtests.test(value=value):
            found = loads(dumps(value))
            assert found == value
            assert type(found) is type(value)


@pytest.mark.usefixtures("_library")
def test_what_has_no_form_in_json_is_refused(subtests):
    for value in [
        *(float("nan"), float("inf"), {1, 2}, b"bytes", Point(1), time(12, tzinfo=UTC), {uuid.UUID(int=1): 1}),
        *("\ud800", object()),
    ]:
        with (
            subtests.test(value=value),
            pytest.raises(InvalidMessage, match=r"^The data is not JSON at \['deep'\]\[1\]"),
        ):
            dumps({"fine": 1, "deep": [0, value]})


@pytest.mark.usefixtures("_library")
def test_what_djangos_encoder_writes_is_written_as_it_does(subtests):
    for value, form in [
        (datetime(2026, 11, 21, 12, 30, 1, 123456, tzinfo=UTC), "2026-11-21T12:30:01.123Z"),
        (date(2026, 11, 21), "2026-11-21"),
        (time(12, 30), "12:30:00"),
        (timedelta(hours=1), "P0DT01H00M00S"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        (gettext_lazy("Yes"), "Yes"),
        (Colour.RED, 1),
        (Number.ONE, 1),
        (Word.ONE, "one"),
    ]:
        with subtests.test(value=value):
            assert loads(dumps({"deep": [value]})) == {"deep": [form]}
            if not isinstance(value, Colour):
                assert json.loads(json.dumps(value, cls=DjangoJSONEncoder)) == form


@pytest.mark.usefixtures("_library")
def test_the_text_is_the_same_with_and_without_orjson(subtests):
    for value in [
        {"n": 2**63, "list": [1, -0.5, (2, "three")], "none": None, "text": 'null \x1f\x7f\u2028"\\/'},
        {7: "number", True: "bool", None: "none", 1.5: "float"},
        [Number.ONE, Word.ONE, Pair(1, 2)],
        [[]] * 300,
    ]:
        with subtests.test(value=value):
            assert dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.usefixtures("_library")
def test_a_float_keeps_its_value(subtests):
    for number in [1e16, 1e-7, 5e-324, 1.7976931348623157e308, -0.0, 0.1]:
        with subtests.test(number=number):
            assert repr(json.loads(dumps(number))) == repr(number)


@pytest.mark.usefixtures("_library")
def test_what_is_not_json_is_a_decode_error(subtests):
    for text in [
        *(b"", b"{", b"NaN", b'{"a":Infinity}', b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud8"', b'"\\ud800', b"[1,]"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000),
    ]:
        with subtests.test(text=text), pytest.raises(DecodeError):
            loads(text)


@pytest.mark.usefixtures("_library")
def test_a_long_number_keeps_all_its_digits():
    assert loads(b'{"n":12345678901234567890123}') == {"n": 12345678901234567890123}


@pytest.mark.usefixtures("_library")
def test_half_of_a_surrogate_pair_as_javascript_writes_it_is_a_replacement_character(subtests):
    for text, value in [
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uDFFF."', "\ufffd."),
        (rb'{"\udfff":["\ud83d\uDE00","\ude00\ud83d"]}', {"\ufffd": ["\U0001f600", "\ufffd\ufffd"]}),
        (rb'"\ud83d\ud83d\ude00\\ud800"', "\ufffd\U0001f600\\ud800"),
        (rb'["\\\ud800",12345678901234567890]', ["\\\ufffd", 12345678901234567890]),
    ]:
        with subtests.test(text=text):
            assert loads(text) == value
            assert loads(dumps(value)) == value
