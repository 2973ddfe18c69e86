"""The README to the letter, in an environment that has what it installs: typed, written, and its outputs awaited.

A comment before each box says what becomes of it:

    run [TEXTS]         the commands are typed; each text is in their output, or the consumer prints it
    start TEXT          the command is typed and left running; it prints the text
    file PATH           the code is added to a file
    mend PATH           the code replaces the function of that name in a file
    shell TEXTS         the code is typed into `manage.py shell`; the consumer prints the texts
    redis-cli TEXTS     like `run`, where the machine has a redis-cli
    skip REASON         nothing

and two stand alone: `redrive TEXTS` for a button of the admin that is pressed, `wait TEXTS` for what comes by itself.
"""

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
import venv
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.install.wheels import ROOT, build, copy_source
from tests.waiting import wait_until

README = (ROOT / "README.md").read_text(encoding="utf-8")
MARK = re.compile(r"<!-- (?P<kind>[a-z-]+)(?:: (?P<told>.+?))? -->")
BOX = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ALONE = {"redrive", "wait"}
#: What comments of other tools begin with.
FOREIGN = {"measured"}

ADMIN = {"DJANGO_SUPERUSER_USERNAME": "admin", "DJANGO_SUPERUSER_EMAIL": "a@example.org"}
PASSWORD = "correct horse"
#: Programs of the machine that the boxes use. No Redis server: the README installs one.
TOOLS = ("sh", "cat", "redis-cli")
#: Seconds: a schedule ticks once a minute, and code is loaded anew between two steps.
PATIENCE = 90.0


def steps() -> Iterator[tuple[str, str, str]]:
    """Yield kind, argument and code of everything to do, in order."""
    boxes = {box.start(): box for box in BOX.finditer(README)}
    for mark in MARK.finditer(README):
        kind, told = mark["kind"], mark["told"] or ""
        box = boxes.pop(mark.end() + 1, None)
        if kind not in FOREIGN:
            assert (box is None) == (kind in ALONE), mark[0]
            yield kind, told, box["code"] if box else ""
    assert not boxes, [box["code"] for box in boxes.values()]


def test_every_box_says_what_becomes_of_it():
    kinds = [kind for kind, _, _ in steps()]
    assert set(kinds) <= {"run", "start", "file", "mend", "shell", "redis-cli", "skip", *ALONE}
    assert kinds.count("skip") == 1
    assert len(kinds) > 30


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Browser:
    """Opens pages and presses buttons."""

    def __init__(self, site: str) -> None:
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self._at = site

    def open(self, path: str, fields: dict[str, str] | None = None) -> str:
        body = urllib.parse.urlencode(fields).encode() if fields else None
        with self._opener.open(urllib.parse.urljoin(self._at, path), body, timeout=30) as answer:
            self._at = answer.url
            return html.unescape(answer.read().decode())

    def press(self, page: str, name: str, **fields: str) -> str:
        """Send the form of this class or id, filled in."""
        (form,) = (form for form in re.findall(r"<form .*?</form>", page, re.DOTALL) if f'="{name}"' in form)
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
        (action,) = re.findall(r'<form [^>]*action="([^"]*)"', form)
        return self.open(action, {**hidden, **fields})


class Newcomer:
    """Somebody with an empty folder, a new environment and two terminals."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._bin, self._tools = folder / "env" / "bin", folder / "tools"
        venv.create(folder / "env", with_pip=True)
        self._tools.mkdir()
        for name in TOOLS:
            self._lend(name)
        self.site = f"127.0.0.1:{free_port()}"
        #: What cannot be typed as it is: no index has the package, nobody answers questions, the port may be taken.
        self._adapted = {
            '"mq-django': f'"{wheel}',
            "pip install": "pip --disable-pip-version-check -qq install",
            "createsuperuser": "createsuperuser --noinput",
            "runserver": f"runserver {self.site}",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _lend(self, name: str) -> None:
        if found := shutil.which(name):
            (self._tools / name).symlink_to(found)

    @property
    def env(self) -> dict[str, str]:
        foreign = ("PYTHON", "PYTEST", "DJANGO", "MQ_", "VIRTUAL_ENV", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = f"{self._bin}{os.pathsep}{self._tools}"
        return {**kept, **ADMIN, "DJANGO_SUPERUSER_PASSWORD": PASSWORD, "PATH": path, "PYTHONUNBUFFERED": "1"}

    def do(self, kind: str, told: str, code: str) -> None:
        getattr(self, f"_{kind.replace('-', '_')}")(told, code)

    def output(self, name: str) -> str:
        return (self.folder.parent / f"{name}.txt").read_text(errors="replace")

    def _type(self, command: str, typed: str | None = None) -> str:
        for text, other in self._adapted.items():
            command = command.replace(text, other)
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            cwd=self.folder,
            env=self.env,
            input=typed or "",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def _await(self, texts: str, said: str = "") -> None:
        for text in filter(None, texts.split(" / ")):
            wait_until(
                lambda text=text: text in said or text in self.output("runconsumer"), timeout=PATIENCE, message=text
            )

    def _run(self, told: str, code: str) -> None:
        self._await(told, self._type(code))
        if code.startswith("pip") and not [*self._bin.parent.glob("lib/*/site-packages/*lite")]:
            # No wheel with a server for this platform: "elsewhere install Redis".
            self._lend("redis-server")

    def _redis_cli(self, told: str, code: str) -> None:
        if shutil.which("redis-cli"):
            self._run(told, code)

    def _start(self, told: str, code: str) -> None:
        command = code.strip()
        for text, other in self._adapted.items():
            command = command.replace(text, other)
        name = code.split()[2]
        with (self.folder.parent / f"{name}.txt").open("wb") as file:
            self._running[name] = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # A terminal of its own.
                start_new_session=True,
            )
        wait_until(lambda: told in self.output(name), timeout=60, message=self.output(name))

    def _file(self, path: str, code: str) -> None:
        with (self.folder / path).open("a", encoding="utf-8") as file:
            file.write("\n\n" + code)

    def _mend(self, path: str, code: str) -> None:
        (defined,) = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
        decorated = re.compile(rf"^@[^\n]*\ndef {defined}\(.*?(?=^@|\Z)", re.MULTILINE | re.DOTALL)
        file = self.folder / path
        text, times = decorated.subn(lambda _: code, file.read_text(encoding="utf-8"))
        assert times == 1
        starts = self.output("runconsumer").count("Handling ")
        file.write_text(text, encoding="utf-8")
        wait_until(lambda: self.output("runconsumer").count("Handling ") > starts, timeout=60)

    def _shell(self, told: str, code: str) -> None:
        self._type("python manage.py shell", typed=code)
        self._await(told)

    def _wait(self, told: str, _: str) -> None:
        self._await(told)

    def _skip(self, told: str, _: str) -> None:
        assert told

    def _redrive(self, told: str, _: str) -> None:
        """Log in, open the queue's dead letters, and press the button on the page of the first one."""
        browser = Browser(f"http://{self.site}")
        login = browser.open("/admin/login/?next=/admin/mq_django/queue/")
        assert "emails" in browser.press(login, "login-form", username="admin", password=PASSWORD)
        listed = browser.open("/admin/mq_django/queue/emails/dead/")
        letters = sorted(set(re.findall(r'href="(/admin/mq_django/queue/emails/dead/[\d-]+/)"', listed)))
        pages = [browser.open(letter) for letter in letters]
        assert ["Traceback" in page for page in pages] == [True, True]
        (page,) = (page for page in pages if "invoice-42.txt" in page)
        asked = browser.press(page, "mq-do", action="redrive")
        browser.press(asked, "mq-confirm")
        self._await(told)

    def status(self) -> dict[str, dict[str, int]]:
        return {row["queue"]: row for row in json.loads(self._type("python manage.py mq status --json"))}

    def stop(self, name: str) -> int:
        """Press Ctrl-C in a terminal."""
        os.killpg(self._running[name].pid, signal.SIGINT)
        return self._running[name].wait(30)

    def go(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    someone = Newcomer(tmp_path, build(copy_source(tmp_path), "wheel"))
    yield someone
    someone.go()
    for log in sorted(tmp_path.glob("*.txt")):
        sys.stdout.write(f"--- {log.name}\n{log.read_text(errors='replace')}\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_works_from_top_to_bottom(newcomer: Newcomer):
    for kind, told, code in steps():
        newcomer.do(kind, told, code)
    said = newcomer.output("runconsumer")
    once = ["Cart 1 is still waiting", "Billed order 7.", "Packed order 7.", "Welcome, user 12!", "Sent: cups"]
    assert [said.count(text) for text in once] == [1] * len(once)
    assert {(row["dead"], row["unhandled"], row["delayed"]) for row in newcomer.status().values()} == {(0, 0, 0)}
    assert (newcomer.folder / ".gitignore").read_text().split() == [
        folder.name + "/" for folder in newcomer.folder.glob(".mq*")
    ]
    assert newcomer.stop("runconsumer") == 0
