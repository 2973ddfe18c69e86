"""Dead letters: read, redriven, deleted, resubmitted, and jobs about many of them."""

from collections.abc import Callable, Iterator
from typing import Any

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.outcomes import Bury
from mq_django.core.rsmq_keys import RsmqKeys
from mq_django.stores.background_jobs import BackgroundJobs
from mq_django.stores.base import Store
from mq_django.stores.dead_letter_queue import DeadLetters, JobStep, open_dead_letters
from mq_django.stores.moving import Mover
from mq_django.transport import scripts
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.settling import TRACE
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME

UNKNOWN = "5-5"


def scenes() -> Iterator[Any]:
    """Yield every scene, with a queue and with one in RSMQ's format."""
    opened: list[Callable[[Stage], Store]] = [Stage.queue, Stage.rsmq]
    for scene in (read, redrive, redrive_cancelled, redrive_in_a_step, delete, resubmit, job):
        for open_one in opened:
            yield lambda stage, scene=scene, open_one=open_one: scene(stage, *buried(stage, open_one(stage)))
    for open_target in opened:
        yield lambda stage, open_target=open_target: accept(stage, open_target)


def buried(stage: Stage, store: Store) -> tuple[DeadLetters, list[str], Store]:
    """Bury three messages and what is none, and return the entries of `dead`."""
    one = message_of(1, key="k", expires_ms=NOW_MS + 9, headers={"deadline": "x"}, published_ms=NOW_MS - 500)
    items = stage.taken(store, one, message_of(2), message_of(3, "report"), message_of(4))
    failed = Bury("ValueError: no", TRACE, reason="attempts")
    stage.settle(store, failed, items[:2], micros=1500)
    stage.settle(store, Bury("gone"), items[2:])
    stage.client.xdel(store.keys.dead, stage.client.xrange(store.keys.dead)[-1][0])
    stage.client.xadd(store.keys.dead, {"id": "raw", "deadraw": "a" * 5, "deaderror": "?"}, f"{NOW_MS}-9")
    entries = [entry.decode() for entry, _ in stage.client.xrange(store.keys.dead)]
    return open_dead_letters(store.config, stage.wire()), entries, store


def read(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    with stage.under("the newest two, without what is long"):
        dead.read(limit=2, newest_first=True, max_bytes=6, which="LISTED")
    with stage.under("those before one, whole"):
        dead.read(limit=9, last=f"({entries[2]}", newest_first=True, max_bytes=16 * 1024, which="WHOLE")
    with stage.under("the oldest up to one, as a filter reads them"):
        dead.traits(limit=9, first=f"({entries[0]}", last=entries[2])
    with stage.under("two, and one that is not there"):
        args = [16 * 1024, entries[0], UNKNOWN, entries[2]]
        stage.wire().trip([scripts.command("dead_read", keys=[store.keys.dead], args=args)])


def redrive(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    with stage.under("one, one that is not there, and what is no message"):
        dead.redrive([entries[0], UNKNOWN, entries[3]])
    stage.client.hset(store.keys.dead_ids, message_of(2).message.id, "9-9")
    with stage.under("buried again meanwhile under the same id"):
        dead.redrive([entries[1]])
    stage.client.hset(store.keys.waiting, rsmq_id(3), "another")
    strange = stage.client.xadd(store.keys.dead, {"id": "strange", "deadreason": "?"}, f"{NOW_MS}-10").decode()
    odd = {"id": "odd", "type": "t", "data": "1", "deadbody": "1", "deadstory": "odd"}
    with_history = stage.client.xadd(store.keys.dead, odd, f"{NOW_MS}-11").decode()
    with stage.under("with a history that is none of ours"):
        dead.redrive([with_history])
    with stage.under("another message has its id; and what has neither a name nor a body"):
        dead.redrive([entries[2], strange])


def redrive_cancelled(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    if store.config.keeps_running:
        return
    (_, fields), *_others = stage.client.xrange(store.keys.dead)
    stage.client.zadd(store.keys.cancels, {fields[b"id"]: NOW_MS, "other": NOW_MS})
    with stage.under("one that was to be cancelled"):
        dead.redrive([entries[0]])


def redrive_in_a_step(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    stage.client.hset(store.keys.dead_job, mapping={"state": "running", "worker": "w1", "done": 5})
    with stage.under("in a step of a job"):
        dead.redrive([entries[0], entries[3], UNKNOWN], step=JobStep("w1", entries[3], 4, 10_000))
    with stage.under("in a step of a job that is another's"):
        assert dead.redrive(entries, step=JobStep("w2", entries[3], 4, 10_000)) == ["STOPPED"]
    stage.client.hset(store.keys.dead_job, "state", "cancelled")
    with stage.under("in a step of a job that is over"):
        assert dead.redrive(entries, step=JobStep("w1", entries[3], 4, 10_000)) == ["STOPPED"]


def delete(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    with stage.under("two, and one that is not there"):
        dead.delete([entries[0], UNKNOWN, entries[3]])
    stage.client.hset(store.keys.dead_job, mapping={"state": "running", "worker": "w1"})
    with stage.under("in a step of a job"):
        dead.delete([entries[1], UNKNOWN], step=JobStep("w1", entries[1], 2, 10_000))
    with stage.under("in a step of a job that is another's"):
        dead.delete([entries[2]], step=JobStep("w2", entries[2], 1, 10_000))


def resubmit(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    words = []
    for title, entry in (("with other data", entries[0]), ("is no message", entries[3]), ("not there", UNKNOWN)):
        with stage.under(title):
            words.append(dead.resubmit(entry, message_id=message_of(9).message.id, text=b'{"n":9}'))
    assert words == ["RESUBMITTED", "UNDECODABLE", "MISSING"]


def accept(stage: Stage, open_target: Callable[..., Store]) -> None:
    """Write dead letters of a queue to another one."""
    source = stage.queue()
    _, entries, _ = buried(stage, source)
    keys = open_target(stage, MAX_DEPTH=2).keys

    def write(*chosen: str) -> list[str]:
        return [*Mover(source.config, stage.wire(), get_config().queue("emails")).write(chosen).words]

    stage.client.zadd(keys.moved, {"long ago": 1})
    with stage.under("one, with its history"):
        assert write(entries[0]) == ["ACCEPTED"]
    with stage.under("the same again, and another"):
        assert write(entries[0], entries[1]) == ["KNOWN", "ACCEPTED"]
    with stage.under("full"):
        assert write(entries[2]) == []
    if isinstance(keys, RsmqKeys):
        stage.rsmq(REALTIME=True)
        stage.client.hset(keys.hash, rsmq_id(3), "another")
        with stage.under("another message has its id"):
            assert write(entries[2]) == ["EXISTS"]
        stage.client.hdel(keys.hash, rsmq_id(3))
        stage.client.hset(keys.hash, "maxsize", 10)
        with stage.under("too long"):
            assert write(entries[2]) == ["TOOLONG"]
        stage.client.delete(keys.hash)
        with stage.under("no queue is there, then a new one; other programs listen"):
            assert write(entries[2]) == ["ACCEPTED"]


def job(stage: Stage, dead: DeadLetters, entries: list[str], store: Store) -> None:
    jobs = BackgroundJobs(store.config, stage.wire())
    with stage.under("none is there"):
        jobs.work("w1")
        assert not jobs.cancel()
    stage.client.hset(store.keys.dead_job, mapping={"state": "finished", "old": "1"})
    with stage.under("in place of one that is over"):
        assert jobs.begin("redrive", who=ME, criteria=Filter(), until=entries[2], total=3, rate=0)
    with stage.under("another runs"):
        assert not jobs.begin("delete", who=ME, until=entries[2], total=3)
    with stage.under("by nobody yet"):
        jobs.work("w1")
    with stage.under("by another worker"):
        jobs.work("w2")
    stage.client.hset(store.keys.dead_job, "lease", NOW_MS)
    with stage.under("by another worker, whose lease is over now"):
        jobs.work("w2")
    with stage.under("ended"):
        jobs.work("w2")
    jobs.begin("delete", who=ME, until=entries[2], total=3)
    with stage.under("cancelled"):
        assert jobs.cancel()
