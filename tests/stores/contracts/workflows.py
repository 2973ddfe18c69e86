"""Runs of workflows, and the steps of them that are messages."""

from collections.abc import Callable, Iterator, Sequence

from mq_django.core.flow_graph import StepRecord
from mq_django.core.outcomes import Bury, Cancel, StepEnd
from mq_django.core.workflow_keys import WorkflowKeys
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.stores.step_notes import StepNotes
from mq_django.stores.workflow_home import Event, WorkflowHome
from tests.stores.cases import outgoing
from tests.stores.contracts.stage import Stage

RUN = "0run"


def scenes() -> Iterator[Callable[[Stage], None]]:
    """Yield every scene."""
    yield from (chain, failure, unique, wide, added, ended, steps, deleted)


def home_of(stage: Stage) -> WorkflowHome:
    stage.queue()
    return WorkflowHome(WorkflowKeys(stage.namespace, "0"), stage.wire())


def create(home: WorkflowHome, records: Sequence[StepRecord], run: str = RUN, **fields: str) -> None:
    home.create(run, {"policy": "stop", "lasts": 60_000, "on_finish": "F", "on_failure": "x", **fields}, records)


def two(home: WorkflowHome, **fields: str) -> None:
    """Create a run of two steps, one after the other."""
    create(home, [StepRecord(1, 0, b"one", "2"), StepRecord(2, 1, b"two")], **fields)


def chain(stage: Stage) -> None:
    home = home_of(stage)
    with stage.under("there is no such run"):
        home.advance(RUN, [Event("begin", added="1-2")])
    two(home)
    with stage.under("one step may start"):
        home.advance(RUN, [Event("begin", added="1-2")])
    with stage.under("the same once more"):
        home.advance(RUN, [Event("begin", added="1-2")])
    with stage.under("it is done, with a value, and the next may start"):
        home.advance(RUN, [Event("done", 1, 5, b'"value"')])
    with stage.under("the same once more"):
        home.advance(RUN, [Event("done", 1, 5, b'"value"')])
    with stage.under("the last one is done: the run has succeeded"):
        home.advance(RUN, [Event("done", 2, 6)])


def failure(stage: Stage) -> None:
    for policy in ("stop", "continue"):
        home = home_of(stage)
        two(home, policy=policy)
        home.advance(RUN, [Event("begin", added="1-2")])
        with stage.under(f"{policy}: a step has failed"):
            home.advance(RUN, [Event("failed", 1, 5, "ValueError|one")])
        with stage.under(f"{policy}: its dead letter was redriven"):
            home.advance(RUN, [Event("redriven", 1, 6)])
        with stage.under(f"{policy}: news that is older than that"):
            home.advance(RUN, [Event("failed", 1, 5, "ValueError|one")])
        home.advance(RUN, [Event("failed", 1, 7, "ValueError|one")])
        with stage.under(f"{policy}: it is started again, because its dead letter is gone"):
            home.advance(RUN, [Event("again", 1)])
        home.advance(RUN, [Event("failed", 1, 8, "ValueError|one")])
        with stage.under(f"{policy}: it is skipped"):
            home.advance(RUN, [Event("passed", 1)])
        stage.clear()


def unique(stage: Stage) -> None:
    home = home_of(stage)
    two(home, unique="k")
    home.advance(RUN, [Event("begin", added="1-2")])
    create(home, [StepRecord(1, 0, b"one")], "0other", unique="k")
    with stage.under("another run has the key"):
        home.advance("0other", [Event("begin", added="1")])
    with stage.under("the run is cancelled"):
        home.advance(RUN, [Event("cancel")])
    with stage.under("what nobody has done for a run"):
        home.left(age_ms=0)
    with stage.under("nothing is that old"):
        home.left(age_ms=1000)
    with stage.under("a step that was published has not run"):
        home.advance(RUN, [Event("dropped", 1, 5)])
    with stage.under("it continues"):
        home.advance(RUN, [Event("continue")])
    with stage.under("it has expired"):
        home.advance(RUN, [Event("expire")])


def wide(stage: Stage) -> None:
    home = home_of(stage)
    records = [StepRecord(1, 0, b"one", "2-401"), *(StepRecord(number, 1, b"x", "402") for number in range(2, 402))]
    create(home, [*records, StepRecord(402, 400, b"", "403-404"), StepRecord(403, 1, b"y"), StepRecord(404, 1, b"z")])
    with stage.under("more steps than one call changes"):
        home.advance(RUN, [Event("begin", added="1-404")])
    with stage.under("the others"):
        home.advance(RUN)


def added(stage: Stage) -> None:
    home = home_of(stage)
    two(home, next="2")
    home.advance(RUN, [Event("begin", added="1-2")])
    first = home.allocate(RUN, 2)
    home.write_steps(RUN, [StepRecord(first, 0, b"three", str(first + 1)), StepRecord(first + 1, 1, b"four")])
    with stage.under("a step is done and has added two"):
        home.advance(RUN, [Event("done", 1, 5, b"", f"{first}-{first + 1}")])


def ended(stage: Stage) -> None:
    home = home_of(stage)
    with stage.under("there are no runs"):
        home.left(age_ms=0)
    two(home)
    stage.client.set(home.keys.starts, "x")
    with stage.under("beside a key of another type"):
        stage.wire().trip([home.command(RUN, [Event("begin", added="1-2")])])


def steps(stage: Stage) -> None:
    store = stage.queue()
    notes = StepNotes(store.keys, stage.wire())
    ids = [f"w:0run00000.{number}.1" for number in range(1, 5)]
    taken = list(stage.taken(store, *(outgoing("step:a", id=each) for each in ids)))
    stage.lose(store, taken[1])
    with stage.under("one is done with a value and steps; another is no longer held"):
        stage.settle(store, StepEnd(None, "done", b'"value"', "7-9"), taken[:2])
    with stage.under("dropped"):
        stage.settle(store, StepEnd(event="dropped"), taken[2:3])
    with stage.under("a step becomes a dead letter"):
        stage.settle(store, Bury("ValueError: no"), taken[3:])
    letters = open_dead_letters(store.config, stage.wire())
    with stage.under("its dead letter is redriven"):
        letters.redrive([entry for entry in letters.find(ids[3:]) if entry])
    with stage.under("nobody has delivered the notes"):
        notes.left(age_ms=0)
    found = notes.read(ids)
    with stage.under("runs have got two notes, of which one was replaced"):
        notes.forget([found[0], found[1]._replace(number=1)])
    (again,) = store.take("host-1-me", count=1)
    with stage.under("a step is cancelled"):
        stage.settle(store, Cancel(), [again])


def deleted(stage: Stage) -> None:
    store = stage.queue()
    store.publish([outgoing("step:a", id="w:0run00000.1.1"), outgoing("step:a", id="w:0run00000.2.1")])
    with stage.under("steps are purged"):
        store.purge(limit=10)
