"""The verbs `consumers`, `activity`, `doctor` and `metrics` of the command `mq`: processes, people and servers."""

import shutil
import signal
import socket
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.core.management.color import Style
from django.utils.module_loading import import_string

from mq_django import inspect
from mq_django.consumers.processes import has_ended, here
from mq_django.consumers.supervisor.health import Answer, serving
from mq_django.core.stacks import Stack, Stacks
from mq_django.core.texts import escape
from mq_django.errors import MQError
from mq_django.inspector.action_log import jobs_of_actions
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.doctor.findings import LEVELS, DoctorFinding, counted
from mq_django.inspector.doctor.report import AREAS, CODES, DoctorReport, examine_project
from mq_django.inspector.jobs import BackgroundJob
from mq_django.inspector.message_views import moment_text, progress_line
from mq_django.inspector.processes import WAIT, ProcessView, SupervisorView, ask_for_stacks, find_process, read_answer
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import require_queue
from mq_django.management.message_verbs import first, progress_fields
from mq_django.management.terminal import Heading, Options, Terminal, VerbResult, away_text, columns, table, with_away
from mq_django.management.verb_types import open_port
from mq_django.stores.activity import Action
from mq_django.transport.sessions import within

#: Characters of a line: the width of the terminal within these bounds.
MIN_WIDTH, MAX_WIDTH = 60, 100

#: The styles of levels in Django's palette.
_STYLES = {"error": "ERROR", "warning": "WARNING", "note": "NOTICE"}
#: The beginning of a finding's line: its level and code.
_INDENT = " " * 16

#: Loaded when it is needed: it needs the package prometheus-client.
METRICS = "mq_django.observability.prometheus.queue_metrics"
PATH = "/metrics"

NO_ANSWER = (
    "{consumer} did not answer within {wait:g} s. A handler may hold the GIL, in a call that is not Python; or the "
    "process is suspended, or is starting."
)


def consumers(options: Options, _: Terminal) -> VerbResult:
    """Show consumers and what they run, or ask one for its stacks, to go quiet or to stop."""
    if options["stacks"] is not None:
        return _stacks(options["stacks"])
    for what in ("quiet", "stop"):
        if (who := options[what]) is not None:
            queues = inspect.ask(who, what)
            if not queues:
                raise CommandError(_unknown(f"consumer or supervisor {escape(who)}"))
            return VerbResult({"asked": who, "queues": queues}, ["asked"])
    everybody = inspect.consumers()
    supervisors = everybody.supervisors
    found = [_consumer(supervisor, process) for supervisor in supervisors for process in supervisor.processes]
    found += [_housekeeper(supervisor) for supervisor in supervisors if supervisor.housekeeping]
    more = everybody.left_out
    note = f"There are {more} more consumers, which are not shown." if more else ""
    return with_away(found, _lines(found), "No consumers.", everybody.errors, note=note)


def _unknown(what: str) -> str:
    return f"There is no {what}. {away_text(inspect.consumers().errors)}".rstrip()


def _consumer(supervisor: SupervisorView, process: ProcessView) -> dict[str, Any]:
    seen = supervisor.seen_ms_ago
    return {
        **columns(supervisor, "supervisor=id host version"),
        **columns(process, "consumer=id asked pid threads busy handled failed"),
        "state": process.state if supervisor.alive else "gone",
        "since_ms": process.since_ms,
        "heartbeat_s": None if seen is None else round(seen / 1000, 1),
        "queues": list(process.queues),
        "running": [
            {"queue": item.queue, **columns(item.message, "id name"), "ms": item.ms, **progress_fields(item.progress)}
            for item in process.running
        ],
    }


def _housekeeper(supervisor: SupervisorView) -> dict[str, Any]:
    """Return a supervisor with the queues that it does not consume, in the form of a consumer."""
    process = ProcessView(
        id=supervisor.id,
        pid=None,
        threads=0,
        busy=None,
        coroutines=0,
        since_ms=None,
        state="running",
        asked=supervisor.asked,
        queues=supervisor.housekeeping,
        running=(),
        handled=0,
        failed=0,
    )
    return {**_consumer(supervisor, process), "state": "housekeeping"}


def _lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of consumers, and one of their running messages."""
    columns = ("consumer", "state", "handled", "failed", "heartbeat_s", "queues")
    running = [
        {
            "consumer": row["consumer"],
            **{key: item[key] for key in ("queue", "name", "id")},
            "seconds": item["ms"] // 100 / 10,
            **({"progress": progress_line(**item["progress"])} if "progress" in item else {}),
        }
        for row in found
        for item in row["running"]
    ]
    lines = table([{column: row[column] for column in columns} for row in found])
    return [*lines, "", *table(running)] if running else lines


def _stacks(consumer: str) -> VerbResult:
    """Ask a consumer for its stacks, and show them."""
    found = find_process(consumer)
    request = None if found is None else ask_for_stacks(consumer, found[1].queues)
    if found is None or request is None:
        raise CommandError(_unknown(f"consumer {escape(consumer)}"))
    answer = read_answer(request, seconds=WAIT)
    if answer is None:
        running = _running(found[1])
        lines = [Heading("By the last heartbeat it runs:"), *table(running)] if running else []
        said = NO_ANSWER.format(consumer=escape(consumer), wait=WAIT)
        return VerbResult({"consumer": consumer, "stacks": None, "running": running}, lines, said)
    shown = {"consumer": consumer, "stacks": [_fields(one) for one in answer.stacks], "more": answer.more}
    return VerbResult(shown, list(_stack_lines(answer)))


def _running(process: ProcessView) -> list[dict[str, Any]]:
    return [
        {"queue": item.queue, **columns(item.message, "id name"), "seconds": item.ms // 100 / 10}
        for item in process.running
    ]


def _fields(one: Stack) -> dict[str, Any]:
    frames = [frame._asdict() for frame in one.frames]
    return {**columns(one, "kind queue? id? name? ms"), "frames": frames, **columns(one, "left_out others")}


def _stack_lines(answer: Stacks) -> Iterator[str]:
    """Yield the lines of all stacks, each in the form of a traceback."""
    if not answer.stacks:
        yield "It runs nothing."
    for number, one in enumerate(answer.stacks):
        if number:
            yield ""
        yield Heading(_title(one))
        if one.left_out:
            yield f"  ... {one.left_out} outer frames are left out"
        if not one.frames:
            yield "  It has no frames: the handler is about to start, or has just ended."
        for frame in one.frames:
            yield f'  File "{escape(frame.file)}", line {frame.line}, in {escape(frame.function)}'
            if frame.code:
                yield f"    {escape(frame.code)}"
        if one.others:
            yield f"  ... and {one.others} more tasks that it awaits at the same time"
    if answer.more:
        yield ""
        yield f"{answer.more} more stacks are left out."


def _title(one: Stack) -> str:
    if one.kind == "task":
        return "A task on the event loop that no handler awaits"
    if one.kind == "sync":
        return "What a coroutine runs in another thread, with sync_to_async"
    named = f"{escape(one.name)}  {escape(one.id)}  of queue {escape(one.queue)}"
    return f"{named}, in a {one.kind} for {one.ms / 1000:.1f} s"


# The verb `doctor`.


def doctor(options: Options, terminal: Terminal) -> VerbResult | None:
    """Look at servers, settings, consumers and code, and say what to do.

    Raises:
        CommandError: there are findings of `--fail-level`.
    """
    if options["health"] is not None:
        return _health(options)
    codes = set(options["only"] or CODES) - set(options["skip"] or ())
    report = examine_project(codes=codes, progress=lambda count: terminal.report(f"{count:,} keys scanned"))
    terminal.show(as_json(report), as_text(report, terminal.style))
    failing = LEVELS[: LEVELS.index(options["fail_level"]) + 1]
    if any(report.count(level) for level in failing):
        raise CommandError(f"Found {summary(report)}.")
    return None


def as_json(report: DoctorReport) -> dict[str, Any]:
    """Return a report as JSON values, in the order of the text."""
    findings = [
        {"area": area, **columns(finding, "code level where? seen advice link")}
        for area in AREAS.values()
        for finding in report.of_area(area)
    ]
    return {"findings": findings, "looked_at": report.checked}


def as_text(report: DoctorReport, style: Style) -> Iterator[str]:
    """Yield the lines of a report: the findings by area, the worst first, and what was looked at."""
    width = min(max(shutil.get_terminal_size().columns, MIN_WIDTH), MAX_WIDTH)
    for area in AREAS.values():
        if findings := report.of_area(area):
            yield style.MIGRATE_HEADING(area)
            for finding in findings:
                yield ""
                yield from _finding(finding, style, width)
            yield ""
    yield style.MIGRATE_HEADING("Looked at")
    for area in filter(report.checked.get, AREAS.values()):
        yield from _wrapped(f"  {area}: {', '.join(report.checked[area])}", "    ", width)
    if not report.findings:
        yield ""
        yield style.SUCCESS("Nothing to report.")
    elif not report.count("error") and not report.count("warning"):
        yield ""
        yield style.SUCCESS(f"No errors or warnings, {summary(report)}.")


def summary(report: DoctorReport) -> str:
    """Return the number of findings by level, such as "1 error, 2 notes"."""
    counts = {level: report.count(level) for level in LEVELS}
    return ", ".join(counted(count, level) for level, count in counts.items() if count)


def _finding(finding: DoctorFinding, style: Style, width: int) -> Iterator[str]:
    level = getattr(style, _STYLES[finding.level])(f"{finding.level:7}")
    first, *others = _wrapped(_INDENT + escape(finding.seen), _INDENT, width)
    yield f"  {level} {finding.code}  {first.lstrip()}"
    yield from others
    yield from _wrapped(f"{_INDENT}To do: {escape(finding.advice)}", _INDENT, width)
    if finding.where:
        yield from _wrapped(f"{_INDENT}Where: {escape(finding.where)}", _INDENT, width)
    yield f"{_INDENT}More: manage.py mq help {finding.code}"


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


# Its option `--health`: a probe that a container or a process manager executes.


def _health(options: Options) -> VerbResult:
    """Return whether a live supervisor of this machine serves the queues with consumers that are ready.

    Raises:
        UnknownQueue: a queue is not configured.
    """
    is_healthy, sentence = _in_time(options["health"], options["timeout"], housekeeping=options["housekeeping"])
    found = {"healthy": is_healthy, "sentence": sentence}
    return VerbResult(found, [escape(sentence)], code=0 if is_healthy else 1)


def _in_time(names: Sequence[str], seconds: float, *, housekeeping: bool) -> tuple[bool, str]:
    """Return the result, or that there is none in time: looking up a host name, for example, has no timeout."""
    results: list[tuple[bool, str]] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            with within(seconds):
                for name in names:
                    require_queue(name)
                results.append(_judge(inspect.queues(names, minutes=0), names, housekeeping=housekeeping))
        except Exception as error:  # noqa: BLE001 - raised below, if it is none of ours
            errors.append(error)

    # A daemon, so that the process may end before it.
    thread = threading.Thread(target=ask, name="mq_django health", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors and (isinstance(errors[0], LookupError) or not isinstance(errors[0], MQError)):
        raise errors[0]
    if errors:
        return False, str(errors[0])
    return results[0] if results else (False, f"Redis has not answered within {seconds:g} s.")


def _judge(views: Sequence[QueueView], names: Sequence[str], *, housekeeping: bool) -> tuple[bool, str]:
    """Return whether the queues, or without names any queue, are served from here, and a sentence about that."""
    ready: dict[str, list[ConsumerView]] = {}
    failures = []
    for view in views:
        found = list(_here(view.consumers))
        ready[view.name] = [one for one in found if one.is_ready]
        # Each runconsumer does the housekeeping of all queues: of itself it does not say that messages are handled.
        if housekeeping or (view.external and names):
            ready[view.name] += _here(view.housekeepers)
        if view.error:
            failures.append(f"Queue {view.name} cannot be read: {view.error}")
        elif not ready[view.name]:
            failures.append(_why_not(view.name, found))
    served = [name for name, found in ready.items() if found]
    if not served and not names:
        return False, failures[0] if len(failures) == 1 else "No runconsumer of this machine has a ready consumer."
    if names and failures:
        return False, " ".join(failures)
    supervisors = sorted({one.supervisor for found in ready.values() for one in found})
    return True, f"Served by {', '.join(supervisors)}: {', '.join(served)}."


def _why_not(queue: str, found: Sequence[ConsumerView]) -> str:
    if any(one.is_starting for one in found):
        return f"The consumers of queue {queue} are starting."
    if found:
        return f"The consumers of queue {queue} are stopping, or were asked to go quiet."
    return f"No live runconsumer of this machine serves queue {queue}."


def _here(consumers: Iterable[ConsumerView]) -> Iterable[ConsumerView]:
    """Yield those whose supervisor runs on this machine, in this container, and has sent a heartbeat recently."""
    return (one for one in consumers if one.alive and _runs_here(one.announced))


def _runs_here(announced: Mapping[str, Any]) -> bool:
    machine = here()
    if machine is None:
        return announced.get("host") == socket.gethostname()
    pid, moment = announced.get("pid"), announced.get("started")
    is_here = (announced.get("boot"), announced.get("pids")) == machine
    return is_here and not (isinstance(pid, int) and pid > 0 and isinstance(moment, str) and has_ended(pid, moment))


# The verb `metrics`: the metrics of queues for Prometheus.


def metrics(options: Options, terminal: Terminal) -> VerbResult | None:
    """Print the metrics of queues for Prometheus, or serve them.

    Raises:
        MissingDependency: prometheus-client is not installed.
    """
    read: Callable[[], tuple[str, bytes]] = import_string(METRICS)
    if options["port"] is None:
        text = read()[1].decode()
        return VerbResult(text, text.splitlines())
    with serving(open_port("--port", options["port"]), {PATH: lambda: Answer(200, *read())}):
        terminal.report(f"Serving {PATH}. Stop with Ctrl-C.")
        _await_stop()
    return None


def _await_stop() -> None:
    if threading.current_thread() is threading.main_thread():
        # By default, a process with the id 1 ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    never = threading.Event()
    try:
        while not never.wait(60):
            pass
    except KeyboardInterrupt:
        pass


def activity(options: Options, _: Terminal) -> VerbResult:
    """Show who did what to queues and when, the newest first."""
    since, until = options["since"], options["until"]
    read = partial(
        inspect.actions,
        queue=options["queue"] or "",
        who=options["who"],
        source=options["source"] or "",
        verbs=[options["what"]] if options["what"] else (),
        since_ms=since and since.ms,
        until_ms=until and until.ms,
    )
    found = first(read, after=options["after"] or "", limit=options["limit"])
    jobs = jobs_of_actions(found.rows)
    rows = [(each, jobs.get(each.job) if each.verb != "finish job" else None) for each in found.rows]
    note = f"There are more: --after {found.after}" if found.after and rows else ""
    lines = table([_cells(*row) for row in rows]) or ["None."]
    return VerbResult([_row(*row) for row in rows], lines, note=note)


def _row(found: Action, job: BackgroundJob | None) -> dict[str, Any]:
    ended = None if job is None else {**columns(job, "state done missing refused")}
    return {
        "at": moment_text(found.ms),
        **columns(found, "id who source verb"),
        "queues": list(found.queues),
        "more_queues": found.more,
        "about": list(found.about),
        "filter": dict(found.where),
        **columns(found, "done result? target? reason? job? error?"),
        "job_result": ended,
    }


def _cells(found: Action, job: BackgroundJob | None) -> dict[str, Any]:
    more = [f"and {found.more} more"] if found.more else []
    about = [*found.about, *([f"to {found.target}"] if found.target else [])]
    about += [f"{name}={value}" for name, value in found.where.items()]
    done = str(found.done) if job is None else f"{job.done} of {found.done}, {job.state}"
    error = f"interrupted: {found.error}" if found.error else ""
    return {
        "at": moment_text(found.ms),
        **columns(found, "who source verb"),
        "queues": [*found.queues, *more] or None,
        "about": about or None,
        "result": ", ".join(filter(None, (done, found.result, error))),
        **columns(found, "reason?"),
    }
