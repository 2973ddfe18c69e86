"""What tests of supervisors share."""

import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

SETTINGS = """
    import json, os, sys, time
    from pathlib import Path
    from tests.consumers.project.settings import *

    INSTALLED_APPS += ["fresh"]
    MQ_DJANGO |= json.loads(Path(__file__).with_name("changes.json").read_text())
"""
HANDLERS = """
    from mq_django import every, handler, subscriber, task
    from tests.consumers.project.history import note
"""


class Site:
    """A project whose code and settings change while its consumers run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fresh").mkdir(parents=True)
        (folder / "fresh" / "__init__.py").touch()
        self.write("fresh/handlers.py", HANDLERS)
        self.write("changes.json", "{}")
        self.write("site_settings.py", SETTINGS)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def add(self, name: str, text: str) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))


@pytest.fixture
def signal_state() -> Iterator[None]:
    """Put back what a command does to the signals of this process."""
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    handlers, mask = [signal.getsignal(number) for number in handled], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in zip(handled, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Site(tmp_path / "code")
