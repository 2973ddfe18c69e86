"""Move selected messages, in any state in which nobody holds them, to another queue."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import get_args

from mq_django.conf import QueueConfig, get_config
from mq_django.errors import StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector.actions import Outcome, effect_of
from mq_django.inspector.dead_letters import check_target, is_at_depth, move_letters, without_handler
from mq_django.inspector.message_lists import find_message
from mq_django.inspector.readers import open_reader
from mq_django.inspector.stream_reader import one_queue
from mq_django.stores.activity import recorded
from mq_django.stores.dead_letters import NO_STEP
from mq_django.stores.message_scans import ActionableState, sources_by_name
from mq_django.stores.moving import REFUSED, MessageSource, Mover
from mq_django.transport.connections import open_transport

#: Messages of a step.
AT_ONCE = 100


@recorded("move", effect=effect_of)
def move(name: str, state: ActionableState, target: str, refs: Sequence[str]) -> Outcome:
    """Move messages to another queue.

    A message that is ready or waits keeps its id, name, data, key, headers, attempts, expiry and time of publication,
    and a delayed one its due time and its unique key. A claim of a unique key by `unique_for` ends. Those that the
    target refuses stay where they are: they are no valid messages or too long for it, or another message has the id in
    RSMQ's format, or waits with the unique key. Dead letters begin at their first attempt: see dead_letters.move().

    Each message is a dead letter of its queue until it is in the other one, with the reason `moved`. If it is
    interrupted, such a dead letter can be moved again within a week: no message is lost, and none is there twice.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        state: of the messages.
        target: the queue that gets them, or the group of a topic. It may have another format and be on another server.
        refs: the references in the views of the messages.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: messages cannot be moved there.
        StoreError: cannot reach Redis.
    """
    if state == "dead":
        return dead_letters.move(name, target, refs)
    source, into, outcome = one_queue(name), check_target(name, target), Outcome()
    transport = open_transport("inspect", source.connection)
    mover = Mover(source, transport, into)
    members = open_reader(name).members(state, list(dict.fromkeys(refs)))
    outcome.missing = len({*refs}) - sum(map(len, members.values()))
    sources: Mapping[str, MessageSource] = sources_by_name(source, transport, state)
    for named, found in members.items():
        left = iter(found)
        while (chosen := [*islice(left, AT_ONCE)]) and outcome.error is None:
            _move_found(mover, state, sources[named], chosen, into, outcome)
    outcome.without_handler = without_handler(target, mover.names)
    return outcome


@recorded("move", about="message_ids", effect=effect_of)
def move_messages(name: str, target: str, message_ids: Sequence[str]) -> Outcome:
    """Move messages in any state that nobody holds to another queue, by their ids; see move().

    Ready messages have no index: each is scanned for, if it is in no other source.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: messages cannot be moved there.
        StoreError: cannot reach Redis.
    """
    check_target(name, target)
    found: dict[tuple[str, ActionableState], list[str]] = {}
    outcome = Outcome()
    for message_id in dict.fromkeys(message_ids):
        parts = get_config().queue(name).partitions_for_id(message_id)
        view = next(((part.name, view) for part in parts if (view := find_message(part.name, message_id))), None)
        states = [state for state in get_args(ActionableState) if view is not None and view[1].state == state]
        outcome.missing += not states
        for state in states:
            assert view is not None
            found.setdefault((view[0], state), []).append(view[1].ref)
    for (part, state), refs in found.items():
        moved = move(part, state, target, refs)
        outcome.done, outcome.refused = outcome.done + moved.done, outcome.refused + moved.refused
        outcome.missing, outcome.error = outcome.missing + moved.missing, moved.error
        if outcome.error is not None:
            break
    return outcome


def _move_found(
    mover: Mover,
    state: ActionableState,
    source: MessageSource,
    members: list[bytes],
    into: QueueConfig,
    outcome: Outcome,
) -> None:
    """Move messages of a source until all are moved, or an error ends it."""
    while members and outcome.error is None:
        try:
            held = mover.hold(source, members, step=NO_STEP._replace(state=state))
        except StoreError as error:
            outcome.error = error
            return
        members = members[len(held.words) :]
        outcome.missing += sum(word in ("MISSING", "ELSEWHERE") for word in held.words)
        outcome.refused += sum(word in REFUSED for word in held.words)
        move_letters(mover, held.entries, into, outcome)
        if held.is_full and outcome.error is None:
            outcome.error = is_at_depth(into)
