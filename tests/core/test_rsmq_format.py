import threading
import time

import pytest

from mq_django.core.rsmq_format import (
    MESSAGE_ID,
    check_existing,
    check_id,
    check_maxsize,
    check_queue,
    check_seconds,
    encode_text,
    new_id,
    sent_micros,
    units,
)
from mq_django.errors import InvalidFormat, InvalidValue, MissingParameter


def test_ids_rise_and_say_when():
    before = time.time_ns() // 1000
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert all(MESSAGE_ID.fullmatch(found) for found in ids)
    # They may run ahead of the clock by as many microseconds as there are of them.
    assert before <= sent_micros(ids[0]) <= sent_micros(ids[-1]) <= time.time_ns() // 1000 + 1000


def test_threads_make_ids_at_the_same_time():
    found, begin = [], threading.Barrier(8)

    def make():
        begin.wait()
        found.extend(new_id() for _ in range(2000))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 16_000


def test_an_id_of_another_kind_does_not_say_when(subtests):
    for foreign in ["", "x", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "A" * 32]:
        with subtests.test(foreign=foreign):
            assert sent_micros(foreign) is None


def test_length_is_counted_in_utf16(subtests):
    for text, length in [("", 0), ("é", 1), ("😀", 2), ("a😀b", 4)]:
        with subtests.test(text=text):
            assert units(text) == length == len(text.encode("utf-16-le")) // 2


def test_what_cannot_name_a_new_queue(subtests):
    for name in ["", "a b", "a:b", "QUEUES", "é", "x" * 161, None, 5]:
        with subtests.test(name=name), pytest.raises(InvalidFormat):
            check_queue(name)


def test_what_others_may_have_named_can_be_used():
    assert check_existing("a.b é") == "a.b é"
    for name in ("", "a:b", "QUEUES"):
        with pytest.raises(InvalidFormat):
            check_existing(name)


def test_a_missing_name_or_id_has_the_error_of_rsmq(subtests):
    for name in [None, ""]:
        with subtests.test(name=name):
            for check, text in (
                (check_queue, "No qname supplied"),
                (check_existing, "No qname supplied"),
                (check_id, "No id"),
            ):
                with pytest.raises(MissingParameter, match=text) as refused:
                    check(name)
                assert refused.value.name == "missingParameter"


def test_what_cannot_be_the_id_of_a_message(subtests):
    for found in ["vt", "totalsent", "x:rc", "x:fr", 5, "\ud800", b"x"]:
        with subtests.test(found=found), pytest.raises(InvalidFormat, match=r"^Invalid id format"):
            check_id(found)


#: What parseInt() of JavaScript returns.
def test_seconds_may_be_text_as_for_npm(subtests):
    for given, number in [("5", 5), (" 5", 5), ("5.9", 5), ("5s", 5), (5.9, 5), ("0", 0), ("+7", 7), (-0.5, 0)]:
        with subtests.test(given=given):
            assert check_seconds("vt", given) == number


def test_what_is_not_seconds(subtests):
    for given in ["", "x", "-1", "1" * 30, "10000000", True, None, [5], float("nan"), float("inf")]:
        said = r"^vt must be between 0 and 9999999"
        with subtests.test(given=given), pytest.raises(InvalidValue, match=said):
            check_seconds("vt", given)


def test_a_size_may_be_text_as_for_npm():
    assert (check_maxsize("2048"), check_maxsize("-1")) == (2048, -1)
    with pytest.raises(InvalidValue, match=r"^maxsize must be between 1024 and 65536"):
        check_maxsize("-2")


#: What Buffer.from(text) of node returns.
def test_lone_surrogates_are_stored_as_node_does(subtests):
    for text, stored in [
        *(("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("a\ud800", "a\ufffd"), ("\udc00\ud800", "\ufffd\ufffd")),
        *(("\ud83d\ude00", "😀"), ("😀\x00é", "😀\x00é")),
    ]:
        with subtests.test(text=text):
            assert encode_text(text) == stored.encode()
