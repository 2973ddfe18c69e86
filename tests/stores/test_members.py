"""Who is read from the fields of a queue's `consumers`, whatever strangers write there."""

from mq_django.stores.members import read_membership


def test_a_name_that_is_empty_stands_for_nobody():
    kinds = ("beat", "seen", "supervisor", "consumer", "ask")
    membership = read_membership({f"{kind}:".encode(): b"1" for kind in kinds})
    assert membership.heartbeat_counts() == {}
    assert not membership.supervisors
    assert not membership.consumers
