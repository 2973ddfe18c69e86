"""Who is read from the fields of a queue's `consumers`, whatever strangers write there."""

from mq_django.stores.members import read_roll


def test_a_name_that_is_empty_stands_for_nobody():
    kinds = ("beat", "seen", "supervisor", "consumer", "ask")
    roll = read_roll({f"{kind}:".encode(): b"1" for kind in kinds})
    assert roll.vital_signs() == {}
    assert not roll.supervisors
    assert not roll.consumers
