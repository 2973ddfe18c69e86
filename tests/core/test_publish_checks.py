"""What may be published stays a message, wherever it waits and however often it fails."""

from itertools import product

import pytest

from mq_django.core.jsontext import dumps, loads
from mq_django.core.message_format import LAST_MS, decode_entry, encode_body, encode_entry
from mq_django.core.messages import Delivery, Message
from mq_django.core.publish_checks import MAX_HEADERS, MAX_LEVELS, check_whole, data_text
from mq_django.core.queue_configs import QueueConfig
from mq_django.core.retries import HISTORY_LENGTH, MAX_DATA, MAX_ERROR, MAX_TRACEBACK, Attempt, with_attempt
from mq_django.errors import InvalidMessage, MessageTooLarge

QUEUE = QueueConfig(name="q", max_size=1024 * 1000)
#: The longest text that names something, as UTF-8 and as JSON.
WIDE, QUOTED = "\U0001f600" * 255, '"' * 255


def message(headers=(), name=WIDE):
    return Message(name, name, None, "q", 2**31, name, LAST_MS, LAST_MS, -100, name, dict(headers), claims=True)


def nested(levels):
    data = 1
    for level in range(levels):
        data = [data] if level % 2 else {"a": data}
    return data


def longest_history():
    history = ""
    for number in range(HISTORY_LENGTH):
        # Each differs, so that each is told; a control character takes six bytes as JSON, and seven in JSON in JSON.
        traceback = "\x01" * (MAX_TRACEBACK - 1) + str(number)
        history = with_attempt(history, Attempt("READY", number, "c" * 100, 1, 1, "\x01" * MAX_ERROR, traceback))
    return history


def is_message(fields):
    flat = [part if isinstance(part, bytes) else part.encode() for part in fields]
    return isinstance(decode_entry(flat, queue="q", stream=0, entry=b"1-1"), Delivery)


def fits_everywhere(of, text):
    history = longest_history() if len(text) <= MAX_DATA else ""
    body = encode_body(of, text, member="", alone="suspect", history=history)
    return is_message(["message", body]) and is_message([*encode_entry(of, text), "story", history, "alone", "suspect"])


def largest(size, value, name=WIDE):
    """Return the message with the most headers of a value that may have some data."""
    text, count = dumps("x" * (size - 2)), 0
    for step in (256, 64, 16, 4, 1):
        while count + step <= MAX_HEADERS:
            try:
                check_whole(message({f"h{n}": value for n in range(count + step)}, name), text)
            except MessageTooLarge:
                break
            count += step
    return message({f"h{n}": value for n in range(count)}, name), text


def test_the_largest_message_that_is_accepted_is_one_wherever_it_waits(subtests):
    for name, size, value in product(
        [WIDE, QUOTED],
        [2, MAX_DATA, MAX_DATA + 1, QUEUE.max_size],
        ["", "\x00" * 2000, '"' * 5000, "\U0001f600" * 1000],
    ):
        with subtests.test(name=name, size=size, value=value):
            found, text = largest(size, value, name)

            assert found.headers
            assert fits_everywhere(found, text)


def test_the_longest_data_without_headers_fits():
    text = data_text("x" * (QUEUE.max_size - 2), QUEUE)
    check_whole(message(), text)
    assert fits_everywhere(message(), text)


def test_data_is_nested_so_deep_that_every_parser_reads_it():
    assert loads(data_text(nested(MAX_LEVELS), QUEUE)) == nested(MAX_LEVELS)
    with pytest.raises(InvalidMessage, match="nested deeper than 500"):
        data_text(nested(MAX_LEVELS + 1), QUEUE)


def test_brackets_alone_are_not_depth(subtests):
    for data in [["["] * 2000, [[]] * 2000, [{"a": [1]}] * 1000, "{" * 5000]:
        with subtests.test(data=data):
            assert loads(data_text(data, QUEUE)) == data
