"""Queues whose number of partitions is another one in Redis."""

from mq_django.inspector.doctor.report import examine_project
from mq_django.producers import queues

CODES = {"D201", "D209"}


def found():
    return [(finding.code, finding.level) for finding in examine_project(codes=CODES).findings]


def test_a_queue_with_partitions_is_no_finding(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": 8}, "emails": {}})
    queues["default"].publish_many([("act", {}) for _ in range(2000)])
    assert found() == []


def test_another_number_than_in_the_settings(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": 8}})
    queues["default"].publish("act", {})
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}})
    (finding,) = examine_project(codes={"D209"}).findings
    assert "Queue 'default' has 8 partitions in Redis, and PARTITIONS is 4 here" in finding.seen
    mq_settings(QUEUES={"default": {}})
    assert ("D209", "error") in found()


def test_messages_of_a_queue_that_had_no_partitions_are_a_finding(mq_settings):
    """Nothing is recorded of them, and no list of the partitions has them."""
    mq_settings(QUEUES={"default": {}})
    queues["default"].publish("act", {}, delay=60)
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}, "emails": {"PARTITIONS": 2}})
    (finding,) = examine_project(codes={"D209"}).findings
    assert "Queue 'default' has no partitions in Redis, and PARTITIONS is 4 here" in finding.seen
    # A look records no number: this one is right after all.
    mq_settings(QUEUES={"default": {}, "emails": {}})
    assert found() == []
