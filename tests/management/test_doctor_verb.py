"""`manage.py mq doctor`: what it prints, and how it ends."""

import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django.inspector.doctor.report import AREAS, CODES
from mq_django.management.commands.mq import Command
from mq_django.transport.private_server import PrivateServer
from tests.install.wheels import ROOT

PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")


@pytest.fixture
def server(mq_settings, monkeypatch):
    # The settings do not fit what other tests have imported.
    monkeypatch.setattr("mq_django.checks.declared", list)
    with PrivateServer(tcp=True, settings={"appendonly": "yes", "tcp-keepalive": "0"}) as found:
        mq_settings(CONNECTION=found.url, QUEUES={})
        yield found


def doctor(*args):
    """Return what is printed, and how the command ends."""
    out = StringIO()
    try:
        call_command("mq", "doctor", *args, stdout=out)
    except CommandError as error:
        return out.getvalue(), error
    return out.getvalue(), None


def test_a_finding_says_what_was_seen_what_to_do_and_where_more_is_written(server):
    text, error = doctor("--only", "D113")
    assert text.startswith("Servers\n\n  warning D113  Redis never checks")
    assert "To do: CONFIG SET tcp-keepalive 300" in text
    assert f"Where: 127.0.0.1:{server.port} (MQ_DJANGO" in text
    assert "More: manage.py mq help D113" in text
    assert (str(error), error.returncode) == ("Found 1 warning.", 1)


def test_lines_fit_the_terminal_and_have_no_colours(server, monkeypatch):
    for columns, width in (("72", 72), ("20", 60), ("300", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        text, _ = doctor()
        assert max(map(len, text.splitlines())) <= width
        assert "\x1b" not in text
    assert "\x1b[" in doctor("--force-color")[0]


def test_without_findings_it_says_what_was_looked_at(server):
    text, error = doctor("--only", "D102", "--only", "D103")
    assert error is None
    assert text == "Looked at\n  Servers: connection, eviction, persistence\n\nNothing to report.\n"


def test_skipped_findings_do_not_count(server):
    text, error = doctor("--only", "D113", "--skip", "D113")
    assert "D113" not in text
    assert error is None


def test_the_level_at_which_it_fails_can_be_chosen(server):
    for level, fails in (("error", False), ("warning", True), ("note", True)):
        _, error = doctor("--only", "D113", "--fail-level", level)
        assert (error is not None) == fails, level


def test_json_has_everything(server):
    text, error = doctor("--json", "--only", "D113", "--only", "D102")
    found = json.loads(text)
    assert found["looked_at"] == {"Servers": ["connection", "eviction", "tcp-keepalive"]}
    (finding,) = found["findings"]
    assert (finding["code"], finding["level"], finding["area"]) == ("D113", "warning", "Servers")
    assert finding["link"] == "docs/doctor.md#d113"
    assert set(finding) == {"code", "level", "area", "where", "seen", "advice", "link"}
    assert error.returncode == 1


def test_a_code_may_be_written_in_small_letters(server):
    assert doctor("--only", "d113")[0] == doctor("--only", "D113")[0]


def test_wrong_settings_are_a_finding(mq_settings, capsys):
    mq_settings(QUEUES={"default": {"NOPE": 1}})
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "mq", "doctor", "--json", "--only", "D203"])
    assert ended.value.code == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["level"]) == ("D203", "error")
    assert "NOPE" in finding["seen"]


def test_an_unknown_code_is_a_wrong_argument(server):
    with pytest.raises(CommandError, match="argument --only: invalid choice: 'D9'"):
        call_command("mq", "doctor", "--only", "D9")


def test_every_code_has_its_section_and_no_other():
    sections = re.findall(r"^### (D\d+)$", PAGE, re.MULTILINE)
    assert sections == sorted(CODES)


def test_every_code_is_in_an_area():
    assert {code[1] for code in CODES} == set(AREAS)


def test_every_code_is_tested():
    folder = ROOT / "tests" / "inspector" / "doctor"
    tests = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    assert [code for code in sorted(CODES) if f'"{code}"' not in tests] == []
