"""The verbs `pause` and `resume` of the command `mq`."""

import argparse

from django.core.management.base import CommandError

from mq_django.errors import ConnectionLost
from mq_django.inspector import actions
from mq_django.inspector.actions import Switched
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.user_name import user_name
from mq_django.management.verb import Options, Verb, VerbResult


def add_pause(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pause`."""
    add_queue(parser)
    parser.add_argument("--reason", default="", help="Shown in the admin and by `mq status` until it is resumed.")


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add which queue is meant."""
    parser.add_argument("queue", nargs="?", help="A queue, or the group of a topic as topic:group.")
    parser.add_argument("--all", action="store_true", help="All queues and groups of topics.")


def pause(options: Options, _: Terminal) -> VerbResult:
    """Pause a queue, or all queues."""
    who, reason, queue = f"{user_name()}, mq", options["reason"], _queue(options)
    words = ("paused", "was already paused")
    if queue is None:
        return _all(actions.pause_all(who=who, reason=reason), words, paused=True)
    changed = actions.pause(queue, who=who, reason=reason)
    return VerbResult({"paused": True, "changed": changed}, [words[not changed]])


def resume(options: Options, _: Terminal) -> VerbResult:
    """Resume a queue, or all queues."""
    queue, words = _queue(options), ("resumed", "was not paused")
    if queue is None:
        return _all(actions.resume_all(), words, paused=False)
    changed = actions.resume(queue)
    return VerbResult({"paused": False, "changed": changed}, [words[not changed]])


def _queue(options: Options) -> str | None:
    """Return the given queue, or None for all."""
    queue: str | None = options["queue"]
    if (queue is None) != options["all"]:
        raise CommandError("Give a queue, or --all.", returncode=2)
    return queue


def _all(found: Switched, words: tuple[str, str], *, paused: bool) -> VerbResult:
    if found.errors:
        # After a lost connection it is not known whether the command ran.
        failed = "; ".join(
            f"{name} {'may not be' if isinstance(error, ConnectionLost) else 'is not'}: {error}"
            for name, error in found.errors.items()
        )
        raise CommandError(f"All other queues are {'paused' if paused else 'running'}, but {failed}")
    changes = {**dict.fromkeys(found.changed, True), **dict.fromkeys(found.unchanged, False)}
    rows = [{"queue": name, "paused": paused, "changed": changes[name]} for name in sorted(changes)]
    lines = table([{"queue": row["queue"], "state": words[not row["changed"]]} for row in rows])
    return VerbResult(rows, lines or ["No queue is configured."])


VERBS = (
    Verb("pause", "Pause a queue, or all queues.", pause, add_pause),
    Verb("resume", "Resume a paused queue, or all queues.", resume, add_queue),
)
