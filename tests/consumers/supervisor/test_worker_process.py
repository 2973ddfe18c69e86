from types import SimpleNamespace

from mq_django.consumers.supervisor import launcher
from mq_django.consumers.supervisor.launcher import command, environment


def test_a_consumer_gets_few_heaps_unless_its_environment_says_otherwise(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert environment()["MALLOC_ARENA_MAX"] == "2"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert environment()["MALLOC_ARENA_MAX"] == "8"


def test_another_interpreter_has_the_options_of_this_one(monkeypatch):
    # As of `python -O -O -Werror::UserWarning -Xdev -Xutf8=1`.
    own = SimpleNamespace(
        executable="python",
        flags=SimpleNamespace(optimize=2),
        warnoptions=["default", "error::UserWarning"],
        _xoptions={"dev": True, "utf8": "1"},
    )
    monkeypatch.setattr(launcher, "sys", own)
    options = ["-O", "-O", "-Wdefault", "-Werror::UserWarning", "-Xdev", "-Xutf8=1"]
    assert command("--drain") == ["python", *options, "-m", "django", "runconsumer", "--drain"]
