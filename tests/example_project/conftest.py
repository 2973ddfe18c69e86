"""The example project inside the test project: its settings, and a real gateway process when asked for."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import django
import pytest
from pytest_django import Settings

from example_project import settings as example_settings
from tests.conftest import MQSettings
from tests.outbox import relays

ROOT = Path(__file__).parents[2]

StartGateway = Callable[..., str]


@pytest.fixture
def start_gateway() -> Iterator[StartGateway]:
    """Start gateway processes: `start_gateway(failing=1)` returns the address of one that always fails."""
    with ExitStack() as stack:

        def start(**shares: float) -> str:
            # Nothing goes wrong but what the test asks for.
            wanted = {"failing": 0, "slow": 0, "gone": 0, "unknown": 0, **shares}
            options = [f"--{name.replace('_', '-')}={value}" for name, value in wanted.items()]
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "example_project.gateway", *options],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.terminate)
            assert process.stdout is not None
            return process.stdout.readline().strip()

        yield start


def relay_rows() -> None:
    """Publish what is in the outbox, as a consumer's relay does."""
    relays.run(relays.relay("default"))


@pytest.fixture
def mail_folder(tmp_path: Path) -> Path:
    """Where this test's mails go."""
    folder = tmp_path / "mails"
    folder.mkdir()
    return folder


@pytest.fixture
def shop(settings: Settings, mq_settings: MQSettings, mail_folder: Path) -> Settings:
    """The shop's own settings, on this test's Redis, database and mail folder."""
    for name in ("ROOT_URLCONF", "DEFAULT_FROM_EMAIL", "GATEWAY_TIMEOUT", "TEMPLATES"):
        setattr(settings, name, getattr(example_settings, name))
    backend = example_settings.MAIL_BACKEND
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend, "OPTIONS": {"file_path": mail_folder}}}
    else:
        settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = backend, mail_folder
    mq_settings(QUEUES=example_settings.QUEUES, TOPICS=example_settings.TOPICS)
    return settings
