"""Move hash slots between the nodes of a private cluster: key by key, or atomically where the server has that."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mq_django.errors import ConnectionLost, NotSupported, StoreError
from tests.cluster_rig.private_node import COMMAND_TIMEOUT, PrivateNode
from tests.cluster_rig.private_nodes import SETTLE_TIMEOUT, await_agreement, description

#: Seconds until an atomic move must have ended.
ATOMIC_TIMEOUT = 30.0

#: Keys in one MIGRATE, unless told otherwise.
KEYS_AT_ONCE = 10

_DONE = frozenset({"success", "completed"})
_FAILED = frozenset({"failed", "canceled", "cancelled"})


@dataclass(frozen=True, kw_only=True)
class MoveStep:
    """A step of a move that has just been done: "importing", "migrating", "keys", or "moved"."""

    slot: int
    name: str
    keys: tuple[bytes, ...] = ()


def slot_ranges(slots: Iterable[int]) -> list[range]:
    """Return slots as ranges, in order."""
    found: list[range] = []
    for slot in sorted(set(slots)):
        if found and found[-1].stop == slot:
            found[-1] = range(found[-1].start, slot + 1)
        else:
            found.append(range(slot, slot + 1))
    return found


def moving(
    slot: int,
    source: PrivateNode,
    target: PrivateNode,
    masters: Sequence[PrivateNode],
    *,
    keys_at_once: int = KEYS_AT_ONCE,
) -> Iterator[MoveStep]:
    """Move one slot key by key, and yield after each step. Without the next step the slot stays half moved.

    After the last step all masters agree who has it, so that it can move on at once.

    Args:
        slot: the slot.
        source: the master that has it. Keys that are left there are moved.
        target: the master that gets it.
        masters: all running masters, which are told who has it.
        keys_at_once: keys in one MIGRATE, between two steps.

    Raises:
        ConnectionLost: a node does not reply, or the masters do not agree in time.
        StoreError: a node refuses.
    """
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    yield MoveStep(slot=slot, name="importing")
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    yield MoveStep(slot=slot, name="migrating")
    while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, keys_at_once):
        assert isinstance(keys, list)
        milliseconds = int(COMMAND_TIMEOUT * 1000)
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, milliseconds, "KEYS", *keys)
        yield MoveStep(slot=slot, name="keys", keys=tuple(keys))
    # The target first: until the source knows, it sends everybody there with ASK.
    target.command("CLUSTER", "SETSLOT", slot, "NODE", target.id)
    for node in (source, *(node for node in masters if node not in (source, target))):
        _tell(node, slot, target)
    await_owner(slot, target, masters)
    yield MoveStep(slot=slot, name="moved")


def await_owner(slot: int, owner: PrivateNode, masters: Sequence[PrivateNode]) -> None:
    """Wait until all masters agree who has a slot, and none of them has a newer configuration than its owner.

    Nodes send each other which slots they have, with the epoch of their configuration, and whose epoch is greater gets
    a slot that two of them claim. A node to which a slot moves increments its epoch, but only if it knows of one that
    is as great as its own. So if a slot moved back before the first move is known everywhere, its new owner could go
    on with an epoch that is less than the one with which the last owner had claimed the slot. The owner would then
    believe that late claim, and the others what they were told.

    Args:
        slot: the slot.
        owner: the master that has it.
        masters: all masters that must agree. Those that do not are told, and the owner's epoch is incremented if it
            is not the greatest.

    Raises:
        ConnectionLost: a node does not reply, or they do not agree in time.
        StoreError: a node refuses.
    """
    # The owner last: whatever claims the others have sent by then, it knows.
    asked = [*(node for node in masters if node is not owner), owner]

    def is_agreed() -> bool:
        views = {node: {view.id: view for view in node.views()} for node in asked}
        epoch = views[owner][owner.id].epoch
        strangers = [node for node in asked if not views[node][owner.id].owns(slot)]
        for node in strangers:
            _tell(node, slot, owner)
        others = [view for seen in views.values() for view in seen.values() if view.is_master and view.id != owner.id]
        is_newest = all(view.epoch < epoch for view in others)
        if not is_newest:
            # This changes nothing while the owner does not know of the other epoch yet.
            owner.command("CLUSTER", "BUMPEPOCH")
        return is_newest and not strangers and all(views[node][owner.id].epoch == epoch for node in asked)

    await_agreement(is_agreed, SETTLE_TIMEOUT, lambda: description(asked))


def _tell(node: PrivateNode, slot: int, owner: PrivateNode) -> None:
    """Tell a node who has a slot. One that has lost its last slot may be a replica by now, and knows already."""
    try:
        node.command("CLUSTER", "SETSLOT", slot, "NODE", owner.id)
    except StoreError as error:
        if "SETSLOT only with" not in str(error):
            raise


def migrates_atomically(node: PrivateNode) -> bool:
    """Return whether the server has a command that moves slots atomically.

    Raises ConnectionLost when the node does not reply.
    """
    return _command(node) is not None


def migrate(slots: Iterable[int], source: PrivateNode, target: PrivateNode) -> None:
    """Move slots atomically from one master to another, and wait until that has ended.

    Args:
        slots: slots of the source.
        source: the master that has them.
        target: the master that gets them.

    Raises:
        NotSupported: the server has no atomic moves.
        ConnectionLost: a node does not reply, or the move has failed or takes longer than 30 s.
    """
    bounds = [bound for span in slot_ranges(slots) for bound in (span.start, span.stop - 1)]
    match _command(source):
        case "MIGRATESLOTS":
            source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *bounds, "NODE", target.id)
            # The newest comes first.
            _await(source, "CLUSTER", "GETSLOTMIGRATIONS")
        case "MIGRATION":
            task = target.command("CLUSTER", "MIGRATION", "IMPORT", *bounds)
            assert isinstance(task, bytes)
            _await(target, "CLUSTER", "MIGRATION", "STATUS", "ID", task)
        case _:
            raise NotSupported("This server has no atomic slot migration: Valkey has it from 9.0, Redis from 8.4.")


def _command(node: PrivateNode) -> str | None:
    reply = node.command("CLUSTER", "HELP")
    assert isinstance(reply, list)
    words = {line.split()[0].decode() for line in reply if line.strip()}
    return next((name for name in ("MIGRATESLOTS", "MIGRATION") if name in words), None)


def _await(node: PrivateNode, *words: str | bytes) -> None:
    """Wait until the first task of a reply, a list of names and values each, has ended well."""
    deadline = time.monotonic() + ATOMIC_TIMEOUT
    while True:
        reply = node.command(*words)
        assert isinstance(reply, list)
        task = dict(zip(reply[0][::2], reply[0][1::2], strict=True)) if reply else {}
        state = bytes(task.get(b"state", b"")).decode()
        if state in _DONE:
            return
        if state in _FAILED or time.monotonic() > deadline:
            reason = bytes(task.get(b"message") or task.get(b"last_error") or b"no reason given").decode()
            raise ConnectionLost(f"The atomic move of slots did not end well: {state or 'unknown'} ({reason}).")
        time.sleep(0.01)
