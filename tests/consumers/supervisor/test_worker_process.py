import os
import subprocess
import sys

from mq_django.consumers.supervisor.launcher import command, environment


def test_a_consumer_gets_few_heaps_unless_its_environment_says_otherwise(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert environment()["MALLOC_ARENA_MAX"] == "2"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert environment()["MALLOC_ARENA_MAX"] == "8"


def test_another_interpreter_has_the_options_of_this_one():
    options = ["-O", "-O", "-Werror::UserWarning", "-Xdev", "-Xutf8=1"]
    show = f"from {command.__module__} import command; print(*command('--drain'))"
    environ = {**os.environ, "PYTHONWARNINGS": ""}
    shown = subprocess.check_output([sys.executable, *options, "-c", show], env=environ, text=True, timeout=60)
    assert shown.split()[1:-4] == [*options[:2], "-Wdefault", *options[2:]]
    assert shown.split()[-4:] == ["-m", "django", "runconsumer", "--drain"]
