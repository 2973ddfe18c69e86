import os

from mq_django.core.ids import new_id, token
from mq_django.core.keys import UNIQUE_PREFIX


def test_ten_thousand_ids_are_all_different():
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_a_token_is_13_lower_case_letters_and_digits():
    found = token()
    assert len(found) == 13
    assert found.isalnum()
    assert found == found.lower()


def test_an_id_never_looks_like_a_unique_key():
    assert UNIQUE_PREFIX not in new_id()


def test_a_forked_child_makes_ids_of_its_own():
    reading, writing = os.pipe()
    mine = new_id()
    child = os.fork()
    if child == 0:
        os.write(writing, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert theirs[:13] != mine[:13]
