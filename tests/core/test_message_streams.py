"""Chunks: what can be streamed, how it is stored and read, and the buffer of a run."""

import pytest
from django.utils.translation import gettext_lazy

from mq_django.core.message_streams import (
    MAX_CHUNK,
    MAX_ERROR,
    MAX_LINE,
    Chunk,
    RunStream,
    encoded,
    encoded_line,
    end_text,
    read_chunk,
)
from mq_django.core.options import StreamLimits
from mq_django.errors import InvalidChunk

LIMITS = StreamLimits()
NESTED: list = []
NESTED.append(NESTED)


def entry(kind="text", value=b"x", **others):
    fields = {"run": "abc", "attempt": "2", "number": "3", "total": "4", **others, kind: value}
    return [word if isinstance(word, bytes) else word.encode() for pair in fields.items() for word in pair]


@pytest.mark.parametrize(
    ("chunk", "kind", "stored"),
    [
        ("héllo\n", "text", "héllo\n".encode()),
        ("", "text", b""),
        (gettext_lazy("Yes"), "text", b"Yes"),
        (b"\xff\x00", "bytes", b"/wA="),
        (bytearray(b"a"), "bytes", b"YQ=="),
        (memoryview(b"abcd")[::2], "bytes", b"YWM="),
        ({"a": [1, None]}, "json", b'{"a":[1,null]}'),
        (None, "json", b"null"),
        (7, "json", b"7"),
        ("x" * MAX_CHUNK, "text", b"x" * MAX_CHUNK),
    ],
)
def test_a_chunk_is_read_as_it_was_streamed(chunk, kind, stored):
    assert encoded(chunk, LIMITS) == (kind, stored)
    found = read_chunk(b"1-0", entry(kind, stored))
    value = bytes(chunk) if kind == "bytes" else chunk
    assert found == Chunk(id="1-0", kind=kind, value=value, attempt=2, number=3)


@pytest.mark.parametrize(
    "chunk",
    ["\ud800", {1, 2}, float("nan"), object(), NESTED, "x" * (MAX_CHUNK + 1), "é" * MAX_CHUNK, b"x" * MAX_CHUNK],
    ids=lambda chunk: type(chunk).__name__,
)
def test_what_cannot_be_streamed_is_refused(chunk):
    with pytest.raises(InvalidChunk, match="A chunk"):
        encoded(chunk, LIMITS)


def test_a_chunk_is_not_larger_than_its_stream():
    with pytest.raises(InvalidChunk, match="at most 2,000 bytes"):
        encoded("x" * 2001, StreamLimits(bytes=2000))


@pytest.mark.parametrize("line", [b"x", None, 7, "x" * (MAX_LINE + 1), "\ud800"])
def test_a_line_of_the_log_is_text(line):
    with pytest.raises(InvalidChunk, match="A line of the log is text"):
        encoded_line(line)
    assert encoded_line("fetched 20 of 300") == b"fetched 20 of 300"
    assert encoded_line(gettext_lazy("Yes")) == b"Yes"


def test_an_end_has_the_outcome_and_the_error():
    found = read_chunk(b"1-0", entry("end", end_text("buried", "ValueError: no" + "x" * 1000)))
    assert (found.kind, found.value, found.outcome, len(found.error)) == ("end", None, "buried", MAX_ERROR)
    assert read_chunk(b"1-0", entry("end", end_text("handled"))).error == ""
    assert read_chunk(b"1-0", entry("restart", b"", number="0")).value is None


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [b"text"],
        entry("other"),
        entry(attempt="x"),
        entry(number="-1"),
        entry(number="9" * 40),
        entry("text", b"\xff"),
        entry("text", b"x" * (MAX_CHUNK + 1)),
        entry("bytes", b"*"),
        entry("json", b"{"),
        entry("end", b"[]"),
        entry("end", b'{"outcome":"else"}'),
        entry("end", b'{"outcome":["handled"]}'),
        entry("end", b'{"outcome":"handled","error":7}'),
    ],
)
def test_what_is_no_chunk_is_left_out(fields):
    assert read_chunk(b"1-0", fields) is None


def numbers(stream, most=None):
    return [chunk.number for chunk in stream.unsent(most)]


def test_a_run_keeps_what_is_not_sent_and_wakes_for_each_chunk():
    woken = []
    stream = RunStream(LIMITS, lambda: woken.append(1))
    assert not stream
    for text in (b"a", b"b", b"c"):
        stream.add("text", text)
    assert (bool(stream), numbers(stream), numbers(stream, 2), len(woken)) == (True, [1, 2, 3], [1, 2], 3)
    stream.sent(2)
    assert numbers(stream) == [3]
    stream.sent(9)
    assert not stream


def test_of_more_than_the_stream_keeps_the_oldest_are_left_out():
    stream = RunStream(StreamLimits(entries=3), bool)
    for _ in range(5):
        stream.add("text", b"x")
    assert numbers(stream) == [3, 4, 5]
    stream = RunStream(StreamLimits(bytes=1024), bool)
    for _ in range(5):
        stream.add("text", b"x" * 500)
    assert numbers(stream) == [4, 5]
    stream.sent(4)
    stream.add("text", b"x" * 500)
    assert numbers(stream) == [5, 6]


def test_a_run_that_has_lost_its_message_keeps_nothing():
    stream = RunStream(LIMITS, bool)
    stream.add("text", b"x")
    stream.lose()
    stream.add("text", b"x")
    assert (numbers(stream), stream.number) == ([], 1)
