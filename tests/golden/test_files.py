"""Golden files fail a test when they differ, and are written only when somebody asks for it."""

from pathlib import Path

import pytest

from tests.golden import files
from tests.golden.keyspace import dump
from tests.golden.normal import MINUTE, Normal
from tests.golden.test_consuming import FEATURES as CONSUMING
from tests.golden.test_publishing import FEATURES as PUBLISHING
from tests.golden.test_publishing import KEYS

NOW = 1_795_000_000_000


def test_a_difference_fails_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv(files.WRITE, raising=False)
    path = tmp_path / "queue.txt"
    path.write_text("a\nb\n")
    files.check(tmp_path, {"queue": "a\nb\n"})
    with pytest.raises(pytest.fail.Exception) as failed:
        files.check(tmp_path, {"queue": "a\nc\n"})
    assert "\n-b\n+c\n" in str(failed.value)
    assert files.COMMAND in str(failed.value)
    assert "CHANGELOG.md" in str(failed.value)
    assert path.read_text() == "a\nb\n"


def test_a_file_that_is_missing_fails(tmp_path, monkeypatch):
    monkeypatch.delenv(files.WRITE, raising=False)
    with pytest.raises(pytest.fail.Exception, match=r"golden new\.txt"):
        files.check(tmp_path, {"new": "a\n"})
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv(files.WRITE, "1")
    files.check(tmp_path, {"queue": "a\n"})
    assert (tmp_path / "queue.txt").read_text() == "a\n"


def test_each_file_has_its_feature():
    published = {f"publish-{feature.__name__.replace('_', '-')}" for feature in PUBLISHING}
    consumed = {f"consume-{feature}" for feature in [*CONSUMING, "heartbeat"]}
    assert {path.stem for path in Path(KEYS).iterdir()} <= published | consumed


def test_what_differs_between_runs_has_a_name():
    expected = [
        ("teri1d9m1fz836 teri1d9m1fz837 teri1d9m1fz836", "<id 1> <id 2> <id 1>"),
        ("o7nuebr38y2z2", "<token 1>"),
        ("hoe2cfby3i29dur0BjaxR3GA5ZIVdKjq:rc", "<rsmq 1>:rc"),
        (f"{NOW}-0", "<entry>"),
        (f"{NOW - 4 * MINUTE} {NOW + 56 * MINUTE} {NOW - 6 * MINUTE}", "<now> <now +60 min> <past>"),
        (f"{NOW // 1000} {NOW * 1000}", "<now> <now>"),
        ("4122935603728068 9007199254740992 -1759218604441598", "4122935603728068 9007199254740992 -1759218604441598"),
        ("2026-11-18T12:06:40Z", "<now +60 min>"),
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ('{"pid":123,"threads":8}', '{"pid":<own>,"threads":8}'),
        (
            "Traceback (most recent call last):\n  File x\n    raise ValueError(1)\nValueError: 1",
            "<traceback>ValueError: 1",
        ),
        ("welcome user:7 u:cart-3 my-own {}", "welcome user:7 u:cart-3 my-own {}"),
    ]
    assert [(raw, Normal(NOW).text(raw)) for raw, _ in expected] == expected


def test_names_do_not_depend_on_which_id_is_smaller():
    normal = Normal(NOW)
    assert normal.alike("a teri1d9m1fz83f") == normal.alike("a b4riw3mm1fz8310") == "a <id>"


def test_what_two_batches_wrote_at_once_is_shown_in_one_order(redis_client, namespace):
    ids = ["teri1d9m1fz836", "teri1d9m1fz837"]
    for queue, order in (("mq:a", ids), ("mq:b", ids[::-1])):
        for number, message_id in enumerate(order, 1):
            redis_client.xadd(f"{namespace}:{queue}:dead", {"id": message_id}, id=f"{NOW}-{number}")
            redis_client.hset(f"{namespace}:{queue}:dead-ids", message_id, f"{NOW}-{number}")
        found = dump(redis_client, namespace, f"{queue}:*").replace(f"{queue}:", "")
        assert found.split("\n") == [
            "mq:dead  stream",
            *("    <entry>", "        id <id 1>"),
            *("    <entry>", "        id <id 2>"),
            "mq:dead-ids  hash",
            "    <id 1> -> <entry>",
            "    <id 2> -> <entry>",
            "",
        ]
