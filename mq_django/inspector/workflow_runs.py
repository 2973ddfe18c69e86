"""Runs of workflows for display."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.redaction import redact_forms, redact_text
from mq_django.core.step_ids import STEP_NAME, is_run_id
from mq_django.core.visible import line
from mq_django.inspector.run_reader import ListedRun, open_run_reader, open_run_readers
from mq_django.inspector.scan import Scanned

#: Runs that one call looks at, and those that one round trip reads.
MAX_LOOKED, READ = 2000, 200

#: The states of runs.
RUN_STATES = ("building", "running", "succeeded", "failed", "cancelled", "expired")
#: Those in which nothing starts.
ENDED_STATES = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run of a workflow."""

    id: str
    name: str
    #: One of RUN_STATES; another program may have written another one.
    state: str
    policy: str
    #: How often it was started or continued.
    round: int
    total: int
    done: int
    failed: int
    skipped: int
    #: Steps that are published and have not ended.
    started: int
    #: The number of the last step. Joins between steps have numbers, too.
    last: int
    #: Milliseconds since 1970; None: not yet.
    started_ms: int | None
    finished_ms: int | None
    expires_ms: int | None
    #: The name of the workflow and the unique key; "" without one. It may contain data.
    unique: str

    @property
    def share(self) -> float:
        """Return which share of the steps has ended, from 0 to 1."""
        return min(1.0, (self.done + self.failed + self.skipped) / self.total) if self.total else 0.0

    @property
    def waiting(self) -> int:
        """Return how many steps have not been started."""
        return max(0, self.total - self.done - self.failed - self.skipped - self.started)


def look_at_runs(*, state: str = "", name: str = "", after: str = "", limit: int) -> Scanned[RunView]:
    """Return up to `limit` runs, the latest first, among the next MAX_LOOKED.

    Args:
        state: only runs in this state; "" for all.
        name: only runs of workflows whose name contains this, in upper or lower case.
        after: the cursor of the call before; "" to begin with the latest.
        limit: the most runs.

    Raises:
        StoreError: Redis cannot be reached.
    """
    part = name.casefold()

    def matches(view: RunView) -> bool:
        return (not state or view.state == state) and part in view.name.casefold()

    rows: list[RunView] = []
    looked, cursor = 0, _cursor(after)
    while looked < MAX_LOOKED:
        batch = _listed(cursor)
        for one, view in _views(batch):
            if len(rows) == limit:
                return Scanned(rows, looked, _text(cursor))
            looked, cursor = looked + 1, one
            if view is not None and matches(view):
                rows.append(view)
        if len(batch) < READ:
            return Scanned(rows, looked, "")
    return Scanned(rows, looked, _text(cursor))


def _listed(after: ListedRun | None) -> list[ListedRun]:
    """Return the next runs of all homes, the latest first."""
    found = [one for reader in open_run_readers() for one in reader.listed(after, limit=READ)]
    return sorted(found, key=lambda one: (one.ms, one.id), reverse=True)[:READ]


def _views(batch: Sequence[ListedRun]) -> Iterable[tuple[ListedRun, RunView | None]]:
    """Return runs with their views; None for one that exists no more, or that another program has listed."""
    known: dict[str, RunView] = {}
    for reader in open_run_readers():
        ids = [one.id for one in batch if is_run_id(one.id) and one.id[0] == reader.keys.home]
        known |= {
            run_id: _run(run_id, fields) for run_id, fields in zip(ids, reader.fields(ids), strict=True) if fields
        }
    return [(one, known.get(one.id)) for one in batch]


def _cursor(text: str) -> ListedRun | None:
    """Return the run in a cursor; None if it is invalid."""
    ms, _, run_id = text.partition(".")
    found = whole(ms, LAST_MS)
    return ListedRun(run_id, found) if found is not None and is_run_id(run_id) else None


def _text(cursor: ListedRun | None) -> str:
    return "" if cursor is None else f"{cursor.ms}.{cursor.id}"


def count_alive() -> int:
    """Return how many runs have not ended.

    Raises:
        StoreError: Redis cannot be reached.
    """
    return sum(reader.count_alive() for reader in open_run_readers())


def run(run_id: str) -> RunView | None:
    """Return a run, or None if there is none with this id.

    Raises:
        StoreError: Redis cannot be reached.
    """
    if not is_run_id(run_id):
        return None
    (fields,) = open_run_reader(run_id).fields([run_id])
    return _run(run_id, fields) if fields else None


def failure(run_id: str) -> tuple[int, str] | None:
    """Return the number of the step that failed last, and the reason, which may contain data; None if none has failed.

    Raises:
        StoreError: Redis cannot be reached.
    """
    number, _, reason = open_run_reader(run_id).failure(run_id).partition(b" ")
    found = whole(number, 10**9)
    # The queue has noted the group of the failure: an error, and the name of the message.
    said = reason.decode(errors="backslashreplace").partition(f"|{STEP_NAME}")[0]
    return None if found is None else (found, redact_text(said))


def _run(run_id: str, fields: Mapping[str, bytes]) -> RunView:
    def text(name: str) -> str:
        return line(fields.get(name, b"").decode(errors="replace"))

    number: Callable[[str], int] = lambda name: whole(fields.get(name), 10**9) or 0  # noqa: E731
    started_ms, lasts_ms = whole(fields.get("started"), LAST_MS), whole(fields.get("lasts"), LAST_MS)
    return RunView(
        id=run_id,
        name=text("name"),
        state=text("state"),
        policy=text("policy"),
        round=number("round"),
        total=number("total"),
        done=number("done"),
        failed=number("failed"),
        skipped=number("skipped"),
        started=number("flying"),
        last=number("next"),
        started_ms=started_ms,
        finished_ms=whole(fields.get("finished"), LAST_MS),
        expires_ms=None if started_ms is None or lasts_ms is None else started_ms + lasts_ms,
        unique=redact_forms(text("unique")),
    )
