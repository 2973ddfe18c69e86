import uuid
from datetime import UTC, datetime

import pytest

from mq_django.core import jsontext
from mq_django.core.jsontext import dumps, loads
from mq_django.errors import DecodeError, InvalidMessage

VALUES = [
    None,
    True,
    0,
    -7,
    2**70,
    1.5,
    "",
    "naïve ☃ \U0001f600 \x00 \n",
    [],
    {},
    {"a": [1, {"b": None}], "": "empty name"},
    ["/", "\\u0041", '"'],
]


@pytest.fixture(params=["fast", "standard"])
def _library(request, monkeypatch):
    if request.param == "standard":
        monkeypatch.setattr(jsontext, "_fast_loads", None)
    elif jsontext._fast_loads is None:
        pytest.skip("orjson is not installed")


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.usefixtures("_library")
def test_what_goes_in_comes_out(value):
    found = loads(dumps(value))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, b"bytes", datetime.now(tz=UTC), uuid.uuid4(), "\ud800", object()],
    ids=repr,
)
def test_what_json_has_no_form_for_is_refused(value):
    with pytest.raises(InvalidMessage):
        dumps({"deep": [value]})


def test_data_that_contains_itself_is_refused():
    round_and_round: list = []
    round_and_round.append(round_and_round)
    with pytest.raises(InvalidMessage):
        dumps(round_and_round)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"NaN",
        b'{"a":Infinity}',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'"\xff"',
        b"[1,]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5000,
    ],
    ids=lambda text: repr(text[:20]),
)
@pytest.mark.usefixtures("_library")
def test_what_is_not_json_is_a_decode_error(text):
    with pytest.raises(DecodeError):
        loads(text)


@pytest.mark.usefixtures("_library")
def test_a_long_number_keeps_all_its_digits():
    assert loads(b'{"n":12345678901234567890123}') == {"n": 12345678901234567890123}


@pytest.mark.usefixtures("_library")
def test_a_whole_pair_of_surrogates_is_one_character():
    assert loads(b'"\\ud83d\\ude00"') == "\U0001f600"
