"""Nonsense in any place of a queue's keys is a row that says so: no page fails, and no row is missing."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.utils import timezone

from mq_django import queues
from mq_django.admin.ui import text
from mq_django.conf import get_config
from mq_django.rsmq import RSMQ
from tests import on_cluster
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, VISITS, is_answered, world
from tests.hostile_keys import LAST, OF_QUEUES, OF_RSMQ, in_few_queues, topic_log

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

#: The date of the last moments that there are is one more year away there.
ZONES = ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago")


def read(response):
    return b"".join(response.streaming_content) if response.streaming else response.content


def look_at_all(client, looks=LOOKS, *, queue="emails"):
    """Return the looks at a queue that fail."""
    failed = {}
    for visit in looks:
        found = replace(visit, path=visit.path.replace("emails", queue))
        response = found.send(client)
        read(response)
        if not is_answered(visit, response):
            failed[str(found)] = response.status_code
    return failed


#: Those that show what most places hold: of all queues, and of one.
OF_ALL = ("", "consumers/")
OF_A_QUEUE = (
    "emails/change/",
    "emails/ready/",
    "emails/handled/",
    "emails/delayed/",
    "emails/dead/",
    "emails/dead/job/",
)
#: Each view of one queue that shows something, once for each of its paths.
OF_ONE_QUEUE = [
    *{
        visit.path.partition("?")[0]: visit
        for visit in LOOKS
        if visit.path.startswith("emails/") and "/all/" not in visit.path
    }.values()
]


def test_no_page_fails(operator, redis_client, mq_settings):
    queues = in_few_queues()
    mq_settings(QUEUES={queue: {} for queue in queues})
    for queue, places in queues.items():
        for place in places:
            OF_QUEUES[place](redis_client, get_config().queue(queue).keys)
    failed = {}
    with timezone.override("Pacific/Kiritimati"):
        for queue, places in queues.items():
            if found := look_at_all(operator, [visit for visit in LOOKS if visit.path in OF_A_QUEUE], queue=queue):
                failed[tuple(places)] = found
        assert failed == {}
        assert look_at_all(operator, [visit for visit in LOOKS if visit.path in OF_ALL]) == {}
        shown = operator.get(BASE).content.decode()
    assert [queue for queue in queues if f"/{queue}/change/" not in shown] == []


@pytest.mark.parametrize("queue", ["emails", "orders:billing"])
def test_no_page_fails_with_nonsense_everywhere(operator, redis_client, queue):
    world()
    for place in OF_QUEUES.values():
        place(redis_client, get_config().queue(queue).keys)
    # Pages of all queues read a group as any other of them.
    looks = LOOKS if queue == "emails" else [*OF_ONE_QUEUE, *(visit for visit in LOOKS if visit.path in OF_ALL)]
    with timezone.override("Pacific/Kiritimati"):
        assert look_at_all(operator, looks, queue=queue) == {}


def test_no_page_of_a_topic_fails(operator, redis_client):
    world()
    topic_log(redis_client, get_config().queue("orders:billing").keys)
    OF_QUEUES["control"](redis_client, get_config().topic("orders").keys)
    OF_QUEUES["counters"](redis_client, get_config().topic("orders").keys)
    looks = [visit for visit in LOOKS if "orders" in visit.path or visit.path in OF_ALL]
    assert look_at_all(operator, looks) == {}


def test_what_is_too_long_to_be_read_in_the_time_of_a_page_fails_alone(operator, redis_client, mq_settings, namespace):
    """Another program may fill a hash or create groups without end."""
    rsmq = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}
    mq_settings(QUEUES={"default": {}, "emails": {}, "jobs": {}, "old": rsmq}, TOPICS={"orders": {}, "events": {}})
    RSMQ(on_cluster.tag(f"{namespace}:r")).create_queue("old")
    many = {f"consumer:{number}": "{}" for number in range(10_001)}
    for queue, place in {"emails": "consumers", "jobs": "jobs", "old": "consumers"}.items():
        redis_client.hset(getattr(get_config().queue(queue).keys, place), mapping=many)
    pipeline = redis_client.pipeline(transaction=False)
    for number in range(5001):
        pipeline.xgroup_create(get_config().topic("orders").keys.log, f"g{number}", mkstream=True)
    pipeline.execute()

    response = operator.get(BASE)

    rows = [*response.context["rows"], *response.context["topics"]]
    errors = {row["url"]: row["error"] for row in rows if row["error"]}
    failed = {url.split("/")[-3]: error for url, error in errors.items()}
    expected = {"emails": "10001 fields", "jobs": "10001 fields", "old": "10001 fields", "orders": "5001 groups"}
    assert {name: what in failed[name] for name, what in expected.items()} == dict.fromkeys(expected, True)
    assert [name for name in failed if name not in expected and not name.startswith("orders_3A")] == []
    shown = response.content.decode()
    assert [what for what in expected.values() if f" {what}, and at most " not in shown] == []


def test_no_page_of_a_queue_in_rsmqs_format_fails(operator, redis_client, mq_settings, namespace):
    names, half = [*OF_RSMQ], len(OF_RSMQ) // 2
    queues = {f"q{number}": names[number::half] for number in range(half)}
    mq_settings(QUEUES={queue: {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"} for queue in queues})
    shallow = [
        visit for visit in OF_ONE_QUEUE if visit.path in OF_A_QUEUE or visit.name in ("pending", "figures", "entry")
    ]
    failed = {}
    for queue, places in queues.items():
        RSMQ(on_cluster.tag(f"{namespace}:r")).create_queue(queue)
        for place in places:
            OF_RSMQ[place](redis_client, get_config().queue(queue).keys)
        if found := look_at_all(operator, shallow, queue=queue):
            failed[tuple(places)] = found
    assert failed == {}
    for place in OF_RSMQ.values():
        place(redis_client, get_config().queue("q0").keys)
    assert look_at_all(operator, OF_ONE_QUEUE, queue="q0") == {}
    assert look_at_all(operator, [visit for visit in LOOKS if visit.path in OF_ALL]) == {}
    shown = operator.get(BASE).content.decode()
    assert [queue for queue in queues if queue not in shown] == []


def test_every_moment_can_be_told(operator):
    found = queues["emails"].publish("welcome", 1, deliver_at=datetime.fromtimestamp(LAST / 1000, UTC), on_commit=False)
    for zone in ZONES:
        with timezone.override(zone):
            for ms in (LAST, LAST + 999, LAST + 1000, 2**63, -1, -(10**15), 10**4000):
                assert text.date(ms)
                assert text.moment(ms)
            # A message of the last day is a row.
            assert found in operator.get(f"{BASE}emails/delayed/").content.decode()
            assert operator.get(f"{BASE}emails/message/delayed/{found}/").status_code == 200


def test_an_export_has_every_dead_letter(operator, redis_client):
    world()
    keys = get_config().queue("emails").keys
    for place in ("a dead letter with infinite data", "a dead letter with deep data", "numbers of a dead letter"):
        OF_QUEUES[place](redis_client, keys)
    world()
    lines = read(operator.get(f"{BASE}emails/dead/export/")).decode().splitlines()
    assert len(lines) == redis_client.xlen(keys.dead) == 5
    letters = [json.loads(line) for line in lines]
    assert [letter["id"] for letter in letters].count("odd") == 3
    # What cannot be read says so, with its bytes.
    assert any("1e999" in letter["raw"] for letter in letters if "unreadable" in letter)


def test_a_dead_letter_with_deep_data_can_be_edited(operator, redis_client):
    keys = get_config().queue("emails").keys
    OF_QUEUES["a dead letter with deep data"](redis_client, keys)
    ((entry, _),) = redis_client.xrange(keys.dead)
    address = f"{BASE}emails/message/dead/{entry.decode()}/"
    assert operator.get(address).status_code == 200
    (edit,) = [visit for visit in VISITS if visit.name == "dead_edit" and visit.method == "get"]
    assert operator.get(BASE + edit.path.format(dead=entry.decode())).status_code in (200, 302)
