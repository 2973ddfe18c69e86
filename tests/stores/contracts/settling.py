"""How deliveries are settled, by the three stores."""

from collections.abc import Callable, Iterator

from mq_django.core.keys import GroupKeys
from mq_django.core.messages import ACK, Bury, Cancel, Expire, HandBack, Retry, SetAside
from mq_django.stores.base import Store
from mq_django.stores.control import CancelRequests
from mq_django.stores.stream_store import StreamStore
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from tests.stores.cases import outgoing
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER

TRACE = 'Traceback (most recent call last):\n  File "a.py"\nValueError: no\n'

Open = Callable[[Stage], Store]


def scenes() -> Iterator[Callable[[Stage], None]]:
    """Yield every scene with every store."""
    opened: list[Open] = [Stage.queue, Stage.group, Stage.rsmq]
    for scene in (
        ack,
        ack_many,
        uncounted,
        wrong_calls,
        retry,
        retry_on,
        retry_uncharged,
        hand_back,
        hand_back_behind,
        hand_back_lost,
        hand_back_of_others,
        set_aside,
        bury,
        keep,
        cancel,
    ):
        for open_one in opened:
            yield lambda stage, scene=scene, open_one=open_one: scene(stage, open_one(stage))
    yield steps


def four(stage: Stage, store: Store) -> list:
    """Take four messages, and lose the third to another consumer."""
    items = [
        message_of(1, published_ms=1_999_999_999_000, key="k", headers={"tenant": "a"}),
        message_of(2, "report"),
        message_of(3),
        message_of(4),
    ]
    taken = list(stage.taken(store, *items))
    stage.lose(store, taken[2])
    return taken[:3]


def ack(stage: Stage, store: Store) -> None:
    taken = four(stage, store)
    with stage.under("two are done, another is no longer held, and a fourth goes on"):
        assert len(stage.settle(store, ACK, taken)) == 1
    with stage.under("an expired one goes like one that is done, and its id is kept"):
        stage.settle(store, Expire(), store.held_by(ME, limit=5))


def ack_many(stage: Stage, store: Store) -> None:
    taken = stage.taken(store, *(message_of(number) for number in range(1, 15)))
    stage.lose(store, taken[5])
    with stage.under("more than ten, of which one is no longer held and another stays"):
        assert len(stage.settle(store, ACK, taken[:-1])) == 1


def uncounted(stage: Stage, store: Store) -> None:
    if not isinstance(store, StreamStore) or isinstance(store.keys, GroupKeys):
        return
    keys, transport = store.keys, stage.transport()
    entries = [item.entry for item in stage.taken(store, *(message_of(number) for number in (1, 2, 3)))]

    def settle(outcome: str, names: str, entry: bytes, *lists: Argument) -> None:
        found = [getattr(keys, name.replace("-", "_")) for name in names.split()]
        args = [outcome, f"stream {names}".strip(), keys.group, ME, 1, entry, *lists]
        with stage.under("by a program that counts nothing"):
            transport.pipeline([scripts.command("settle", keys=[keys.ready, *found], args=args)])

    settle("ack", "", entries[0])
    body = '{"type":"welcome","data":1,"attempt":2}'
    lists = ("ids", 1, "m2", "delays", 1, 60_000, "bodies", 1, body, "wake", 1, keys.wake)
    settle("retry", "due waiting", entries[1], *lists)
    fields = ("id", "m3", "type", "welcome", "data", "1")
    settle("bury", "dead dead-ids dead-groups", entries[2], "ids", 1, "m3", "sizes", 1, 6, "fields", 6, *fields)


def wrong_calls(stage: Stage, store: Store) -> None:
    """Nothing is written by a call that does not have what its outcome needs."""
    if not isinstance(store, StreamStore) or isinstance(store.keys, GroupKeys):
        return
    keys, transport = store.keys, stage.transport()
    (taken,) = stage.taken(store, message_of(1))
    whole: list[Argument] = ["ack", "stream", keys.group, ME, 1, taken.entry]
    for title, args in (
        ("an outcome that does not exist", ["done", *whole[1:]]),
        ("no receipts", [*whole[:4], 0]),
        ("fewer receipts than it says", [*whole[:4], 2, taken.entry]),
        ("a list without its values", [*whole, "ids", 2, "m1"]),
        ("keys without a form", ["ack", "due", *whole[2:]]),
        ("no key for the outcome", ["retry", *whole[1:], "ids", 1, "m1", "delays", 1, 5, "bodies", 1, "{}"]),
        ("no list for the outcome", ["cancel", *whole[1:]]),
        ("counters without their keys", [*whole, "counters", 5, 33, 15, 1, "welcome", "handled"]),
        ("a result without its key", [*whole, "channel", 1, "c", "results", 4, 1, "{}", "{}", 5]),
    ):
        with stage.under(title):
            transport.pipeline([scripts.command("settle", keys=[keys.ready], args=args)])


def cancel(stage: Stage, store: Store) -> None:
    if store.config.keeps_running:
        return
    requests = CancelRequests(store.config, stage.transport())
    with stage.under("before there are consumers, by its id"):
        requests.ask("a", force=False)
    with stage.under("nobody claims the unique key"):
        requests.ask("u:none", force=False)
    stage.client.hset(store.keys.consumers, "supervisor:s1", "{}")
    taken = four(stage, store)
    first, second, third = (item.message.id for item in taken)
    with stage.under("by force"):
        requests.ask(second, force=True)
    with stage.under("once more, not by force: it stays so"):
        requests.ask(second, force=False)
    stage.client.hset(store.keys.claims, "k:report", f"{NOW_MS + 60_000}:{first}")
    with stage.under("by the unique key that it claims"):
        requests.ask("u:report", force=False)
    stage.client.zadd(store.keys.cancels, {f"old{number}": number for number in range(3)})
    with stage.under("those of more than a day ago go"):
        requests.ask(third, force=False)
    with stage.under("two are done, another is no longer held, so that its request stays"):
        assert len(stage.settle(store, Cancel(), taken)) == 1


def retry(stage: Stage, store: Store) -> None:
    taken = four(stage, store)
    outcome = Retry(error="ValueError: no", traceback=TRACE)
    with stage.under("two wait a minute, with their stories; another is no longer held"):
        assert len(stage.settle(store, outcome, taken, delay_ms=60_000, micros=1500)) == 1


def retry_uncharged(stage: Stage, store: Store) -> None:
    (one,) = stage.taken(store, message_of(1))
    with stage.under("the attempt is repeated, and its story has it"):
        stage.settle(store, Retry(error="away"), [one], delay_ms=60_000, uncharged=True)


def retry_on(stage: Stage, store: Store) -> None:
    waits = message_of(9, delay_ms=30_000)
    store.publish([waits])
    one, two, three = stage.taken(store, *(message_of(number) for number in (1, 2, 3)))
    with stage.under("alone from now on, and behind what is due before it: nobody is told"):
        stage.settle(store, Retry(), [one], delay_ms=60_000, alone=True)
    with stage.under("at once, before what is due"):
        stage.settle(store, Retry(), [two], delay_ms=0)
    if store.config.store == "stream":
        store.publish([message_of(3, delay_ms=90_000)])
        with stage.under("another message waits under its id"):
            stage.settle(store, Retry(), [three], delay_ms=60_000)


def hand_back(stage: Stage, store: Store) -> None:
    taken = four(stage, store)
    with stage.under("two go back, and nothing stands before them; another is no longer held"):
        assert len(stage.settle(store, HandBack(), taken)) == 1


def hand_back_behind(stage: Stage, store: Store) -> None:
    one, two = stage.taken(store, message_of(1), message_of(2))
    stage.publish(store, message_of(3))
    with stage.under("while another is ready"):
        stage.settle(store, HandBack(), [one])
    with stage.under("a second one while another is ready"):
        stage.settle(store, HandBack(), [two])


def hand_back_lost(stage: Stage, store: Store) -> None:
    taken = stage.taken(store, message_of(1), message_of(2))
    with stage.under("its consumer vanished with its machine"):
        stage.settle(store, HandBack(lost=True), taken[:1])
    with stage.under("it was running beside others as their process died"):
        stage.settle(store, HandBack(suspect=True), taken[1:])
    again = store.take(ME, count=2)
    with stage.under("both once more, the other way round"):
        stage.settle(store, HandBack(lost=True), again)
    again = store.take(ME, count=2)
    with stage.under("what is to run alone, a third time"):
        stage.settle(store, HandBack(suspect=True), again)
    again = store.take(ME, count=2)
    with stage.under("what was to run alone failed, one of them as the killer"):
        stage.settle(store, Retry(), again[:1], delay_ms=1000, alone=True)
        stage.settle(store, Retry(), again[1:], delay_ms=1000)


def hand_back_of_others(stage: Stage, store: Store) -> None:
    if store.config.store == "rsmq":
        return
    stage.client.xadd(store.keys.streams()[-1 if "g:" in store.keys.ready else 0], {"type": "t", "data": "1"}, "5-1")
    with stage.under("another program published it, without an id and a time"):
        stage.settle(store, HandBack(lost=True), store.take(ME, count=1))


def set_aside(stage: Stage, store: Store) -> None:
    taken = four(stage, store)
    stage.let_idle(store, taken[:2])
    with stage.under("two of different names; another is no longer held"):
        assert len(stage.settle(store, SetAside(), taken)) == 1
    if store.config.store == "rsmq":
        return
    with stage.under("released by its name"):
        assert store.release_unhandled(["welcome"], limit=5) == 1
    with stage.under("nothing of this name is left"):
        assert store.release_unhandled(["welcome"], limit=5) == 0
    with stage.under("released with all others"):
        assert store.release_unhandled(None, limit=5) == 1


def bury(stage: Stage, store: Store) -> None:
    taken = four(stage, store)
    with stage.under("two of different names with an error; another is no longer held"):
        outcome = Bury("ValueError: no", TRACE, reason="attempts")
        assert len(stage.settle(store, outcome, taken, micros=1500)) == 1
    stage.settle(store, HandBack(lost=True), store.held_by(ME, limit=5))
    (last,) = store.take(ME, count=1)
    with stage.under("a second one of a name, with another error and no traceback"):
        stage.settle(store, Bury("gone", reason="crashed"), [last])
    more = 1000 - stage.client.hlen(store.keys.dead_groups)
    stage.client.hset(store.keys.dead_groups, mapping={f"Error{number}|": "1 5" for number in range(more)})
    five, six = stage.taken(store, message_of(5), message_of(6))
    with stage.under("in a thousand groups: the next are counted together"):
        stage.settle(store, Bury("KeyError: 1"), [five])
    stage.client.delete(store.keys.dead)
    with stage.under("after the dead letters were deleted by hand: they are counted anew"):
        stage.settle(store, Bury("KeyError: 1"), [six])


def keep(stage: Stage, store: Store) -> None:
    if store.config.store == "rsmq":
        return
    taken = four(stage, store)
    stage.let_idle(store, taken[:2])
    receipts = [(item.stream, item.entry) for item in taken]
    with stage.under("two are extended; another is no longer held"):
        assert len(store.extend(ME, receipts)) == 1
    stage.let_idle(store, taken[:2])
    with stage.under("two are passed on; another is no longer held"):
        assert len(store.reassign(ME, OTHER, receipts)) == 1


def steps(stage: Stage) -> None:
    store = stage.queue()
    taken = stage.taken(store, *(outgoing("step:a", id=f"w:0run00000.{number}.1") for number in (1, 2)))
    with stage.under("a step of a workflow becomes a dead letter"):
        stage.settle(store, Bury("ValueError: no"), taken[:1])
    with stage.under("a step of a workflow is cancelled"):
        stage.settle(store, Cancel(), taken[1:])
