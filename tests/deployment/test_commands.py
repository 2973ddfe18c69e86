"""What the recipes start, started: from a project of its own, with the environment that they give it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mq_django.producers import queues
from mq_django.transport.private_server import PrivateServer
from tests.consumers.trees import kill
from tests.deployment.recipes import FOLDER, PROJECT, ROOT, UNITS, image_command, instructions, procfile, unit_command
from tests.install.wheels import build, copy_source, run
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def server(mq_settings):
    with PrivateServer(tcp=True) as started:
        mq_settings(CONNECTION=started.url, NAMESPACE="mq")
        yield started


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "shop"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def environment(server, tmp_path):
    """The variables of the recipes, and nothing of this process."""
    lines = (FOLDER / "environment").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert set(given) == {"DJANGO_SETTINGS_MODULE", "SECRET_KEY", "REDIS_URL", "DATABASE_URL"}
    return {**given, "REDIS_URL": server.url, "PATH": os.environ["PATH"], "NOTES": str(tmp_path / "notes")}


def handles(process, environment, queue):
    """Return whether a message is handled by what was started, and whether it stops with 0 at SIGTERM."""
    queues[queue].publish("note", "a message")
    notes = Path(environment["NOTES"])
    wait_until(lambda: process.poll() is not None or (notes.exists() and notes.read_text()), timeout=40)
    assert process.poll() is None, process.stdout.read()
    process.terminate()
    said, _ = process.communicate(timeout=30)
    assert "Traceback" not in said
    return notes.read_text() == "a message\n", process.returncode


def start(command, project, environment):
    return subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture
def port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def commands():
    yield pytest.param(unit_command(UNITS[0]), id=UNITS[0].name)
    yield pytest.param(unit_command(UNITS[1], "emails"), id=UNITS[1].name)
    yield pytest.param(procfile()["consumer"], id="Procfile")
    yield pytest.param(image_command(), id="Dockerfile")


@pytest.mark.parametrize("command", list(commands()))
def test_it_handles_messages_and_stops(command, server, project, environment, port):
    assert Path(command[0]).name == "python"
    # A free port in place of that of the recipe.
    command = [sys.executable, *(port if argument == "8080" else argument for argument in command[1:])]
    assert handles(start(command, project, {**environment, "PYTHONPATH": str(ROOT)}), environment, "emails") == (
        True,
        0,
    )


class Image:
    """A folder in place of an image, in which the steps of a Dockerfile are executed."""

    #: What needs Debian and root.
    SKIPPED = ("apt-get", "useradd")

    def __init__(self, root, context):
        self.root, self.context = root, context
        self.folder, self.environment, self.skipped = root, {}, []
        root.mkdir()

    def path(self, name):
        return self.root / name.lstrip("/") if name.startswith("/") else self.folder / name

    def build(self, dockerfile):
        for instruction, text in instructions(dockerfile):
            getattr(self, instruction.lower(), self.ignore)(text)

    def ignore(self, text):
        """It needs no step: USER, ENTRYPOINT and CMD are for the start, and each stage is the same folder."""

    def workdir(self, text):
        self.folder = self.path(text)
        self.folder.mkdir(parents=True, exist_ok=True)

    def env(self, text):
        found = dict(setting.split("=", 1) for setting in text.split())
        path = str(self.path(found.get("PATH", "/usr/bin").split(":")[0]))
        self.environment |= found | {"PATH": f"{path}:{os.environ['PATH']}"}

    def copy(self, text):
        source, target = text.split()[-2:]
        if "--from=" in text:
            assert self.path(source).exists()
        elif source == ".":
            ignored = (self.context / ".dockerignore").read_text().split()
            names = shutil.ignore_patterns(*(pattern.removeprefix("**/") for pattern in ignored))
            shutil.copytree(self.context, self.path(target), ignore=names, dirs_exist_ok=True)
        else:
            shutil.copy(self.context / source, self.path(target))

    def run(self, text):
        if any(program in text for program in self.SKIPPED):
            self.skipped.append(text)
            return
        shell = text.replace("/opt/", f"{self.root}/opt/").replace("python -m venv", f"{sys.executable} -m venv")
        run("sh", "-ec", shell, cwd=self.folder, env={"PATH": os.environ["PATH"], **self.environment})


@pytest.mark.timeout(600)
def test_the_steps_of_the_dockerfile_make_an_environment_that_handles_messages(
    server, project, environment, port, tmp_path
):
    wheel = build(copy_source(tmp_path / "source"), "wheel")
    (project / "requirements.txt").write_text(f"{wheel}\ngunicorn\n")
    (project / ".env").write_text("SECRET_KEY=of the developer")
    shutil.copy(FOLDER / ".dockerignore", project)
    image = Image(tmp_path / "image", project)
    image.build((FOLDER / "Dockerfile").read_text())
    assert len(image.skipped) == 1
    assert not (image.folder / ".env").exists()
    assert not (image.folder / ".dockerignore").exists()
    assert (image.folder / "static").exists()
    python = shutil.which("python", path=image.environment["PATH"])
    command = [python, *(port if argument == "8080" else argument for argument in image_command()[1:])]
    process = start(command, image.folder, {**environment, **image.environment})
    ready = f"http://127.0.0.1:{port}/ready"
    wait_until(lambda: process.poll() is not None or is_ready(ready), timeout=40)
    assert handles(process, environment, "default") == (True, 0)


def is_ready(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="systemd is for Linux")
def test_the_unit_becomes_ready_reloads_and_stops(server, project, environment, tmp_path):
    """As systemd would do it: with its socket, ExecReload and KillMode=mixed."""
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(40)
        systemd.bind(str(address))
        notified = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "60000000", "PYTHONPATH": str(ROOT)}
        process = start([sys.executable, *unit_command(UNITS[0])[1:]], project, {**environment, **notified})
        try:
            until(systemd, "READY=1")
            kill(process.pid, signal.SIGHUP)
            assert "MONOTONIC_USEC=" in until(systemd, "RELOADING=1")
            until(systemd, "READY=1")
            process.terminate()
            until(systemd, "STOPPING=1")
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.communicate()


def until(systemd, line):
    """Return the notification that has this line."""
    while True:
        received = systemd.recv(4096).decode()
        if line in received.splitlines():
            return received
