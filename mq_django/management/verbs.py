"""The verbs of the command `mq`, as a table: their names, arguments, and the functions that do them.

`help` is here, too: the pages of the documentation, which the package brings.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_args

from django.core.management.base import CommandError

from mq_django.core.clock import MAX_DELAY
from mq_django.core.limits import LIMITS
from mq_django.core.project import Thresholds
from mq_django.core.texts import escape
from mq_django.inspector.doctor import report
from mq_django.inspector.doctor.findings import LEVELS
from mq_django.inspector.holds import LONGEST_PROBE, MOST
from mq_django.inspector.jobs import ActionableState
from mq_django.inspector.problem_list import KINDS
from mq_django.management import (
    capacity_verbs,
    job_verbs,
    message_verbs,
    outbox_verbs,
    process_verbs,
    queue_verbs,
    schedule_verbs,
    topic_verbs,
    workflow_verbs,
)
from mq_django.management.terminal import Heading, Options, Terminal, VerbResult
from mq_django.management.verb_types import (
    Actions,
    Argument,
    Verb,
    address,
    arg,
    count,
    cursor,
    duration,
    flag,
    page_size,
    period,
    row,
    span,
    time_ms,
    verb,
    whole,
)
from mq_django.stores.activity import VERBS as RECORDED
from mq_django.stores.activity import Source

_HERE = Path(__file__).parent.parent
#: In a wheel the pages are inside the package, as setup.py puts them. In the repository they are beside it.
FOLDERS = (_HERE / "pages", _HERE.parent / "docs")

_HEADING = re.compile(r"(#+) (.+)")
_FENCE = "```"


class Section(NamedTuple):
    """A heading of a page with what is below it, up to the next heading of its level."""

    page: str
    title: str
    lines: list[str]

    @property
    def anchor(self) -> str:
        """Return what a link to it ends with, as renderers of Markdown make it."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


def show(options: Options, _: Terminal) -> VerbResult:
    """Show a page of the documentation, or the section about a code of the doctor or of `check`.

    Raises:
        CommandError: no page and no section has this name.
    """
    found = _sections()
    if options["topic"] is None:
        pages = {section.page: section.title for section in reversed(found)}
        width = max(map(len, pages), default=0)
        lines = [f"  {page:{width}}  {pages[page]}" for page in sorted(pages)]
        lines = [Heading("Pages: manage.py mq help PAGE, PAGE#SECTION, or a code such as D102"), *lines]
        return VerbResult([{"page": page, "title": title} for page, title in sorted(pages.items())], lines)
    name = str(options["topic"]).strip()
    section = _named(name.removeprefix("docs/").replace(".md", ""), found)
    if section is None:
        close = get_close_matches(name.lower(), {each.page for each in found} | {each.title.lower() for each in found})
        more = f" Did you mean {' or '.join(close)}?" if close else " Without a name, this lists the pages."
        raise CommandError(f"The documentation has nothing named {escape(name)}.{more}")
    return VerbResult({"page": section.page, "title": section.title, "text": "\n".join(section.lines)}, section.lines)


def _named(name: str, sections: list[Section]) -> Section | None:
    """Return the page, the section of a page as in a link, or the section whose title is a name or a code."""
    page, _, anchor = name.partition("#")
    names = {name.lower(), f"mq_django.{name}".lower()}
    for section in sections:
        if section.page == page and (not anchor or section.anchor == anchor.lower()):
            return section
    return next((section for section in sections if section.title.strip("`").lower() in names), None)


def _sections() -> list[Section]:
    """Return the sections of all pages, each page beginning with that of its title.

    Raises:
        CommandError: the pages are not installed.
    """
    folder = next(filter(Path.is_dir, FOLDERS), None)
    if folder is None:
        raise CommandError("The pages of the documentation are not installed.")
    pages = {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.md"))}
    return [section for page, file in pages.items() for section in _sections_of(page, file)]


def _sections_of(page: str, file: Path) -> Iterator[Section]:
    lines = file.read_text(encoding="utf-8").splitlines()
    levels: dict[int, tuple[int, str]] = {}
    in_box = False
    for number, line in enumerate(lines):
        in_box ^= line.lstrip().startswith(_FENCE)
        if not in_box and (heading := _HEADING.fullmatch(line)):
            levels[number] = len(heading[1]), heading[2]
    for start, (level, title) in levels.items():
        end = next((at for at, (other, _) in levels.items() if at > start and other <= level), len(lines))
        yield Section(page, title, lines[start:end])


# What several verbs have.

QUEUE = arg("queue", "A queue, or the group of a topic as topic:group.")
ANY = arg("queue", "A queue, or the group of a topic as topic:group.", nargs="?")
ALL = flag("--all", "All queues and groups of topics.")
YES = flag("--yes", "Confirm without prompting.")
AFTER = arg("--after", "Continue after the last message of a list.", type=cursor)
LIMIT = arg("--limit", "Default: 10. At most 500.", type=page_size, default=10)
STATE = "Which messages. Default: {}."
GROUP = arg("group", "A group of a topic.", metavar="topic:group")
REPEAT = flag("--repeat", "Let the effects of subscribers with @exactly_once happen again, once.")
TIME = "a time such as 2026-11-01T06:00Z, or how long ago, such as 2h"
POSITION = "beginning, end, the id of an entry, or a time such as 2026-11-01T06:00Z, by default in Django's TIME_ZONE."
RANGE = (arg("--since", POSITION, default="beginning"), arg("--until", POSITION, default="end"))
WHOM = "The id of a consumer or a supervisor."
CODES: dict[str, Any] = {"action": "append", "type": str.upper, "choices": sorted(report.CODES), "metavar": "CODE"}


def selecting(needs: str = "") -> tuple[Argument, ...]:
    """Return the options that select messages."""
    only = "only" if needs else "Only"
    return (
        arg("--name", f"{only} messages whose name contains this text.", needs=needs),
        arg("--key", f"{only} messages with this key.", needs=needs),
        arg(
            "--with-data",
            f"{only} messages whose data contain this text, or have this value, such as customer=C-4242.",
            needs=needs,
            metavar="TEXT",
        ),
        arg("--since", f"{only} messages published since {TIME}.", needs=needs, type=time_ms, metavar="TIME"),
        arg("--until", f"{only} messages published before a time.", needs=needs, type=time_ms, metavar="TIME"),
        arg("--error", f"{only} dead letters whose error contains this text.", needs=needs),
        arg(
            "--group",
            f"{only} dead letters of this group of `mq redrive QUEUE --errors`: the name of the message, and the class "
            "of its error. Either may be empty.",
            needs=needs,
            nargs=2,
            metavar=("NAME", "ERROR"),
        ),
    )


def working(needs: str) -> tuple[Argument, ...]:
    """Return the options of an action on all messages that match."""
    return (
        flag("--dry-run", "show only how many messages match, and the first of them.", needs=needs),
        arg("--rate", "limit in messages per second.", needs=needs, type=whole),
        flag("--background", "run as a background job of the consumers.", needs=needs),
    )


def threshold(name: str, what: str) -> Argument:
    """Return the option of a threshold."""
    default, kind = getattr(Thresholds(), name), period if name.endswith("_age") else count
    usual = "no limit" if default is None else f"{default:g}"
    said = f"it is a problem if {what}. Default: as in THRESHOLDS, {usual}."
    return arg(f"--{name.replace('_', '-')}", said, needs="--check", type=kind)


# The verbs.

JOB = (
    QUEUE,
    arg(
        "state",
        "The messages that the job is on. Default: dead.",
        nargs="?",
        choices=get_args(ActionableState),
        default="dead",
    ),
)

JOBS = {
    "list": verb(
        job_verbs.jobs_list, arg("--queue", "Show the running jobs of this queue, or its last ones of the past week.")
    ),
    "watch": verb(job_verbs.jobs_watch, *JOB),
    "cancel": verb(job_verbs.jobs_cancel, *JOB),
}

#: A schedule.
NAMED = (arg("name", "The name of the schedule."), arg("--queue", "Its queue. Default: default.", default="default"))

SCHEDULE = tuple(
    arg(f"--{name}", what, type=kind, dest=schedule_verbs.PREFIX + name, metavar=name.upper())
    for name, (kind, what) in schedule_verbs.OPTIONS.items()
)

#: What is held.
OF_HOLD = (arg("--name", "The messages with this name."), arg("--key", "The messages with this key."))

#: The values of limits.
OF_LIMITS = tuple(arg(f"--{name.replace('_', '-')}", what) for name, what in capacity_verbs.OPTIONS.items())

SCHEDULES = {
    "list": verb(schedule_verbs.show, arg("--queue", "A queue. Default: all queues.")),
    "next": verb(schedule_verbs.coming, *NAMED, arg("--count", "Default: 5. At most 500.", type=page_size, default=5)),
    "create": verb(schedule_verbs.create, *NAMED, flag("--paused", "It does not fire until it is resumed."), *SCHEDULE),
    "change": verb(
        schedule_verbs.change,
        *NAMED,
        arg("--remove", "Remove this option.", action="append", choices=[*schedule_verbs.OPTIONS]),
        *SCHEDULE,
    ),
    "pause": verb(schedule_verbs.pause, *NAMED),
    "resume": verb(schedule_verbs.resume, *NAMED),
    "skip": verb(
        schedule_verbs.skip,
        *NAMED,
        arg("--tick", "A later tick, such as 2026-11-24T03:00Z. Default: the next one.", metavar="TIME"),
        flag("--undo", "Let it fire. Default: the first tick that is skipped."),
    ),
    "fire": verb(schedule_verbs.fire, *NAMED),
    "override": verb(
        schedule_verbs.override,
        *NAMED,
        arg("--reason", "Why, for others to see."),
        *SCHEDULE[:3],
    ),
    "restore": verb(schedule_verbs.restore, *NAMED),
    "delete": verb(schedule_verbs.delete, *NAMED, YES),
    "forget": verb(schedule_verbs.forget, *NAMED, YES),
}

TOPICS = {
    "list": verb(topic_verbs.show),
    "log": verb(
        topic_verbs.log,
        arg("topic", "A topic."),
        *RANGE,
        *selecting()[:3],
        flag("--newest-first", "The newest message first."),
        AFTER,
        LIMIT,
    ),
    "seek": verb(
        topic_verbs.seek,
        GROUP,
        arg("position", POSITION),
        flag("--dry-run", "Only show how many messages would be delivered again or skipped."),
        REPEAT,
    ),
    "unsubscribe": verb(topic_verbs.unsubscribe, GROUP, YES),
    "replay": verb(
        topic_verbs.replay,
        GROUP,
        *RANGE,
        arg("--handler", "Dotted path of a function; by default the group's subscriber."),
        flag("--dry-run", "Only show what would be run."),
        REPEAT,
    ),
}

VERBS: dict[str, Verb | Actions] = {
    "status": verb(
        queue_verbs.status,
        arg("queues", "Default: all.", nargs="*"),
        (
            flag(
                "--check",
                "Print the problems, a line each. Exit with 1 if there are any, with 2 if an argument is wrong.",
            ),
            flag("--rates", "Show how many messages are published and handled, and how fast; of named queues by name."),
            flag("--limits", "Show the limits of queues and their use."),
            flag("--partitions", "Show the partitions of queues."),
        ),
        flag("--watch", "Show it again and again on a terminal, the worst queues first, until Ctrl-C."),
        arg("--interval", "seconds between two reads. Default: 2.", needs="--watch", type=whole, default=2),
        *(threshold(name, what) for name, what in queue_verbs.PROBLEMS.items()),
        arg("--ignore", "leave out this problem. May be repeated.", needs="--check", action="append", choices=KINDS),
        arg("--hours", "of named queues, this hour and those before, at most 168 in all.", needs="--rates", type=whole),
        arg("--keys", "the most keys with parked messages. Default: 20.", needs="--limits", type=page_size, default=20),
    ),
    "line": verb(
        queue_verbs.line,
        QUEUE,
        arg("key", "Default: the messages without a key, which take turns with FAIR.", nargs="?"),
        (
            flag("--skip", "Let the key go on without the message that it waits for, which is then out of order."),
            flag("--redrive", "Redrive the dead letter that the key waits for, in place."),
        ),
        flag("--yes", "confirm without prompting.", needs="--skip --redrive"),
    ),
    "pause": verb(
        queue_verbs.pause,
        ANY,
        ALL,
        arg("--reason", "Shown in the admin and by `mq status` until it is resumed.", default=""),
        arg("--name", "the name of this pause. Default: one with the time.", needs="--all", default=""),
    ),
    "resume": verb(
        queue_verbs.resume,
        ANY,
        ALL,
        arg("--name", "only what the pause of this name has paused.", needs="--all"),
    ),
    "hold": verb(
        queue_verbs.hold,
        arg("queue", "A queue, or the group of a topic as topic:group. Default: list what is held of all.", nargs="?"),
        *OF_HOLD,
        arg("--for", "For how long, such as 2h. Default: until it is released.", type=span(MOST), metavar="TIME"),
        arg("--reason", "Shown in the admin and by `mq status` until it is released.", default=""),
        arg(
            "--probe",
            "Open a breaker: one message is let through each time, such as 30s, until one is handled. Without a name "
            "or key, of the whole queue.",
            type=span(LONGEST_PROBE),
            metavar="TIME",
        ),
    ),
    "release": verb(queue_verbs.release, QUEUE, *OF_HOLD),
    "limit": verb(
        capacity_verbs.limit,
        arg("queue", "A queue. Default: list the limits of all that are not as in the settings.", nargs="?"),
        *OF_LIMITS,
        arg("--reason", "Shown in the admin and by `mq status --limits` until it is changed back.", default=""),
        arg("--reset", "Give these limits, or all, the values of the settings.", nargs="*", choices=LIMITS),
    ),
    "mute": verb(
        queue_verbs.mute,
        arg(
            "of",
            "A queue, or topic:group. Default: list all mutes.",
            nargs="?",
            metavar="queue",
        ),
        arg("kind", "The kind of problem, as `mq status --check` prints it.", nargs="?", choices=KINDS),
        arg(
            "--for", "For how long, such as 4h. Default: a day.", type=span(MAX_DELAY), default=86400.0, metavar="TIME"
        ),
        arg("--reason", "Shown in the admin.", default=""),
        flag("--off", "Unmute it."),
    ),
    "repartition": verb(
        capacity_verbs.repartition,
        QUEUE,
        arg("number", "The new number of partitions; 1: none.", nargs="?", type=whole),
        arg("--timeout", "For running handlers. Default: 60.", type=duration, default=60.0, metavar="SECONDS"),
        flag("--abort", "Let consumers go on as before, if nothing has moved."),
        YES,
    ),
    "find": verb(
        message_verbs.find,
        arg(
            "of",
            "A queue, or the group of a topic as topic:group. Default: all. Or a query, such as 'customer=C-4242 "
            "name:receipt state:dead since:2d'.",
            nargs="?",
            metavar="queue",
        ),
        arg("id", "The id of a message, or u: and the unique key of one that waits. Default: a list.", nargs="?"),
        arg("--state", STATE.format("ready"), choices=message_verbs.STATES),
        *selecting(),
        AFTER,
        LIMIT,
    ),
    "tail": verb(
        message_verbs.tail,
        arg("id", "The id of a message or task."),
        arg("--queue", "Its queue, or the group of a topic as topic:group. Default: all are searched."),
        arg("--after", "Only what follows this entry, whose id --json shows.", metavar="ENTRY"),
        arg(
            "--timeout",
            "End when nothing has come for so long, such as 90s or 5m. Default: 1h.",
            type=period,
            default=3600.0,
            metavar="TIME",
        ),
    ),
    "publish": verb(
        message_verbs.publish,
        QUEUE,
        arg("name", "The name of the message."),
        arg("data", "JSON. Default: null.", nargs="?", default="null"),
        arg("--delay", "Seconds.", type=duration),
        arg("--key", "The key of the message."),
        arg("--unique", "With --delay: replace a waiting message with the same unique key."),
        arg("--at-most", "With --unique: postpone it no longer than these seconds after the first.", type=duration),
        arg("--priority", "-100 to 100, or high, normal, low; higher runs sooner.", default="normal"),
        arg("--expires", "Seconds after which it is not handled any more.", type=duration),
        arg("--headers", "Texts by name, as a JSON object.", metavar="JSON"),
    ),
    "redrive": verb(
        job_verbs.redrive,
        QUEUE,
        arg("ids", "The id of a message.", nargs="*", metavar="id"),
        (
            flag("--all", "All current dead letters."),
            flag("--errors", "Show the counts of dead letters by name and error."),
            arg(
                "--data", 'New data: JSON, or - for stdin. "[redacted]" keeps the secret in its place.', metavar="JSON"
            ),
        ),
        arg("--to", "Move them to this queue or topic:group.", dest="target", metavar="QUEUE"),
        *selecting("--all"),
        *working("--all"),
    ),
    "move": verb(
        job_verbs.move,
        QUEUE,
        arg("ids", "The id of a message that waits, is ready, or is dead.", nargs="*", metavar="id"),
        (arg("--state", "All messages in this state.", choices=job_verbs.REMOVABLE),),
        arg("--to", "The queue or topic:group that gets them.", dest="target", metavar="QUEUE"),
        *selecting("--state"),
        *working("--state"),
    ),
    "purge": verb(
        job_verbs.purge,
        QUEUE,
        arg("ids", "The id of a message that waits, or u: and its unique key.", nargs="*", metavar="id"),
        (
            arg("--state", "All messages in this state; with ids, only dead.", choices=job_verbs.REMOVABLE),
            flag("--running", "Also ready ones, which do not start, and those being handled, which are interrupted."),
        ),
        flag("--force", "replace the process of a handler that does not end within a second.", needs="--running"),
        *selecting("--state"),
        *working("--state"),
        YES,
    ),
    "export": verb(
        message_verbs.export,
        QUEUE,
        arg("--state", STATE.format("dead"), choices=message_verbs.STATES, default="dead"),
        *selecting(),
    ),
    "jobs": Actions("Show background jobs; watch and cancel them.", JOBS),
    "consumers": verb(
        process_verbs.consumers,
        (
            arg("--stacks", "The id of a consumer. Show where each handler is, without values.", metavar="id"),
            arg("--quiet", f"{WHOM} It stops fetching, and finishes the messages it holds.", metavar="id"),
            arg("--stop", f"{WHOM} It stops when its running handlers have finished.", metavar="id"),
        ),
    ),
    "schedules": Actions("Show schedules; create, change, pause and delete them.", SCHEDULES),
    "workflows": verb(
        workflow_verbs.workflows,
        arg("run", "The id of a run, which is shown with its steps. Default: all runs.", nargs="?"),
        arg("--state", "Only runs in this state; of a run, only steps in this state."),
        arg("--name", "Only runs of workflows whose name contains this.", default=""),
        arg("--limit", "Default: 20 runs, or 100 steps of a run. At most 500.", type=page_size),
        (
            flag("--cancel", "End the run: no further step starts."),
            flag("--retry", "Let the run continue that has ended. Failed steps run again."),
            arg("--skip", "Let the run continue as if this failed step had succeeded.", type=count, metavar="STEP"),
            flag(
                "--check",
                "Find steps whose messages were deleted or lost, unpublished starts, and runs that do not go on.",
            ),
        ),
        flag("--repair", "repair what was found.", needs="--check"),
        flag("--yes", "confirm without prompting.", needs="--cancel --retry --skip"),
    ),
    "topics": Actions("Show groups of topics, and logs; move and remove groups.", TOPICS),
    "outbox": verb(
        outbox_verbs.outbox,
        arg("destination", "Only messages for this queue or topic.", nargs="?", default=""),
        arg("--database", "The alias of the database. Default: default; without another option, all databases."),
        (
            flag("--waiting", "List messages that wait for their publication."),
            flag("--set-aside", "List messages that cannot be published."),
            flag("--relay", "Publish the rows of all databases: until it is stopped, or with --drain all there are."),
            flag("--retry", "Let messages that were set aside be published again, by --row or --all."),
            flag("--discard", "Delete messages that were set aside, by --row or --all."),
            flag("--republish", "Publish the messages of a queue again whose rows are kept: Redis has lost them."),
            flag("--forget", "Delete the rows of a queue that are kept: Redis has their messages."),
            flag(
                "--renew",
                "Give the outbox of a copied database an identity of its own; let it go on where it is stopped.",
            ),
        ),
        flag("--drain", "stop when no row is left but those that were set aside.", needs="--relay"),
        arg("--timeout", "Default: 60.", needs="--drain", type=duration, default=60.0, metavar="SECONDS"),
        arg(
            "--row",
            "the number of a row, as --set-aside shows it. May be repeated.",
            needs="--retry --discard",
            action="append",
            type=row,
            metavar="NUMBER",
        ),
        flag("--all", "all that were set aside.", needs="--retry --discard"),
        flag("--yes", "Confirm what deletes or publishes, without prompting."),
        arg("--after", "List rows after this one.", type=row, default=0, metavar="NUMBER"),
        arg("--limit", "Default: 20 messages. At most 500.", type=page_size, default=20),
    ),
    "activity": verb(
        process_verbs.activity,
        arg("--queue", "Only what was done to this queue, or topic:group."),
        arg("--who", "Only by people whose name contains this.", default=""),
        arg("--source", "Only from there; consumer: only ends of jobs.", choices=get_args(Source)),
        arg("--what", "Only this, such as 'pause schedule'.", choices=RECORDED, metavar="VERB"),
        arg("--since", f"Only since {TIME}.", type=time_ms, metavar="TIME"),
        arg("--until", "Only before a time.", type=time_ms, metavar="TIME"),
        arg("--after", "Continue after the last entry of a list.", type=cursor),
        arg("--limit", "Default: 20. At most 500.", type=page_size, default=20),
    ),
    "doctor": verb(
        process_verbs.doctor,
        arg("--only", "Only findings with this code, such as D102.", **CODES),
        arg("--skip", "No findings with this code.", **CODES),
        arg(
            "--fail-level",
            "Exit with 1 if there are such findings, or worse. Default: warning.",
            choices=LEVELS,
            default="warning",
        ),
        arg(
            "--health",
            "Only tell whether a runconsumer of this machine is ready for these queues, or any.",
            nargs="*",
            metavar="QUEUE",
        ),
        flag("--housekeeping", "accept a runconsumer that only does the housekeeping of a queue.", needs="--health"),
        arg("--timeout", "seconds for the answer of Redis. Default: 5.", needs="--health", type=period, default=5.0),
        # It reports what the system checks find itself: an error would end the command before.
        skip_checks=True,
    ),
    "help": verb(
        show,
        arg("topic", "A page, PAGE#SECTION, or a code such as D102 or E001. Default: a list of pages.", nargs="?"),
        skip_checks=True,
    ),
    "metrics": verb(
        process_verbs.metrics,
        arg(
            "--port",
            "Serve /metrics over HTTP until SIGTERM or Ctrl-C, without a host on all addresses. There is no password. "
            "Without this option the metrics are printed once.",
            type=address,
            metavar="[HOST:]PORT",
        ),
    ),
}
