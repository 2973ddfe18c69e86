"""Why a message is not running: the strongest cause, which would still hold if the others were gone.

Nothing runs while a queue is paused or has no consumer, whatever is before a message. Next come busy consumers and
limits; that other messages are before it is the weakest cause, because these go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.conf import QueueConfig, get_config
from mq_django.core.breakers import Hold, hold_score
from mq_django.core.jsontext import score, score_ms, whole
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.limits import Rate
from mq_django.core.messages import Ending
from mq_django.core.redaction import is_redacted, redact_forms
from mq_django.core.texts import escape
from mq_django.inspector.key_lines import LineHead, line_hash, line_of
from mq_django.inspector.message_views import MessageView, moment_text, name_of
from mq_django.inspector.problem_sentences import (
    breaker_details,
    busy,
    date,
    duration,
    hold_details,
    number,
    pause_details,
    period,
)
from mq_django.inspector.queue_view import Blocker, Pause, QueueView, limits_of
from mq_django.inspector.queues import queue as read_queue
from mq_django.inspector.readers import open_reader
from mq_django.inspector.statistics import held_by
from mq_django.inspector.stream_reader import MAX_BEFORE
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

Kind = Literal[
    "broken",  # it is not a valid message, and will be buried or dropped
    "delayed",  # its due time is in the future
    "due",  # supervisors are about to make it ready
    "unattended",  # it is due, and no supervisor does the housekeeping of the queue
    "unhandled",  # no consumer has its handler
    "unannounced",  # other programs handle the queue, and none announces its name
    "on hold",  # it is held by name or key, or by a breaker
    "released",  # its hold has just ended
    "to be parked",  # it is ready, and held
    "parked",  # the concurrency limit of its key is reached
    "throttled",  # the rate limit of its key is reached
    "ordered",  # a message of its key is before it, and has not ended
    "turn",  # other keys have their turn
    "running",  # a consumer is handling it
    "held",  # a consumer holds it, and may run it: not all consumers announce what they run
    "fetched",  # a consumer holds it, and does not run it yet
    "abandoned",  # its consumer is dead
    "paused",
    "unconsumed",  # the queue has no running consumer
    "busy",  # all slots of the queue's consumers are busy
    "behind",  # other messages are before it
    "full",  # the concurrency limit of the queue is reached
    "rate",  # the rate limit of the queue is reached
    "next",  # it is ready
    "elsewhere",  # other programs handle the queue, and none that does is known
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a message is not running, or that it is."""

    kind: Kind
    #: Messages before it, of a ready one. "parked", "throttled", "ordered" and "turn": parked ones of its key.
    count: int = 0
    #: `count` is a lower bound.
    at_least: bool = False
    #: "delayed": until it is due; "throttled" and "rate": until the next check; "running": for how long;
    #: "abandoned": since the last heartbeat.
    ms: int = 0
    #: Set for "busy".
    blocker: Blocker | None = None
    #: Set for "running", "held", "fetched" and "abandoned".
    consumer: str = ""
    #: Set for "parked", "throttled", "ordered" and "turn"; "" if it has none.
    key: str = ""
    #: Set for "ordered": the message that its key waits for, by the clock of `now_ms`.
    head: LineHead | None = None
    now_ms: int = 0
    #: Set for "parked", "throttled", "full" and "rate": the limit, of concurrency or per `window`.
    most: int = 0
    window: timedelta = timedelta(0)
    #: Set for "paused".
    pause: Pause | None = None
    #: Set for "on hold" and "to be parked", by the clock of `now_ms`.
    hold: Hold | None = None


def cause_of(view: MessageView, queue: QueueView) -> Cause:
    """Return why a message that is ready, pending or waits is not running, or which consumer holds it.

    Of a pending one, and of one that waits and is not parked, this reads nothing.
    """
    if view.consumer:
        return _of_holder(view, queue)
    if view.problem:
        return Cause(kind="broken")
    if view.state == "unhandled":
        return Cause(kind="unannounced" if queue.external else "unhandled")
    if view.state == "parked":
        return _of_hold(view, queue) or _of_queue(queue) or _of_parked(view, queue)
    if view.state == "delayed":
        left = (view.at_ms or 0) - queue.now_ms
        if left > 0:
            return Cause(kind="delayed", ms=left)
        return _of_queue(queue) or Cause(kind="due" if not queue.external or queue.housekeepers else "unattended")
    return _to_be_parked(view, queue) or _of_queue(queue) or _of_ready(view, queue)


def _of_hold(view: MessageView, queue: QueueView) -> Cause | None:
    """Return what holds a parked message; None if it is in the line of its key."""
    config = get_config().queue(queue.name)
    command: Command = ("ZSCORE", config.keys.parked, name_of(view.ref))
    found = score(open_transport("inspect", config.connection).ask(command))
    if found is None or found >= 0:
        return None
    for hold in queue.holds:
        if hold_score(hold.subject) == found and hold.holds(queue.now_ms):
            return Cause(kind="on hold", hold=hold, now_ms=queue.now_ms)
    return Cause(kind="released")


def _to_be_parked(view: MessageView, queue: QueueView) -> Cause | None:
    for hold in queue.holds:
        is_of = {"queue": True, "name": redact_forms(hold.value) == view.name, "key": hold.value == view.key}[hold.kind]
        if is_of and hold.holds(queue.now_ms):
            return Cause(kind="to be parked", hold=hold, now_ms=queue.now_ms)
    return None


def _of_ready(view: MessageView, queue: QueueView) -> Cause:
    count = open_reader(queue.name).before(view.ref)
    weakest: Kind = "behind" if count else "next"
    cause = _of_slots(queue) or Cause(kind=weakest)
    return replace(cause, count=count, at_least=count >= MAX_BEFORE)


def _of_parked(view: MessageView, queue: QueueView) -> Cause:
    cause = _of_key(view, queue)
    # The turn of its key comes, or has come, and slots are not free.
    return (_of_slots(queue) if cause.kind in ("turn", "due") else None) or cause


def cause_in(queue: QueueView) -> Cause | None:
    """Return what all messages of a queue wait for, as far as its view says; None if any may run."""
    return _of_queue(queue) or _of_consumers(queue)


def _of_slots(queue: QueueView) -> Cause | None:
    """Return what no message of the queue can pass now: nobody takes it, all slots are busy, a limit is reached."""
    return _of_consumers(queue) or _of_limits(queue)


def _of_consumers(queue: QueueView) -> Cause | None:
    if queue.external and not queue.alive:
        return Cause(kind="elsewhere")
    return Cause(kind="busy", blocker=queue.blocker) if queue.blocker else None


def _of_holder(view: MessageView, queue: QueueView) -> Cause:
    """Return why a pending message is not running, or that it is, by the consumer that holds it."""
    state, ms = held_by(view, queue)
    if state in ("running", "abandoned"):
        return Cause(kind=state, consumer=view.consumer, ms=ms)
    if queue.blocker and any(consumer.full for consumer in queue.consumers if consumer.id == view.consumer):
        return Cause(kind="busy", consumer=view.consumer, blocker=queue.blocker)
    return Cause(kind=state, consumer=view.consumer)


def _of_queue(queue: QueueView) -> Cause | None:
    if queue.paused:
        return Cause(kind="paused", pause=queue.pause)
    return None if queue.is_served else Cause(kind="unconsumed")


def _of_key(view: MessageView, queue: QueueView) -> Cause:
    """Return which limit of its key, which message of it or which turn a parked message waits for."""
    config, key = get_config().queue(queue.name), view.key or ""
    keys, score = config.keys, line_hash(view.key)
    commands: list[Command] = [
        ("ZRANK", keys.parked, name_of(view.ref)),
        ("ZCOUNT", keys.parked, "-inf", f"({score}"),
        ("ZCOUNT", keys.permits, score, score),
        ("ZSCORE", keys.next_checks, score),
        ("ZSCORE", keys.tags, score),
        scripts.command("clock_read", keys=[keys.parked], args=[]),
    ]
    replies = open_transport("inspect", config.connection).pipeline(commands)
    rank, first_rank, permits, next_check, tag, now_us = (reply_or_raise(reply) for reply in replies)
    before, most, rate = max(0, (rank or 0) - first_rank), limits_of(queue).key_concurrency, limits_of(queue).key_rate
    if config.limits.ordered and permits:
        line = line_of(queue.name, score, view=queue)
        if line.blocking is not None:
            return Cause(kind="ordered", key=key, count=before, head=line.blocking, now_ms=line.now_ms)
    elif most is not None and permits >= most:
        return Cause(kind="parked", key=key, count=before, most=most)
    left = max(0, (score_ms(next_check) or 0) - now_us // 1000)
    if config.limits.fair is not None and (tag is not None or rate is None or not left):
        return Cause(kind="turn", key=key, count=before)
    if rate is not None:
        return Cause(kind="throttled", key=key, count=before, ms=left, most=rate.count, window=rate.window)
    # A permit is free, or the limit was removed.
    return Cause(kind="ordered" if config.limits.ordered and before else "due", key=key, count=before)


def _of_limits(queue: QueueView) -> Cause | None:
    config = get_config().queue(queue.name)
    most, rate = limits_of(queue).concurrency, limits_of(queue).rate
    if most is not None and queue.pending >= most:
        return Cause(kind="full", most=most)
    if rate is not None and (left := _until_free(config, rate)):
        return Cause(kind="rate", most=rate.count, window=rate.window, ms=left)
    return None


def _until_free(config: QueueConfig, rate: Rate) -> int:
    """Return the milliseconds until the rate of a queue allows another delivery; 0: now."""
    transport = open_transport("inspect", config.connection)
    clock = scripts.command("clock_read", keys=[config.keys.limits], args=[])
    log, now_us = map(reply_or_raise, transport.pipeline([("HGET", config.keys.limits, "r"), clock]))
    now = int(now_us)
    grants = [word.partition(b":") for word in (log or b"").split()]
    counted = [(whole(at) or 0, whole(count) or 0) for at, _, count in grants]
    used = [(at, count) for at, count in counted if at >= now - rate.micros]
    if sum(count for _, count in used) < rate.count:
        return 0
    return max(1, (used[0][0] + rate.micros + 1 - now) // 1000)


# Why a message is dead, or is not running, as sentences in the current language.


def reason(word: str) -> str:
    """Return why a message is dead."""
    known = {
        "attempts": _("out of attempts"),
        "error": _("given up by its handler"),
        "undecodable": _("could not be decoded"),
        "crashed": _("its process died"),
        "expired": _("expired"),
        "uncertain": _("may have been handled before"),
        "moved": _("on its way to another queue"),
    }
    return known.get(word, word)


def why_not_running(queue: str, view: MessageView) -> str:
    """Return why a message is not running, which consumer runs it, or what became of it, as a sentence.

    Args:
        queue: the queue that has it.
        view: the message, as a list or find_message() returns it. Its key is in some sentences.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if view.state in ("dead", "handled"):
        return ending_of(view)
    if view.state in ("ready", "parked") and is_redacted(view.key):
        # Its line and what holds it are found by the real key.
        view = open_reader(queue).get(view.state, view.ref) or view
    return why(cause_of(view, read_queue(queue)), name=view.name, can_see_data=True)


def ending_of(view: MessageView) -> str:
    """Return what became of a message that is dead or was handled, as a sentence."""
    if view.ending is not None:
        sentences: Mapping[Ending, str] = {
            "handled": _("It was handled at %(time)s."),
            "expired": _("It was discarded at %(time)s, because it had expired."),
            "buried": _("It became a dead letter at %(time)s, and was deleted or redriven since."),
            "cancelled": _("It was cancelled at %(time)s, when a consumer had it."),
        }
        return sentences[view.ending] % {"time": moment_text(view.at_ms) or _("an unknown time")}
    said = _("It is a dead letter: %(reason)s.") % {"reason": escape(reason(view.reason))}
    error = _("Error: %(error)s") % {"error": escape(view.error)}
    return f"{said} {error}" if view.error else said


def why(cause: Cause, *, name: str, can_see_data: bool) -> str:
    """Return why a message is not running. Shows keys only to users who may see data."""
    if cause.blocker is not None:
        return _why_busy(cause, cause.blocker)
    if cause.hold is not None:
        return _why_held(cause, cause.hold)
    if cause.head is not None:
        return _with_line(cause, _("It waits for %(message)s") % {"message": head_words(cause.head, cause.now_ms)})
    sentences = {
        "broken": _("This entry is not a valid message. A consumer moves it to the dead letters, or drops it."),
        "delayed": _("Delayed: due in %(time)s."),
        "released": _("What held it has ended: it is about to be ready."),
        "due": _("Due: becomes ready at any moment."),
        "unattended": _("Due. No runconsumer does the housekeeping of this queue, so it does not become ready."),
        "unannounced": _("Set aside. No running consumer announces that it handles “%(name)s”."),
        "elsewhere": _("Other programs handle this queue, and none of them is known to run."),
        "unhandled": _(
            "No consumer has a handler for “%(name)s”. Its module must be in an installed app, or in MODULES."
        ),
        "running": _("Running on consumer %(consumer)s for %(time)s."),
        "held": _("Held by consumer %(consumer)s."),
        "fetched": _("Held by consumer %(consumer)s. As of its last heartbeat, it has not started."),
        "abandoned": _(
            "Consumer %(consumer)s holds it and is gone: no heartbeat for %(time)s. Another consumer takes the "
            "message after the visibility timeout."
        ),
        "paused": " ".join([_("The queue is paused."), pause_details(cause.pause)]).rstrip(),
        "parked": _("The limit for key “%(key)s” is reached: %(most)s at once."),
        "throttled": _(
            "The limit for key “%(key)s” is reached: %(most)s in %(window)s; the next check is in %(time)s."
        ),
        "ordered": _("Another message of its key has not ended."),
        "turn": _("It waits for the turn of its key."),
        "full": _("The limit of the queue is reached: %(most)s at once."),
        "rate": _("The limit of the queue is reached: %(most)s in %(window)s; the next may start in %(time)s."),
        "unconsumed": _("No consumer of this queue is running. Is runconsumer started?"),
        "next": _("Ready: the next free thread will take it."),
        "behind": "",
    }
    said = sentences[cause.kind] % {
        "time": duration(cause.ms),
        "key": escape(redact_forms(cause.key)) if can_see_data else "…",
        "most": number(cause.most),
        "window": period(cause.window),
        "count": number(cause.count),
        "name": escape(name),
        "consumer": escape(cause.consumer),
    }
    if cause.kind in ("parked", "throttled", "turn", "ordered"):
        return _with_line(cause, said)
    return f"{said} {_before(cause)}".strip() if cause.count else said


def head_words(head: LineHead, now_ms: int) -> str:
    """Return which message the others of the same key wait for, and its state, as the end of a sentence."""
    sentences = {
        "running": _("message %(id)s of the same key, which has been running on consumer %(consumer)s for %(time)s."),
        "held": _("message %(id)s of the same key, which consumer %(consumer)s holds."),
        "fetched": _(
            "message %(id)s of the same key, which consumer %(consumer)s holds. As of its last heartbeat, it has not "
            "started."
        ),
        "abandoned": _(
            "message %(id)s of the same key, which consumer %(consumer)s holds. That consumer is gone; another one "
            "takes the message after the visibility timeout."
        ),
        "ready": _("message %(id)s of the same key, which is ready."),
        "delayed": _("message %(id)s of the same key, which is tried again in %(time)s, as attempt %(attempt)s."),
        "on hold": _("message %(id)s of the same key, which is on hold."),
        "unhandled": _("message %(id)s of the same key: no consumer has a handler for its name, “%(name)s”."),
        "dead": _("message %(id)s of the same key, which is a dead letter and holds the key."),
        "gone": _("message %(id)s of the same key, which no longer exists. The next check lets the key go on."),
    }
    ms = (head.due_ms or now_ms) - now_ms if head.state == "delayed" else now_ms - (head.since_ms or now_ms)
    return sentences[head.state] % {
        "id": "…" if head.id.startswith(UNIQUE_PREFIX) else escape(head.id),
        "consumer": escape(head.consumer),
        "name": escape(head.name),
        "attempt": number(head.attempt),
        "time": duration(max(0, ms)),
    }


def _why_held(cause: Cause, hold: Hold) -> str:
    if hold.by_breaker:
        details = {"time": date(hold.since_ms or cause.now_ms), "why": breaker_details(hold, cause.now_ms)}
        said = [_("It waits for its partner since %(time)s: %(why)s") % details]
    else:
        held = _("Messages of its name are held.") if hold.kind == "name" else _("Messages of its key are held.")
        said = [held, hold_details(hold)]
    if cause.kind == "to be parked":
        said.insert(1, _("It is ready, and will be parked until then."))
    return " ".join(filter(None, said))


def _with_line(cause: Cause, said: str) -> str:
    """Return a sentence, with how many messages of the same key are before it."""
    if not cause.count:
        return said
    before = ngettext(
        "%(count)s message of its key is before it.",
        "%(count)s messages of its key are before it.",
        cause.count,
    )
    return f"{said} {before % {'count': number(cause.count)}}"


def _before(cause: Cause) -> str:
    if cause.at_least:
        words = ngettext(
            "At least %(count)s message is before it.", "At least %(count)s messages are before it.", cause.count
        )
        return words % {"count": number(cause.count)}
    words = ngettext("%(count)s message is before it.", "%(count)s messages are before it.", cause.count)
    return words % {"count": number(cause.count)}


def _why_busy(cause: Cause, blocker: Blocker) -> str:
    held = _("Consumer %(consumer)s holds it and has not started it.") % {"consumer": escape(cause.consumer)}
    parts = [held if cause.consumer else "", busy(blocker, queue=""), _before(cause) if cause.count else ""]
    return " ".join(filter(None, parts))
