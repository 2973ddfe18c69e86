"""The verb `doctor` of the command `mq`."""

import argparse
import shutil
import socket
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError
from django.core.management.color import Style

from mq_django import inspector
from mq_django.consumers.machine import has_ended, here
from mq_django.core.texts import escape
from mq_django.errors import MQError
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.doctor.findings import LEVELS, DoctorFinding, counted
from mq_django.inspector.doctor.report import AREAS, CODES, DoctorReport, look_at_project
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import require_queue
from mq_django.management.argument_types import period
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult
from mq_django.transport.sessions import within

#: Characters of a line: the width of the terminal within these bounds.
MIN_WIDTH, MAX_WIDTH = 60, 100

#: The styles of levels in Django's palette.
_STYLES = {"error": "ERROR", "warning": "WARNING", "note": "NOTICE"}
#: What precedes the text of a finding: its level and code.
_INDENT = " " * 16


def add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    # It reports what the system checks find itself: an error would end the command before.
    parser.set_defaults(skip_checks=True)
    codes: dict[str, Any] = {"action": "append", "type": str.upper, "choices": sorted(CODES), "metavar": "CODE"}
    parser.add_argument("--only", **codes, help="Only findings with this code, such as D102.")
    parser.add_argument("--skip", **codes, help="No findings with this code.")
    parser.add_argument(
        "--fail-level",
        choices=LEVELS,
        default="warning",
        help="Exit with 1 if there are findings of this level or a worse one. Default: warning.",
    )


def doctor(options: Options, terminal: Terminal) -> None:
    """Look at the project and print the findings.

    Raises:
        CommandError: there are findings of `--fail-level`.
    """
    codes = set(options["only"] or CODES) - set(options["skip"] or ())
    report = look_at_project(codes=codes, progress=lambda count: terminal.report(f"{count:,} keys scanned"))
    terminal.show(as_json(report), as_text(report, terminal.style))
    failing = LEVELS[: LEVELS.index(options["fail_level"]) + 1]
    if any(report.count(level) for level in failing):
        raise CommandError(f"Found {summary(report)}.")


def as_json(report: DoctorReport) -> dict[str, Any]:
    """Return a report as JSON values, in the order of the text."""
    findings = [
        {
            "code": finding.code,
            "level": finding.level,
            "area": area,
            "where": finding.where or None,
            "seen": finding.seen,
            "advice": finding.advice,
            "link": finding.link,
        }
        for area in AREAS.values()
        for finding in report.of_area(area)
    ]
    return {"findings": findings, "looked_at": report.looked_at}


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
    for area in filter(report.looked_at.get, AREAS.values()):
        looks = report.looked_at[area]
        yield from _wrapped(f"  {area}: {', '.join(looks)}", "    ", width)
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
    yield f"{_INDENT}See {finding.link}"


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


# The verb `health` of the command `mq`: a probe that a container or a process manager executes.


def add_health_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    # Not `queues`, which the command itself looks for in Redis: that must end in time, too.
    parser.add_argument("served", nargs="*", metavar="queues", help="The queues that must be served. Default: any.")
    parser.add_argument(
        "--housekeeping", action="store_true", help="Accept a runconsumer that only does the housekeeping of a queue."
    )
    parser.add_argument(
        "--timeout", type=period, default=5.0, help="Seconds for the answer of Redis. Default: 5. For example 2 or 1m."
    )


def health(options: Options, _: Terminal) -> VerbResult:
    """Return whether a live supervisor of this machine serves the queues with consumers that are ready.

    Raises:
        UnknownQueue: a queue is not configured.
    """
    is_healthy, sentence = _in_time(options["served"], options["timeout"], housekeeping=options["housekeeping"])
    found = {"healthy": is_healthy, "sentence": sentence}
    return VerbResult(found, [escape(sentence)], code=0 if is_healthy else 1)


def _in_time(names: Sequence[str], seconds: float, *, housekeeping: bool) -> tuple[bool, str]:
    """Return the result, or that there is none in time: looking up a host name, for example, has no timeout."""
    results: list[tuple[bool, str]] = []
    errors: list[Exception] = []

    def look() -> None:
        try:
            with within(seconds):
                for name in names:
                    require_queue(name)
                results.append(_judge(inspector.overview(names, minutes=0), names, housekeeping=housekeeping))
        except Exception as error:  # noqa: BLE001 - raised below, if it is none of ours
            errors.append(error)

    # A daemon, so that the process may end before it.
    thread = threading.Thread(target=look, name="mq_django health", daemon=True)
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
        if housekeeping or view.external:
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


VERBS = (
    Verb("doctor", "Look at servers, settings, consumers and code, and say what to do.", doctor, add_doctor_options),
    Verb("health", "Tell whether a runconsumer of this machine is ready, for exec probes.", health, add_health_options),
)
