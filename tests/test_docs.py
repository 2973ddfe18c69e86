"""The README is run as a new user would: its files written, its commands typed, its output awaited."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import processes
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"<!-- (file|run|mend): (.+?) -->\n```python\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
FILES = [(name, code) for kind, name, code in BLOCKS if kind == "file"]
STEPS = [block for block in BLOCKS if block[0] != "file"]


def mend(path, code, supervisor):
    """Write a function anew, and let the consumers take it up."""

    def consumers():
        return {each.pid for each in processes() if each.parent == supervisor and "runconsumer" in each.command}

    (defined,) = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
    decorated = re.compile(rf"^@[^\n]*\ndef {defined}\(.*?(?=^@|\Z)", re.MULTILINE | re.DOTALL)
    text, times = decorated.subn(lambda _: code, path.read_text(encoding="utf-8"))
    assert times == 1
    path.write_text(text, encoding="utf-8")
    before = consumers()
    os.kill(supervisor, signal.SIGHUP)
    wait_until(lambda: consumers() and not consumers() & before, timeout=30)


@pytest.fixture
def project(tmp_path):
    """A new Django project with the README's files in it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "site_.settings"}
    start = [sys.executable, "-m", "django", "startproject", "site_", "."]
    subprocess.run(start, cwd=tmp_path, env={**env, "DJANGO_SETTINGS_MODULE": ""}, check=True, timeout=60)
    (tmp_path / "shop" / "migrations").mkdir(parents=True)
    for folder in ("shop", "shop/migrations"):
        (tmp_path / folder / "__init__.py").touch()
    for name, code in FILES:
        path = tmp_path / ("site_/settings.py" if name == "settings.py" else name)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + code)

    def manage(*arguments, **options):
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=tmp_path, env=env, check=True, timeout=60, **options
        )

    manage("makemigrations", "shop")
    manage("migrate", "--verbosity", "0")
    manage.path = tmp_path
    manage.env = env
    return manage


@pytest.mark.slow
def test_the_readme_works_from_top_to_bottom(project):
    assert len(STEPS) >= 4
    output = project.path / "output.txt"
    with output.open("wb") as file:
        consumer = subprocess.Popen(
            [sys.executable, "manage.py", "runconsumer"],
            cwd=project.path,
            env=project.env,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for kind, name, code in STEPS:
            if kind == "mend":
                mend(project.path / name, code, consumer.pid)
                continue
            project("shell", "--command", code)
            wait_until(lambda text=name: text in output.read_text(), timeout=30)
        assert output.read_text().count("Cart 1 is still waiting") == 1
        # A replay of one group, and of no other.
        assert [output.read_text().count(f"{done} order 7.") for done in ("Billed", "Packed")] == [1, 1]
    finally:
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(30) == 0, output.read_text()


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
