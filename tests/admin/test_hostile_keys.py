"""Nonsense in any place of a queue's keys is a row that says so: no page fails, and no row is missing."""

import json
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
from tests.hostile_keys import LAST, LAST_ENTRIES, OF_RSMQ, OF_STREAMS, topic_log

pytestmark = [pytest.mark.django_db(databases="__all__"), pytest.mark.usefixtures("mq_settings")]

PLACES = OF_STREAMS | LAST_ENTRIES

#: The date of the last moments that there are is one more year away there.
AHEAD = pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])


def read(response):
    return b"".join(response.streaming_content) if response.streaming else response.content


def look_at_all(client, looks=LOOKS, **options):
    failed = {}
    for visit in looks:
        response = visit.send(client, **options)
        read(response)
        if not is_answered(visit, response):
            failed[str(visit)] = response.status_code
    return failed


#: Those that show what most places hold.
MOST = (
    "",
    "emails/change/",
    "consumers/",
    "emails/ready/",
    "emails/handled/",
    "find/?id=later",
    "emails/waiting/delayed/",
    "emails/dead/",
    "emails/dead/job/",
)


@pytest.mark.parametrize("place", PLACES)
def test_no_page_fails(operator, redis_client, place):
    PLACES[place](redis_client, get_config().queue("emails").keys)
    with timezone.override("Pacific/Kiritimati"):
        assert look_at_all(operator, [visit for visit in LOOKS if visit.path in MOST]) == {}


@pytest.mark.parametrize("queue", ["emails", "orders:billing"])
def test_no_page_fails_with_nonsense_everywhere(operator, redis_client, queue):
    world()
    for place in PLACES.values():
        place(redis_client, get_config().queue(queue).keys)
    looks = [type(visit)(visit.name, visit.path.replace("emails", queue), visit.needs) for visit in LOOKS]
    with timezone.override("Pacific/Kiritimati"):
        assert look_at_all(operator, looks) == {}


def test_no_page_of_a_topic_fails(operator, redis_client):
    world()
    topic_log(redis_client, get_config().queue("orders:billing").keys)
    PLACES["control"](redis_client, get_config().topic("orders").keys)
    PLACES["counters"](redis_client, get_config().topic("orders").keys)
    assert look_at_all(operator) == {}


@pytest.mark.parametrize("place", OF_RSMQ)
def test_no_page_of_a_queue_in_rsmqs_format_fails(operator, redis_client, mq_settings, namespace, place):
    mq_settings(QUEUES={"emails": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}})
    RSMQ(on_cluster.tag(f"{namespace}:r")).create_queue("emails")
    OF_RSMQ[place](redis_client, get_config().queue("emails").keys)
    looks = [visit for visit in LOOKS if "orders" not in visit.path]
    assert look_at_all(operator, looks) == {}
    assert "emails" in operator.get(BASE).content.decode()


@AHEAD
def test_a_message_of_the_last_day_is_a_row(operator, zone):
    found = queues["emails"].publish("welcome", 1, deliver_at=datetime.fromtimestamp(LAST / 1000, UTC), on_commit=False)
    with timezone.override(zone):
        page = operator.get(f"{BASE}emails/waiting/delayed/")
        message = operator.get(f"{BASE}emails/waiting/delayed/{found}/")
    assert (page.status_code, message.status_code) == (200, 200)
    assert found in page.content.decode()


@AHEAD
@pytest.mark.parametrize("ms", [LAST, LAST + 999, LAST + 1000, 2**63, -1, -(10**15), 10**4000])
def test_every_moment_can_be_told(zone, ms):
    with timezone.override(zone):
        assert text.date(ms)
        assert text.moment(ms)


@pytest.mark.parametrize("member", [b"", b"_", b"\xff", b"a/b", b"..", "ä".encode()])
def test_every_member_has_an_address(member):
    assert text.from_url(text.to_url(member)) == member
    assert text.to_url(member)


def test_an_export_has_every_dead_letter(operator, redis_client):
    world()
    keys = get_config().queue("emails").keys
    for place in ("a dead letter with infinite data", "a dead letter with deep data", "numbers of a dead letter"):
        PLACES[place](redis_client, keys)
    world()
    lines = read(operator.get(f"{BASE}emails/dead/export/")).decode().splitlines()
    assert len(lines) == redis_client.xlen(keys.dead) == 5
    letters = [json.loads(line) for line in lines]
    assert [letter["id"] for letter in letters].count("odd") == 3
    # What cannot be read says so, with its bytes.
    assert any("1e999" in letter["raw"] for letter in letters if "unreadable" in letter)


def test_a_dead_letter_with_deep_data_can_be_edited(operator, redis_client):
    keys = get_config().queue("emails").keys
    PLACES["a dead letter with deep data"](redis_client, keys)
    ((entry, _),) = redis_client.xrange(keys.dead)
    address = f"{BASE}emails/dead/{entry.decode()}/"
    assert operator.get(address).status_code == 200
    (edit,) = [visit for visit in VISITS if visit.name == "dead_edit" and visit.method == "get"]
    assert operator.get(BASE + edit.path.format(dead=entry.decode())).status_code in (200, 302)
