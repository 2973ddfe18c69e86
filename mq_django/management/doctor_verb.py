"""The verb `doctor` of the command `mq`."""

import argparse
import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.core.management.color import Style

from mq_django.core.visible import escape
from mq_django.inspector.doctor.findings import LEVELS, DoctorFinding, counted
from mq_django.inspector.doctor.report import AREAS, CODES, DoctorReport, look_at_project
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb

#: Characters of a line: the width of the terminal within these bounds.
MIN_WIDTH, MAX_WIDTH = 60, 100

#: The styles of levels in Django's palette.
_STYLES = {"error": "ERROR", "warning": "WARNING", "note": "NOTICE"}
#: What precedes the text of a finding: its level and code.
_INDENT = " " * 16


def add_options(parser: argparse.ArgumentParser) -> None:
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


VERBS = (Verb("doctor", "Look at servers, settings, consumers and code, and say what to do.", doctor, add_options),)
