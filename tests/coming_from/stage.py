"""A project in a folder of its own, in which the boxes of a side are played with real workers and a real Redis."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.coming_from.boxes import Box
from tests.shell import shell_environment
from tests.waiting import becomes_true, wait_until

PROJECT = Path(__file__).parent / "project"
#: The address on the pages. Nothing connects to it: the boxes get that of the test's server.
ADDRESS = "127.0.0.1:6379"
#: Seconds for a worker to start, and for everything to be printed: a schedule fires once a minute.
START, END = 60.0, 100.0


class Stage:
    """Plays boxes, and stops what they have started when it is left."""

    def __init__(self, folder: Path, *, url: str, programs: Path, **variables: str) -> None:
        self.folder = Path(shutil.copytree(PROJECT, folder))
        self._address = url.removeprefix("redis://")
        self._log = folder.parent / f"{folder.name}.log"
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self._environment = shell_environment(
            PATH=path, PYTHONUNBUFFERED="1", DJANGO_SETTINGS_MODULE="mysite.settings", **variables
        )
        # After the project itself, which `celery` and others do not add.
        self._environment["PYTHONPATH"] = os.pathsep.join([str(folder), self._environment["PYTHONPATH"]])
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def printed(self) -> str:
        """What all commands and workers have printed."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def play(self, boxes: list[Box]) -> None:
        """Play boxes one after another, then wait until everything that they expect is printed."""
        for place, box in enumerate(boxes):
            if box.kind == "start" and not self._processes:
                self._look_before_the_start(boxes[place:])
            getattr(self, f"_{box.kind}")(box, box.text.replace(ADDRESS, self._address))
        expected = [text for box in boxes if box.kind in ("shell", "wait") for text in box.expected]
        if not becomes_true(lambda: all(text in self.printed for text in expected), within=END):
            missing = [text for text in expected if text not in self.printed]
            raise AssertionError(f"{missing} not printed:\n{self.printed}")

    def _look_before_the_start(self, boxes: list[Box]) -> None:
        for box in boxes:
            if box.earlier:
                printed = self._command(["sh", "-ec", box.text.replace(ADDRESS, self._address)]).stdout
                assert box.earlier in printed, f"{box.text}\n{printed}"

    def _file(self, box: Box, text: str) -> None:
        path = self.folder / box.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{text}")

    def _write(self, box: Box, text: str) -> None:
        (self.folder / box.argument).write_text(text, encoding="utf-8")

    def _wait(self, box: Box, text: str) -> None:
        """Nothing is to be done: play() waits in the end."""

    def _start(self, box: Box, text: str) -> None:
        for line in text.splitlines():
            with self._log.open("ab") as log:
                self._processes.append(
                    subprocess.Popen(
                        shlex.split(line, comments=True),
                        cwd=self.folder,
                        env=self._environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        wait_until(
            lambda: all(text in self.printed for text in box.expected) or self._ended(), timeout=START, message=box.text
        )
        assert not self._ended(), self.printed

    def _ended(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def _shell(self, box: Box, text: str) -> None:
        command = ["node", "-e", text] if box.language == "js" else ["python", "manage.py", "shell", "-c", text]
        self.check(command)

    def _run(self, box: Box, text: str) -> None:
        if not box.expected:
            self.check(["sh", "-ec", text])
            return
        (expected,) = box.expected
        wait_until(
            lambda: expected in self._command(["sh", "-ec", text]).stdout,
            timeout=END,
            message=f"{expected} in the output of {text}",
        )

    def check(self, command: list[str]) -> None:
        """Run a command, which must succeed."""
        done = self._command(command)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{self.printed}"

    def _command(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        program = shutil.which(command[0], path=self._environment["PATH"])
        assert program, f"{command[0]} is not installed"
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=END,
            check=False,
        )
        with self._log.open("a", encoding="utf-8") as log:
            log.write(done.stdout)
        return done
