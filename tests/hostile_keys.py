"""Nonsense in every place of a queue's keys that something reads: what each does to a queue, by name."""

import time
from collections.abc import Callable
from typing import Any

import redis

from mq_django.core.keys import GroupKeys, QueueKeys, TopicKeys

#: No number, or none that Python reads.
DIGITS = "9" * 5000
DEEP = "[" * 1000 + "]" * 1000
#: What parses, and cannot be written again, or not by everybody.
INFINITE = '{"type":"ok","data":[1e999,10000000000000000000000]}'
NESTED = '{"type":"ok","data":' + "[" * 1015 + "]" * 1015 + "}"
#: The last second that has a date; east of Greenwich it has none.
LAST = 253402300799000

LookupState = Callable[[redis.Redis, Any], object]


def _counters(keys: QueueKeys | TopicKeys) -> list[str]:
    hour = int(time.time()) // 3600
    return [keys.minutes(hour), keys.minutes(hour - 1), keys.hours(hour // 24), keys.hours(hour // 24 - 1)]


def _count(client: redis.Redis, keys: Any, value: str) -> None:
    for key in _counters(keys):
        for slot in (*range(60), DIGITS):
            client.hset(
                key, mapping={f"{slot}|{what}|{name}": value for what in ("published", "t3") for name in ("", "n")}
            )
    client.hset(keys.totals, mapping={"hour": value, "published": value, "t3": value})


def _wait(client: redis.Redis, keys: QueueKeys, member: bytes | str, score: float, body: str | None) -> None:
    for key in (keys.due, keys.unhandled, keys.parked, keys.priority):
        client.zadd(key, {member: score})
    if body is not None:
        client.hset(keys.waiting, member, body)


def _tell(client: redis.Redis, keys: QueueKeys, told: str) -> None:
    client.hset(keys.consumers, mapping={"beat:s9": 1, "seen:s9": LAST, "supervisor:s9": told, "consumer:s9-c1": told})


def _bury(client: redis.Redis, keys: QueueKeys, data: str, **fields: str) -> None:
    letter = {"id": "odd", "type": "n", "data": data, "deadreason": "error", "deaderror": "E: no", **fields}
    client.hset(keys.dead_ids, "odd", client.xadd(keys.dead, letter))


def _keep(client: redis.Redis, keys: QueueKeys, line: bytes | str) -> None:
    for field in ("odd", b"\xff\n", "u:x", "later"):
        entry = client.xadd(keys.handled, {field: line, "other": "x"})
        client.hset(keys.handled_ids, mapping={b"i:" + (field if isinstance(field, bytes) else field.encode()): entry})


def _handled(**fields: str) -> str:
    return '{"name":"n","ending":"handled"' + "".join(f',"{name}":{value}' for name, value in fields.items()) + "}"


#: What is done to any queue on streams, and to groups of topics.
OF_STREAMS: dict[str, LookupState] = {
    "a history of nonsense": lambda client, keys: _keep(client, keys, b"\xff"),
    "a history that is not of ours": lambda client, keys: _keep(client, keys, "[" * 1000),
    "a long history": lambda client, keys: _keep(client, keys, _handled(data='"' + "x" * 100_000 + '"')),
    "deep data in a history": lambda client, keys: _keep(client, keys, _handled(data="[" * 900 + "]" * 900)),
    "numbers of a history": lambda client, keys: _keep(
        client, keys, _handled(finished=str(LAST), micros="9" * 25, attempt="9" * 4000, size="-1", published="1e300")
    ),
    "texts of a history": lambda client, keys: _keep(
        client, keys, _handled(name='"<b>\\u0000\\ud800"', key='"<b>"', unique="1", consumer='"' + "c" * 9000 + '"')
    ),
    "a history's index of nonsense": lambda client, keys: client.hset(
        keys.handled_ids, mapping={"i:later": b"\xff", "i:odd": "", "total": DIGITS}
    ),
    "beat": lambda client, keys: client.hset(keys.consumers, "beat:x", DIGITS),
    "seen": lambda client, keys: client.hset(
        keys.consumers, mapping={"beat:x": 1, "seen:x": DIGITS, "consumer:x-1": "{}"}
    ),
    "supervisor that is no text": lambda client, keys: _tell(client, keys, '{"supervisor":' + DEEP + "}"),
    "numbers of a consumer": lambda client, keys: _tell(
        client, keys, '{"supervisor":"s9","pid":%s,"threads":%s,"since_ms":%s,"handled":%s}' % (("9" * 4000,) * 4)
    ),
    "what a consumer runs": lambda client, keys: _tell(
        client, keys, '{"supervisor":"s9","running":[[0,"1-1",%s],[9,"x",1],[%s,"1-1",1]]}' % (("9" * 4000,) * 2)
    ),
    "a consumer of odd bytes": lambda client, keys: client.hset(keys.consumers, b"consumer:\xff\n", b"\xff"),
    "stacks of nonsense": lambda client, keys: client.set(
        keys.stacks_of("s1-c0"),
        f'{LAST}\n{{"stacks":[7,{{"kind":"sync","frames":[]}},{{"kind":"thread","id":"<b>\\u0000\\ud800","ms":{DIGITS},'
        f'"frames":[["<b>\\u202e",{"9" * 25},"f","x"],7]}}]}}',
    ),
    "requests for stacks": lambda client, keys: client.hset(keys.stacks, mapping={"s1-c0": DIGITS, b"\xff": b"\xff"}),
    "counters": lambda client, keys: _count(client, keys, DIGITS),
    "counters that are no number": lambda client, keys: _count(client, keys, "inf"),
    "due at no time": lambda client, keys: client.zadd(keys.due, {"x": "inf"}),
    "due long ago": lambda client, keys: _wait(client, keys, "x", float("-inf"), None),
    "due on the last day": lambda client, keys: _wait(client, keys, "x", LAST, '{"type":"n","data":1}'),
    "due after all days": lambda client, keys: _wait(client, keys, "x", 1.7e308, '{"type":"n","data":1}'),
    "an empty member": lambda client, keys: _wait(client, keys, "", LAST, '{"type":"n","data":1}'),
    "an odd member": lambda client, keys: _wait(client, keys, b"\xff\n/", LAST, '{"type":"n","data":1}'),
    "infinite data that wait": lambda client, keys: _wait(client, keys, "x", LAST, INFINITE),
    "deep data that wait": lambda client, keys: _wait(client, keys, "x", LAST, NESTED),
    "deep attributes that wait": lambda client, keys: _wait(
        client, keys, "x", LAST, f'{{"type":"n","data":1,"header":{DEEP},"story":{DEEP}}}'
    ),
    "times on the last day": lambda client, keys: _wait(
        client, keys, "x", LAST, f'{{"type":"n","data":1,"time":{LAST},"expires":"9999-12-31T23:59:59Z"}}'
    ),
    "infinite data": lambda client, keys: client.xadd(keys.ready, {"message": INFINITE}),
    "deep data": lambda client, keys: client.xadd(keys.ready, {"message": NESTED}),
    "infinite data over lines": lambda client, keys: client.xadd(
        keys.ready, {"type": "n", "data": "[1e999,\n10000000000000000000000]"}
    ),
    "an id that is no text": lambda client, keys: client.xadd(keys.ready, {"id": b"\xff\n", "type": "n", "data": "1"}),
    "a dead letter with infinite data": lambda client, keys: _bury(client, keys, "[1e999,10000000000000000000000]"),
    "a dead letter with deep data": lambda client, keys: _bury(client, keys, "[" * 1015 + "]" * 1015),
    "numbers of a dead letter": lambda client, keys: _bury(
        client, keys, "1", deadattempts=DIGITS, deadfirst=DIGITS, deadstory=DIGITS, time="9999-12-31T23:59:59Z"
    ),
    "groups of dead letters": lambda client, keys: client.hset(
        keys.dead_groups, mapping={"E|n": f"{DIGITS} {DIGITS}", "E|m": f"1 {LAST}", "E|o": "1 9" + "0" * 18, "": "1 1"}
    ),
    "a job with a nonsensical filter": lambda client, keys: client.hset(
        keys.jobs,
        mapping={
            "dead:what": "redrive",
            "dead:state": "running",
            "dead:until": "1-1",
            "dead:wanted": '{"name":5}',
            "dead:total": 1,
        },
    ),
    "a job with nonsensical numbers": lambda client, keys: client.hset(
        keys.jobs,
        mapping={f"dead:{name}": DIGITS for name in ("rate", "total", "looked", "done", "since", "changed", "lease")}
        | {
            "dead:what": "redrive",
            "dead:state": "finished",
            "dead:until": "1-1",
            "dead:wanted": "{}",
            "dead:worker": b"\xff",
        },
    ),
    "limits": lambda client, keys: client.hset(
        keys.limits, mapping={"r": f"{DIGITS}:{DIGITS} 1:x", "t": DIGITS, "w": "x"}
    ),
    "next_checks": lambda client, keys: client.zadd(keys.next_checks, {"k": "inf", b"\xff": "-inf"}),
    "last ticks": lambda client, keys: client.hset(
        keys.schedules, mapping={"last:nightly": DIGITS, "fired:nightly": DIGITS}
    ),
    "last ticks on the last day": lambda client, keys: client.hset(
        keys.schedules, mapping={"last:nightly": LAST, "fired:nightly": LAST, "last:gone": "x", b"last:\xff": b"\xff"}
    ),
    "schedules of run time": lambda client, keys: client.hset(
        keys.runtime_schedules,
        mapping={b"definition:\xff": b"\xff", "definition:n": '{"every":1,"message":"m"}', "created:n": DIGITS}
        | {"changed:n": b"\xff \xff", "paused:n": "x", "last:n": DIGITS, "fired:n": "inf", "definition:": "[]"},
    ),
    "control": lambda client, keys: client.hset(
        keys.control,
        mapping={"ranked": DIGITS, "fronts": "inf", "log-generation": DIGITS, "alarm": DIGITS, "lost": DIGITS},
    ),
}

#: Adds the entry of the last day, after which nothing can be added to the stream.
LAST_ENTRIES: dict[str, LookupState] = {
    "the last ready entry": lambda client, keys: client.xadd(keys.ready, {"type": "n", "data": "1"}, id=f"{LAST}-1"),
    "the last urgent entry": lambda client, keys: client.xadd(
        keys.front, {"type": "n", "data": "1"}, id=f"{2**64 - 2}-1"
    ),
    "the last dead letter": lambda client, keys: client.xadd(
        keys.dead, {"type": "n", "data": "1"}, id=f"{2**64 - 2}-1"
    ),
}

OF_QUEUES = OF_STREAMS | LAST_ENTRIES


def in_few_queues() -> dict[str, list[str]]:
    """Return the names of all places for queues: three for each, of which none is written over by another."""
    names, third = [*OF_QUEUES], -(-len(OF_QUEUES) // 3)
    return {f"q{number}": names[number::third] for number in range(third)}


#: What is done to a queue in RSMQ's format.
OF_RSMQ: dict[str, LookupState] = {
    name: place
    for name, place in OF_STREAMS.items()
    if name in ("beat", "seen", "counters", "control", "groups of dead letters")
} | {
    "infinite data": lambda client, keys: _send(client, keys, "0" * 32, INFINITE),
    "deep data": lambda client, keys: _send(client, keys, "0" * 32, NESTED),
    "an id that is no text": lambda client, keys: _send(client, keys, b"\xff\n", b"\xff"),
    "an empty id": lambda client, keys: _send(client, keys, b"", b"x"),
    "a body that is no text": lambda client, keys: _send(client, keys, "0" * 32, b"\xff"),
    "owners": lambda client, keys: _send(client, keys, "1" * 32, "x", owner=f"c {DIGITS}", count=DIGITS),
    "seen at no time": lambda client, keys: _send(client, keys, "2" * 32, "x", score="inf"),
}


def _send(
    client: redis.Redis,
    keys: Any,
    message_id: bytes | str,
    body: bytes | str,
    *,
    owner: str = "",
    count: str = "0",
    score: Any = 1,
) -> None:
    named = message_id if isinstance(message_id, bytes) else message_id.encode()
    client.hset(keys.hash, mapping={named: body, named + b":fr": DIGITS})
    client.zadd(keys.zset, {named: score})
    if owner:
        client.hset(keys.owners, named, owner)
        client.hset(keys.hash, named + b":rc", count)


def topic_log(client: redis.Redis, keys: GroupKeys) -> None:
    """Put nonsense into a topic's log."""
    for data in ("[1e999,10000000000000000000000]", "[" * 1015 + "]" * 1015, "1"):
        client.xadd(keys.topic.log, {"id": b"\xff\n", "type": "n", "data": data})
    client.xadd(keys.topic.log, {"message": INFINITE})
