import threading
import time

import pytest

from mq_django.core.rsmq_format import MESSAGE_ID, check_existing, check_queue, new_id, sent_micros, units
from mq_django.errors import InvalidFormat


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


@pytest.mark.parametrize("foreign", ["", "x", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "A" * 32])
def test_an_id_of_another_kind_does_not_say_when(foreign):
    assert sent_micros(foreign) is None


@pytest.mark.parametrize(("text", "length"), [("", 0), ("é", 1), ("😀", 2), ("a😀b", 4)])
def test_length_is_counted_in_utf16(text, length):
    assert units(text) == length == len(text.encode("utf-16-le")) // 2


@pytest.mark.parametrize("name", ["", "a b", "a:b", "QUEUES", "é", "x" * 161, None, 5])
def test_what_cannot_name_a_new_queue(name):
    with pytest.raises(InvalidFormat):
        check_queue(name)


def test_what_others_may_have_named_can_be_used():
    assert check_existing("a.b é") == "a.b é"
    for name in ("", "a:b", "QUEUES"):
        with pytest.raises(InvalidFormat):
            check_existing(name)
