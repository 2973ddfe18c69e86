"""The verbs that every contender answers to, in Python and in JavaScript."""

import json
import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import driver, messages
from benchmarks.trees import ROOT


def options(**given):
    return SimpleNamespace(
        **{"count": 3, "kind": messages.NOTE, "bulk": False, "delay": 0.0, "rate": 1000.0, "slow_every": 0, **given}
    )


@pytest.fixture
def calls():
    return []


@pytest.fixture
def plain(calls):
    return SimpleNamespace(
        publish=lambda kind, data: calls.append((kind, data["n"])),
        publish_later=lambda kind, data, delay: calls.append((kind, data["n"], delay)),
        publish_many=lambda kind, many, delay: calls.append((kind, len(many), delay)),
    )


def test_each_message_is_published_once(plain, calls):
    assert driver.publish(plain, options()) > 0
    assert calls == [(messages.NOTE, 0), (messages.NOTE, 1), (messages.NOTE, 2)]


def test_a_delay_at_a_pace_says_when_it_is_due(calls):
    module = SimpleNamespace(publish_later=lambda kind, data, delay: calls.append((data, delay)))
    driver.pace(module, options(count=20, rate=100_000, delay=2.0))
    for data, delay in calls:
        assert 1.0 <= delay <= 3.0
        assert data["due_ns"] - data["sent_ns"] == int(delay * 1e9)


CONTENDER = """
const { appendFileSync } = require('node:fs')
const tell = (...words) => appendFileSync(process.env.CALLS, JSON.stringify(words) + '\\n')
module.exports = async ({ url, queue, safest }) => ({
  publish: async (kind, data) => tell('publish', kind, data),
  publishLater: async (kind, data, delay) => tell('later', delay, data),
  publishMany: async (kind, many, delay) => tell('many', many.length, delay),
  consume: (threads, handle) => tell('consume', threads, url, queue, safest)
})
"""


@pytest.fixture
def ask_node(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    (tmp_path / "contender.js").write_text(CONTENDER)
    told = tmp_path / "calls"

    def ask(*words):
        environment = {**os.environ, "CALLS": str(told), "BENCH_MODE": "safe", "BENCH_REDIS_URL": "redis://somewhere"}
        command = ["node", str(ROOT / "benchmarks" / "driver.js"), str(tmp_path / "contender.js"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=280)
        return done.stdout, [json.loads(line) for line in told.read_text().splitlines()]

    return ask


def test_node_publishes_the_same_data(ask_node):
    output, calls = ask_node("publish", "--count", "3", "--kind", "note")
    assert json.loads(output)["count"] == 3
    assert [(kind, data["n"]) for _, kind, data in calls] == [("note", 0), ("note", 1), ("note", 2)]
    ours = messages.make(2)
    theirs = calls[2][2]
    moments = ("sent_ns", "due_ns")
    assert {**theirs, **dict.fromkeys(moments)} == {**ours, **dict.fromkeys(moments)}
    assert theirs["sent_ns"] <= ours["sent_ns"], "both are on one clock"
