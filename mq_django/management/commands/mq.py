"""Inspect and manage queues from a terminal."""

import argparse
import json
import time
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from mq_django import inspector
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token
from mq_django.core.jsontext import loads
from mq_django.core.visible import escape
from mq_django.errors import DecodeError, MQError, UnknownQueue
from mq_django.inspector import actions, dead_letters, entries, jobs, messages
from mq_django.inspector.actions import Outcome
from mq_django.inspector.message_views import Room
from mq_django.inspector.queues import require_queue
from mq_django.management import (
    consumer_verbs,
    doctor_verb,
    health_verb,
    pause_verbs,
    schedule_verbs,
    status_verb,
    topic_verbs,
    whereabouts,
)
from mq_django.management.argument_types import page_size, whole
from mq_django.management.as_dict import as_dict
from mq_django.management.tables import away_text, table
from mq_django.management.user_name import user_name
from mq_django.producers import queues
from mq_django.stores.background_jobs import BackgroundJobs, MessageJobs

PLACES = ("ready", "delayed", "unhandled", "parked", "dead")

#: Places of waiting messages, by their names in `peek`.
ROOMS: dict[str, Room] = {"delayed": "delayed", "unhandled": "unhandled", "parked": "parked"}

KINDS_OF_JOBS: dict[jobs.Kind, type[BackgroundJobs]] = {"dead": BackgroundJobs, "messages": MessageJobs}

#: Seconds between two progress lines of a long job.
PROGRESS = 2.0

VERBS = (
    *("status", "health", "peek", "find", "publish", "cancel", "redrive", "pause", "resume", "purge"),
    *("consumers", "schedules", "doctor"),
    *("topics", "log", "seek", "unsubscribe", "replay"),
)


class Command(BaseCommand):
    """`manage.py mq VERB`."""

    help = "Inspect and manage queues."

    def add_arguments(self, parser: CommandParser) -> None:
        """See BaseCommand.add_arguments()."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        verbs = parser.add_subparsers(dest="verb", metavar="|".join(VERBS))

        status = self._verb(verbs, "status", "Show the number of messages by queue.")
        status_verb.add_options(status)
        health = self._verb(verbs, "health", "Tell whether a runconsumer of this machine is ready, for exec probes.")
        health_verb.add_options(health)

        peek = self._verb(verbs, "peek", "Show the first messages, with secrets replaced.", queue=True)
        peek.add_argument(
            "place", choices=["ready", "delayed", "unhandled", "parked", "dead"], nargs="?", default="ready"
        )
        peek.add_argument("--limit", type=page_size, default=10, help="Default: 10. At most 500.")

        find = self._verb(verbs, "find", "Tell where a message is, or what became of it.", queue=True)
        find.add_argument("id", help="A message id, or u: and the unique key of a waiting message.")

        publish = self._verb(verbs, "publish", "Publish a message.", queue=True)
        publish.add_argument("name")
        publish.add_argument("data", nargs="?", default="null", help="JSON. Default: null.")
        publish.add_argument("--delay", type=float, help="Seconds.")
        publish.add_argument("--key")
        publish.add_argument("--unique", help="With --delay: replace a waiting message with the same unique key.")

        cancel = self._verb(verbs, "cancel", "Cancel waiting messages.", queue=True)
        cancel.add_argument("ids", nargs="+", metavar="id", help="A message id, or u: and a unique key.")

        redrive = self._verb(verbs, "redrive", "Put dead letters back into their queue.", queue=True)
        redrive.add_argument("ids", nargs="*", metavar="id")
        redrive.add_argument("--all", action="store_true", help="Redrive all current dead letters.")
        redrive.add_argument("--name", help="With --all: only those whose name contains this text.")
        redrive.add_argument("--error", help="With --all: only those whose error contains this text.")
        redrive.add_argument("--key", help="With --all: only those with this key.")
        redrive.add_argument("--rate", type=whole, help="With --all: limit in messages per second.")
        redrive.add_argument(
            "--background", action="store_true", help="With --all: run as a background job of the consumers."
        )

        self._add_purge(verbs)
        for module in (pause_verbs, consumer_verbs, doctor_verb):
            module.add_verbs(lambda name, what: self._verb(verbs, name, what))
        scheduling = self._verb(verbs, "schedules", "Show schedules; create, change, pause and delete them.")
        schedule_verbs.add_verbs(scheduling, self._verb)
        topic_verbs.add_verbs(lambda name, what: self._verb(verbs, name, what))

    def _add_purge(self, verbs: Any) -> None:
        purge = self._verb(verbs, "purge", "Delete messages.", queue=True)
        purge.add_argument("place", choices=PLACES)
        purge.add_argument("--yes", action="store_true", help="Confirm without prompting.")
        purge.add_argument("--name", help="Only messages whose name contains this text.")
        purge.add_argument("--key", help="Only messages with this key.")
        purge.add_argument("--error", help="Only dead letters whose error contains this text.")
        purge.add_argument("--rate", type=whole, help="Limit in messages per second.")
        purge.add_argument("--background", action="store_true", help="Run as a background job of the consumers.")

    def _verb(self, verbs: Any, name: str, what: str, *, queue: bool = False) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=what)
        # Without defaults, which would replace what was given before the verb.
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="Print JSON.")
        for option in ("--settings", "--pythonpath", "-v"):
            parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        for option in ("--traceback", "--no-color", "--force-color"):
            parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        if queue:
            parser.add_argument("queue")
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        """See BaseCommand.handle()."""
        try:
            for queue in (options.get("queue"), *(options.get("queues") or ())):
                if queue is not None:
                    require_queue(queue)
            getattr(self, f"_{options['verb'] or 'status'}")(options)
        except MQError as error:
            # Of a check, 1 means that there are problems.
            is_argument = isinstance(error, (ValueError, TypeError, *([UnknownQueue] if options.get("check") else [])))
            raise CommandError(str(error), returncode=2 if is_argument else 1) from error

    def _status(self, options: dict[str, Any]) -> None:
        if not options.get("check"):
            self._print_all(options, *status_verb.status(options))
            return
        found, lines = status_verb.check(options)
        self._print(options, found, lines)
        if found:
            raise SystemExit(1)

    def _health(self, options: dict[str, Any]) -> None:
        found, lines = health_verb.health(options)
        self._print(options, found, lines)
        if not found["healthy"]:
            raise SystemExit(1)

    def _peek(self, options: dict[str, Any]) -> None:
        found = list(map(as_dict, _peeked(options["queue"], options["place"], options["limit"])))
        self._print(options, found, table(found) or ["No messages."])

    def _find(self, options: dict[str, Any]) -> None:
        found, lines = whereabouts.find(options["queue"], options["id"])
        self._print(options, found, lines)

    def _publish(self, options: dict[str, Any]) -> None:
        try:
            data = loads(options["data"].encode())
        except DecodeError as error:
            raise CommandError(f"The data is {error}", returncode=2) from error
        message_id = queues[options["queue"]].publish(
            options["name"], data, delay=options["delay"], key=options["key"], unique=options["unique"]
        )
        self._print(options, {"id": message_id}, [message_id])

    def _cancel(self, options: dict[str, Any]) -> None:
        members = [name.encode(errors="surrogateescape") for name in options["ids"]]
        self._report(options, actions.cancel(options["queue"], members), "cancelled")

    def _redrive(self, options: dict[str, Any]) -> None:
        queue, ids = options["queue"], options["ids"]
        if bool(ids) == options["all"]:
            raise CommandError("Give the ids of messages, or --all.", returncode=2)
        given = _given(options)
        if (given or options["background"]) and not options["all"]:
            raise CommandError("--name, --error, --key, --rate and --background need --all.", returncode=2)
        if options["all"]:
            rate = given.pop("rate", 0)
            self._job(options, "redrive", Filter(**given), rate=rate, background=options["background"])
            return
        self._report(options, dead_letters.redrive_messages(queue, ids), "redriven")

    def _job(
        self,
        options: dict[str, Any],
        what: jobs.What,
        criteria: Filter = NOTHING,
        *,
        rate: int = 0,
        background: bool = False,
    ) -> None:
        """Run a job: the admin shows it, and consumers continue it if this process is killed."""
        queue, done, who = options["queue"], "redriven" if what == "redrive" else "deleted", f"{user_name()}, mq"
        place = options.get("place", "dead")
        if place == "dead":
            begun = jobs.begin(queue, what, who=who, criteria=criteria, rate=rate)
        else:
            begun = jobs.begin_deleting(queue, place, who=who, criteria=criteria, rate=rate)
        if begun.word == "busy":
            others = "dead letters" if place == "dead" else "messages"
            raise CommandError(f"Another job is running on the {others} of this queue.")
        if begun.word == "nothing":
            self._report(options, Outcome(), done)
        elif background:
            named = f"{begun.total} {'dead letters' if place == 'dead' else f'{place} messages'}"
            which = named if criteria == NOTHING else f"those of {named} that match"
            self._print(options, {"begun": True, "total": begun.total}, [f"started, {which}"])
        else:
            self._work(options, begun.total, done, "dead" if place == "dead" else "messages")

    def _work(self, options: dict[str, Any], total: int, done: str, kind: jobs.Kind) -> None:
        queue, worker = options["queue"], f"mq-{token()}"
        reported = time.monotonic()
        try:
            while (found := jobs.look(queue, kind)) is not None and found.state == "running":
                time.sleep(min(1.0, work_here(queue, worker, KINDS_OF_JOBS[kind])))
                if time.monotonic() - reported > PROGRESS:
                    reported = time.monotonic()
                    self.stderr.write(f"{found.done} {done}, {found.looked} of {total} scanned")
        except KeyboardInterrupt:
            jobs.cancel(queue, kind)
            self.stderr.write("cancelled")
        found = jobs.look(queue, kind)
        if found is not None:
            self._report(options, Outcome(done=found.done, missing=found.missing, refused=found.refused), done)

    def _pause(self, options: dict[str, Any]) -> None:
        self._print(options, *pause_verbs.pause(options))

    def _resume(self, options: dict[str, Any]) -> None:
        self._print(options, *pause_verbs.resume(options))

    def _purge(self, options: dict[str, Any]) -> None:
        queue, place = options["queue"], options["place"]
        view = inspector.queue(queue)
        count = view.own(place)
        given, background = _given(options), options["background"]
        if not options["yes"]:
            filters = " and ".join(f"--{name} {given[name]}" for name in given if name != "rate")
            which = f"those of the {count} {place} messages that match {filters}" if filters else f"{count} messages"
            raise CommandError(f"This deletes {escape(which)}. Confirm with --yes.", returncode=2)
        if place == "dead" or given or background:
            rate = given.pop("rate", 0)
            self._job(options, "delete", Filter(**given), rate=rate, background=background)
            return
        outcome = actions.purge(queue, place, at_most=count, seconds=float("inf"))
        self._report(options, outcome, "deleted")

    def _consumers(self, options: dict[str, Any]) -> None:
        self._print_all(options, *consumer_verbs.consumers(options))

    def _doctor(self, options: dict[str, Any]) -> None:
        doctor_verb.doctor(options, self)

    def _schedules(self, options: dict[str, Any]) -> None:
        self._print_all(options, *schedule_verbs.run(options))

    def _topics(self, options: dict[str, Any]) -> None:
        self._print_all(options, *topic_verbs.show_topics(options))

    def _log(self, options: dict[str, Any]) -> None:
        self._print(options, *topic_verbs.log(options))

    def _seek(self, options: dict[str, Any]) -> None:
        self._print(options, *topic_verbs.seek(options))

    def _unsubscribe(self, options: dict[str, Any]) -> None:
        self._print(options, *topic_verbs.unsubscribe(options))

    def _replay(self, options: dict[str, Any]) -> None:
        self._print(options, *topic_verbs.replay(options))

    def _report(self, options: dict[str, Any], outcome: Outcome, done: str) -> None:
        counts = {done: outcome.done, "missing": outcome.missing, "refused": outcome.refused}
        self._print(
            options, counts, [", ".join(f"{count} {word}" for word, count in counts.items() if count or word == done)]
        )
        if outcome.error is not None:
            raise CommandError(str(outcome.error)) from outcome.error
        if outcome.missing and options.get("ids"):
            raise CommandError(f"{outcome.missing} of {len(options['ids'])} ids were not found.")

    def _print_all(self, options: dict[str, Any], found: Any, lines: Iterable[str]) -> None:
        """Print the rows of all queues or topics; it is an error if some of them cannot be read."""
        self._print(options, found, lines)
        rows = found if isinstance(found, list) else []
        if away := away_text({row.get("queue") or row["topic"]: row["error"] for row in rows if "error" in row}):
            raise CommandError(away)

    def _print(self, options: dict[str, Any], found: Any, lines: Iterable[str]) -> None:
        if options["json"]:
            lines = [json.dumps(found, ensure_ascii=True)]
        for line in lines:
            self.stdout.write(line)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the filter and the rate. An empty value, as of an unset shell variable, would select everything."""
    given = {option: options[option] for option in ("name", "error", "key", "rate") if options[option] is not None}
    for option, value in given.items():
        if not value:
            raise CommandError(f"--{option} is {value!r}: omit it, or give it a value.", returncode=2)
    return given


def _peeked(queue: str, place: str, limit: int) -> Iterable[Any]:
    if place == "dead":
        return dead_letters.page(queue, limit=limit).letters
    if place == "ready":
        return [view.message for view in entries.ready(queue, NOTHING, limit=limit).rows]
    return messages.waiting(queue, ROOMS[place], start=0, limit=limit).waiting
