"""Find a message in all queues, for the verbs `find`, `why` and `show` of the command `mq`."""

from typing import Any

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector.message_ids import Ended
from mq_django.inspector.whereabouts import FoundMessageIn, TaskEnding, Whereabouts, find_everywhere
from mq_django.management.as_dict import as_dict, moment_text
from mq_django.management.tables import table
from mq_django.management.verb import VerbResult

#: Seconds for which ready and pending messages are searched.
SECONDS = 10.0


def find_in_all(message_id: str) -> VerbResult:
    """Return where a message is in all queues.

    Raises:
        CommandError: nothing is known of it.
    """
    search = _search(message_id)
    rows = [_row(message_id, one) for one in search.found]
    found = {"found": rows, "not_searched": list(search.not_searched), "errors": dict(search.errors)}
    return VerbResult(found, table(rows), note=_left_out(search))


def queue_of(message_id: str) -> str:
    """Return the queue that a message is in.

    Raises:
        CommandError: nothing is known of it, or it is in several queues.
    """
    search = _search(message_id)
    names = list(dict.fromkeys(one.queue for one in search.found if one.place not in ("log", "result")))
    if len(names) != 1:
        places = ", ".join(f"{one.queue} ({one.place})" for one in search.found)
        raise CommandError(f"Name the queue of message {escape(message_id)}. It is in {escape(places)}.")
    return names[0]


def _search(message_id: str) -> Whereabouts:
    search = find_everywhere(message_id, seconds=SECONDS)
    if not search.found:
        left_out = _left_out(search)
        what = f"No queue has a message {escape(message_id)}"
        raise CommandError(
            f"{what} in what was searched. {left_out}"
            if left_out
            else f"{what}: it was handled, cancelled, replaced or purged, or it never existed."
        )
    return search


def _left_out(search: Whereabouts) -> str:
    """Return what was not searched, as sentences; "" if everything was."""
    sentences = []
    if search.not_searched:
        names = ", ".join(map(escape, search.not_searched))
        sentences.append(f"Not all ready and pending messages were searched in {SECONDS:.0f} s: {names}.")
    sentences += [f"{escape(queue)} cannot be read: {escape(error)}." for queue, error in search.errors.items()]
    return " ".join(sentences)


def _row(message_id: str, one: FoundMessageIn) -> dict[str, Any]:
    row = {"queue": one.queue, "place": one.place}
    match one.view:
        case Ended() as gone:
            return {**row, "id": message_id, "at": moment_text(gone.ms)}
        case TaskEnding() as task:
            return {**row, "id": message_id, "name": task.name, "status": task.status, "at": moment_text(task.ms)}
    return {**row, **as_dict(one.view)}
