"""What is left of workflows in Redis, read past everything that is tested."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

from mq_django.conf import get_config
from mq_django.core.keys import HOMES, WorkflowKeys
from tests.chaos.places import left, published
from tests.chaos.settings import FLOW_QUEUE, FLOW_QUEUE_BESIDE

#: The prefix of fields about claims that keep a second publication out; the ids of messages follow, which all begin
#: with the last letter.
CLAIM, FIRST = b"i:", b"w"


class Listed(NamedTuple):
    """A run in the list of all runs."""

    id: str
    name: str
    state: str
    flying: int
    failed: int
    #: Why the latest step has failed.
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run at rest."""

    id: str
    #: The key of its plan.
    name: str
    state: str
    policy: str
    round: int
    total: int
    done: int
    failed: int
    skipped: int
    flying: int
    #: State of a step's record -> how many steps have it.
    records: Mapping[str, int]
    #: One of its keys has no time to live though it has ended.
    stays: bool = False


@dataclass(frozen=True, kw_only=True)
class FlowRest:
    """Workflows at rest."""

    runs: Sequence[EndedRun] = ()
    #: Entries of `starts`, runs in `busy` and in `alive`, notes of the queues about steps, messages in them.
    starts: int = 0
    busy: int = 0
    alive: int = 0
    notes: Sequence[str] = ()
    queued: int = 0
    #: Ids of dead letters.
    dead: Sequence[str] = ()
    #: Name of a message -> how many were published.
    published: Mapping[str, int] = field(default_factory=dict)
    #: Ids of steps and callbacks that are known to be published.
    claimed: Sequence[str] = ()
    #: What `mq workflows --check` finds, as sentences.
    problems: Sequence[str] = ()


def homes() -> list[WorkflowKeys]:
    """Return the keys of all homes."""
    return [WorkflowKeys(get_config().namespace, digit) for digit in HOMES]


def listed(client: redis.Redis, skipped: Container[str] = ()) -> list[Listed]:
    """Return all runs but some, with what an operator looks at."""
    found: list[Listed] = []
    for keys in homes():
        ids = [run.decode() for run in _all(client.zrange(keys.index, 0, -1)) if run.decode() not in skipped]
        pipeline = client.pipeline(transaction=False)
        for run_id in ids:
            pipeline.hmget(keys.run(run_id), "name", "state", "flying", "failed", "failure")
        for run_id, words in zip(ids, pipeline.execute(), strict=True):
            name, state, flying, failed, failure = ((word or b"").decode() for word in words)
            found.append(Listed(run_id, name, state, int(flying or 0), int(failed or 0), failure.partition(" ")[2]))
    return found


def look(client: redis.Redis, problems: Sequence[str] = ()) -> FlowRest:
    """Return what is left of workflows, with what `mq workflows --check` has found."""
    places = homes()
    queues = [get_config().queue(queue).keys for queue in (FLOW_QUEUE, FLOW_QUEUE_BESIDE)]
    return FlowRest(
        runs=[run for keys in places for run in _runs(client, keys)],
        starts=sum(int(client.xlen(keys.starts)) for keys in places),
        busy=sum(int(client.zcard(keys.busy)) for keys in places),
        alive=sum(int(client.zcard(keys.alive)) for keys in places),
        notes=[name for keys in queues for name, _ in _pairs(client.hgetall(keys.step_notes)) if name != "#"],
        queued=sum(left(client, keys) for keys in queues),
        dead=[name for keys in queues for name, _ in _pairs(client.hgetall(keys.dead_ids))],
        published=sum((published(client, keys) for keys in queues), Counter()),
        claimed=[field[len(CLAIM) :].decode() for keys in queues for field in _claims(client, keys.claims)],
        problems=problems,
    )


def _runs(client: redis.Redis, keys: WorkflowKeys) -> list[EndedRun]:
    found = []
    prefix = keys.run("")
    for key in client.scan_iter(match=f"{prefix}*", count=1000):
        run_id = key.decode().removeprefix(prefix)
        words = dict(_pairs(client.hgetall(key)))
        records = Counter(record[:1] for _, record in _pairs(client.hgetall(keys.steps(run_id))))
        numbers = {name: int(words.get(name, 0)) for name in ("round", "total", "done", "failed", "skipped", "flying")}
        found.append(
            EndedRun(
                id=run_id,
                name=words.get("name", ""),
                state=words.get("state", ""),
                policy=words.get("policy", ""),
                records=records,
                stays=any(client.ttl(each) == -1 for each in keys.of_run(run_id)),
                **numbers,
            )
        )
    return found


def _all(reply: Any) -> list[bytes]:
    return list(reply)


def _pairs(reply: Any) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode(errors="replace")) for name, value in reply.items()]


def _claims(client: redis.Redis, key: str) -> list[bytes]:
    return [field for field in _all(client.hkeys(key)) if field.startswith(CLAIM + FIRST)]
