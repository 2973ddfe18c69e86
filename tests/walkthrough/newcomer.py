"""Somebody who does what a page says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mq_django.transport.private_server import find_server
from tests.install.wheels import build, copy_source
from tests.shell import free_port
from tests.waiting import wait_until
from tests.walkthrough.browser import Browser

ADMIN = {"DJANGO_SUPERUSER_USERNAME": "admin", "DJANGO_SUPERUSER_EMAIL": "a@example.org"}
PASSWORD = "correct horse"
#: Programs of the machine that the boxes use. No Redis server: the pages install one.
TOOLS = ("sh", "cat", "redis-cli")
#: Seconds: a schedule ticks once a minute, and code is loaded anew between two steps.
PATIENCE = 90.0
#: Where the pages say that programs listen: any of these may be taken here.
PORTS = ("8000", "8080", "6379")

#: Modules whose change restarts a process that runs with autoreload. Others are not imported by it, or not always.
LOADED = {
    "runconsumer": {"settings", "models", "tasks", "handlers"},
    "runserver": {"settings", "models", "tasks", "handlers", "urls", "views", "orders"},
}


class Newcomer:
    """Somebody with an empty folder, a new environment and a few terminals."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._bin, self._tools = folder / "env" / "bin", folder / "tools"
        venv.create(folder / "env", with_pip=True)
        self._tools.mkdir()
        for name in TOOLS:
            self._lend(name)
        self._ports = {port: str(free_port()) for port in PORTS}
        #: What cannot be typed as it is: no index has the package, nobody answers questions, ports may be taken.
        self._adapted = {
            '"mq-django': f'"{wheel}',
            "pip install": "pip --disable-pip-version-check -qq install",
            "createsuperuser": "createsuperuser --noinput",
            "runserver": "runserver 127.0.0.1:8000",
            **{f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in self._ports.items()},
        }
        #: Programs write to the folder of a user; what pip has downloaded stays where it is.
        self._home, home = folder / "home", Path.home()
        self._home.mkdir()
        self._pip = {"XDG_CACHE_HOME": str(home / ".cache"), "XDG_CONFIG_HOME": str(home / ".config")}
        self._exports = ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._browser = Browser()

    def _lend(self, name: str) -> None:
        if found := shutil.which(name):
            (self._tools / name).symlink_to(found)

    @property
    def env(self) -> dict[str, str]:
        foreign = ("PYTHON", "PYTEST", "DJANGO", "MQ_", "VIRTUAL_ENV", "COVERAGE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = f"{self._bin}{os.pathsep}{self._tools}"
        own = {"HOME": str(self._home), "PATH": path, "PYTHONUNBUFFERED": "1"}
        return {**self._pip, **inherited, **ADMIN, "DJANGO_SUPERUSER_PASSWORD": PASSWORD, **own}

    def do(self, kind: str, argument: str, code: str) -> None:
        getattr(self, f"_{kind.replace('-', '_')}")(argument, code)

    def output(self, name: str) -> str:
        return (self.folder.parent / f"{name}.txt").read_text(errors="replace")

    def _adapt(self, text: str) -> str:
        for of_page, here in self._adapted.items():
            text = text.replace(of_page, here)
        return text

    def _type(self, command: str, typed: str | None = None) -> str:
        command = self._exports + self._adapt(command)
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
        with (self.folder.parent / "terminal.txt").open("a", encoding="utf-8") as file:
            file.write(f"$ {command}\n{typed or ''}{done.stdout}\n")
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def _await(self, texts: str, said: str = "") -> None:
        for text in filter(None, texts.split(" / ")):
            wait_until(
                lambda text=text: text in said or text in self.output("runconsumer"), timeout=PATIENCE, message=text
            )

    def _run(self, argument: str, code: str) -> None:
        self._await(argument, self._type(code))
        if code.startswith("pip") and not [*self._bin.parent.glob("lib/*/site-packages/*lite")]:
            # No wheel with a server for this platform: "elsewhere install Redis".
            self._lend("redis-server")

    def _redis_cli(self, argument: str, code: str) -> None:
        if shutil.which("redis-cli"):
            self._run(argument, code)

    def _start(self, argument: str, code: str) -> None:
        words = code.split()
        name = words[2] if words[0] == "python" else words[0]
        self._leave_running(name, self._exports + f"exec {self._adapt(code.strip())}")
        wait_until(lambda: argument in self.output(name), timeout=60, message=f"{argument} in {name}.txt")

    def _leave_running(self, name: str, command: str) -> None:
        """Start a command in a terminal of its own. What its name has printed before is in `NAME-before.txt`."""
        log = self.folder.parent / f"{name}.txt"
        if log.exists():
            log.rename(log.with_stem(f"{name}-before"))
        with log.open("wb") as file:
            self._running[name] = subprocess.Popen(
                ["sh", "-c", command],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _redis_server(self, _: str, code: str) -> None:
        program, *options = code.split()
        folder = self.folder.parent / "redis"
        folder.mkdir()
        place = f"--bind 127.0.0.1 --port {self._ports['6379']} --dir {folder}"
        self._leave_running(program, f"exec {find_server().path} {' '.join(options)} {place}")
        wait_until(lambda: "eady to accept connections" in self.output(program), message=program)

    def _export(self, _: str, code: str) -> None:
        self._exports += self._adapt(code)

    def _file(self, path: str, code: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        self._write(file, (file.read_text(encoding="utf-8") + "\n\n" if file.exists() else "") + code)

    def _replace(self, path: str, code: str) -> None:
        (defined,) = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
        decorated = re.compile(rf"^@[^\n]*\ndef {defined}\(.*?(?=^@|\Z)", re.MULTILINE | re.DOTALL)
        file = self.folder / path
        text, times = decorated.subn(lambda _: code, file.read_text(encoding="utf-8"))
        assert times == 1
        self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        """Write a file, and wait until the processes that have loaded it have loaded it anew."""
        loaded = [
            name for name, stems in LOADED.items() if name in self._running and file.stem in stems and file.exists()
        ]
        starts = {name: self._starts(name) for name in loaded}
        file.write_text(text, encoding="utf-8")
        for name in loaded:
            wait_until(lambda name=name: self._has_restarted(name, starts[name], file), timeout=60, message=str(file))

    def _has_restarted(self, name: str, starts: int, file: Path) -> bool:
        """Return whether a process has started again; a file that was saved before its first look is saved again."""
        if time.time() - file.stat().st_mtime > 4:
            file.touch()
        return self._starts(name) > starts

    def _starts(self, name: str) -> int:
        return len(re.findall(r"Handling |development server at", self.output(name)))

    def _shell(self, argument: str, code: str) -> None:
        self._type("python manage.py shell", typed=code)
        self._await(argument)

    def _wait(self, argument: str, _: str) -> None:
        self._await(argument)

    def _skip(self, argument: str, _: str) -> None:
        assert argument

    def _stop(self, argument: str, _: str) -> None:
        assert self.stop(argument) == 0

    def _open(self, argument: str, _: str) -> None:
        address, _, texts = argument.partition(" => ")
        page = self._browser.wait_for(self._adapt(address))
        assert [text for text in texts.split(" / ") if text not in page] == [], page

    def _press(self, argument: str, _: str) -> None:
        what, _, texts = argument.partition(" => ")
        address, form, *fields = what.split()
        page = self._browser.wait_for(self._adapt(address))
        self._browser.press(page, form, **dict(field.split("=", 1) for field in fields))
        self._await(texts)

    def _redrive(self, argument: str, _: str) -> None:
        """Log in, open the queue's dead letters, and press the button on the page of the one with this error."""
        what, _, texts = argument.partition(" => ")
        queue, error = what.split(maxsplit=1)
        browser, pages_of_queue = self._browser, f"/admin/mq_django/queue/{queue}/"
        login = self._adapt("http://127.0.0.1:8000/admin/login/?next=/admin/mq_django/queue/")
        assert queue in browser.log_in(login, username="admin", password=PASSWORD)
        found = browser.open(f"{pages_of_queue}dead/")
        letters = sorted(set(re.findall(rf'href="({pages_of_queue}message/dead/[^"/]+/)"', found)))
        pages = {letter: browser.open(letter) for letter in letters}
        assert {"Traceback" in page for page in pages.values()} == {True}
        (letter,) = (letter for letter, page in pages.items() if error in page)
        asked = browser.press(browser.open(letter), "mq-do", action="redrive")
        browser.press(asked, "mq-confirm")
        self._await(texts)

    def status(self) -> dict[str, dict[str, int]]:
        return {row["queue"]: row for row in json.loads(self._type("python manage.py mq status --json"))}

    def stop(self, name: str) -> int:
        """Press Ctrl-C in a terminal."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(30)

    def go(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def newcomer(folder: Path) -> Iterator[Newcomer]:
    """Build the wheel, and let somebody try it; in the end print what all programs have printed."""
    someone = Newcomer(folder, build(copy_source(folder), "wheel"))
    try:
        yield someone
    finally:
        someone.go()
        for log in sorted(folder.glob("*.txt")):
            sys.stdout.write(f"--- {log.name}\n{log.read_text(errors='replace')}\n")
