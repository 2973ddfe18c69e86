"""What publish_many() takes: pairs, and nothing that only looks like one."""

import pytest

from mq_django.errors import InvalidMessage
from mq_django.producers import queues, topics


@pytest.fixture(params=["queue", "topic"])
def publish_many(mq_settings, request):
    mq_settings(TOPICS={"orders": {}})
    return queues["default"].publish_many if request.param == "queue" else topics["orders"].publish_many


def test_what_is_no_pair_is_refused_before_anything_is_written(publish_many, redis_client, namespace, subtests):
    for wrong, found in [
        ("ab", "str"),
        ({"name": "a", "data": 1}, "dict"),
        (("a",), "1 items"),
        (("a", 1, 2), "3 items"),
        (7, "int"),
        (None, "NoneType"),
    ]:
        with subtests.test(wrong=wrong, found=found):
            with pytest.raises(InvalidMessage, match=rf"messages\[1\] is {found}"):
                publish_many([("welcome", 1), wrong])
            assert [*redis_client.scan_iter(f"{namespace}:*")] == []


def test_lists_and_named_tuples_are_pairs(publish_many):
    assert len(publish_many(iter([["a", 1], ("b", 2)]))) == 2
