"""Safeguards that a scenario stands against: is the proof worth anything? `python -m tests.mutations chaos` asks.

It takes one safeguard out of a copy of the tree at a time, and plays the scenario: the checker must find a violation
each time. A copy, because a product that can switch its safeguards off has none. Safeguards to which faults hardly ever
get are in the table of `tests.mutations`, or here, when they are in several files.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.chaos.mutation import Mutation
from tests.chaos.surroundings import servers

ROOT = Path(__file__).parent.parent.parent
#: Seconds of one scenario, with everything that goes wrong in it.
LIMIT = 240
#: What goes wrong is a matter of moments: a safeguard is missed when none of these shows that it is missing.
SEEDS = ("mutation", "another", "third")


LUA = "mq_django/transport/lua"
LINE_STORE = "mq_django/stores/line_store.py"

#: Instead of the settling script, a second round trip removes the tokens and has the lines of their keys looked at.
DROPS_LATER = """        stale, _ = self._settling.settle(consumer, settlements, also=also)
        tokens = [f"{one.delivery.stream}-{one.delivery.entry.decode()}" for one in settlements]
        (hashes,) = self._wire.trip([("ZMSCORE", self.keys.permits, *tokens)])
        known = [argument for found in hashes if found is not None for argument in (1, found)]
        looks = [("ZADD", self.keys.next_checks, *known)] if known else []
        self._wire.trip([("ZREM", self.keys.permits, *tokens), *looks])
        replies = self._wire.trip(then)
"""

MUTATIONS = [
    Mutation(
        name="the fence: who lost a delivery settles it all the same",
        files=[f"{LUA}/parts/stream_receipts.lua"],
        pattern=r"#redis\.call\('xpending', [^\n]*\) == 1",
        replacement="true",
        scenario="stops",
    ),
    Mutation(
        name="the reconciliation: nobody looks for what was handed out with a lost reply",
        files=["mq_django/consumers/worker/queue_reader.py"],
        pattern=r"    def _take_stranded\(self\) -> None:\n",
        replacement="    def _take_stranded(self) -> None:\n        return\n",
        scenario="bad-roads",
    ),
    Mutation(
        name="the reclaiming: what a dead supervisor's consumers held stays theirs",
        files=["mq_django/consumers/supervisor/reclaimer.py"],
        pattern=r"(def reclaim\w*\([^)]*\) -> int:\n)",
        replacement=r"\1    return 0\n",
        scenario="kills",
        times=2,
    ),
    Mutation(
        name="the order of writes: a message leaves its place, and then there turns out to be no other for it",
        files=[f"{LUA}/parts/{name}.lua" for name in ("settle", "retry", "bury")],
        # Swapped where they are written, and without the look at the types before.
        pattern=r"( +move\(entry, at\)\n)( +receipts\.finish\(entry\)\n)|  if wrong then\n[^\n]*\n  end\n",
        replacement=r"\2\1",
        scenario="hostile",
    ),
    Mutation(
        name="the cleaning up: what a handler leaves open stays open for the next",
        files=["mq_django/consumers/worker/executor.py"],
        pattern=r"if databases\.held and databases\.is_disturbed\(\):",
        replacement="if False:",
        scenario="unruly",
        times=2,
    ),
    Mutation(
        name="the note of a success: a step is acked, and nothing says so to its run",
        files=[f"{LUA}/steps_ack.lua"],
        pattern=r"  note_step\(notes, unpack\(arguments[^\n]*\n",
        replacement="",
        scenario="workflows",
    ),
    Mutation(
        name="the note of a failure: a step is buried, and nothing says so to its run",
        files=[f"{LUA}/parts/bury.lua"],
        pattern=r"    note_step\(notes, [^\n]*\n",
        replacement="",
        scenario="workflows",
    ),
    Mutation(
        name="the claim of a start: a step is published again that another process has published",
        files=["mq_django/stores/waiting_room.py"],
        pattern=r"\{_STARTED\}\{message\.id\}",
        replacement="{_STARTED}{message.id}{id(args)}",
        scenario="workflows",
    ),
    Mutation(
        name="the order of a fetch: a blocked read takes messages before their keys are asked for",
        files=[LINE_STORE],
        pattern=r"( +)if not self\._take_again and not self\._wait\(block_ms\):\n",
        replacement=r"\1if not self._take_again:\n"
        r"\1    if found := self._source.fetch(consumer, count=count, block_ms=min(block_ms, LINE_WAIT_MS)):\n"
        r"\1        return found\n"
        r"\1else:\n",
        scenario="ordered",
    ),
    Mutation(
        name="the place of a head: what is handed back goes to the end, and its key on",
        files=[f"{LUA}/lines_hand_back.lua"],
        pattern=r"#undelivered\(ready, group, 1\) > 0 and urgent or ready",
        replacement="ready",
        also=[(f"{LUA}/parts/hand_back.lua", r"if receipts\.pass then", "if false then")],
        scenario="ordered",
    ),
    Mutation(
        name="the token in the settling script: a second command drops it",
        files=[f"{LUA}/parts/line_receipts.lua"],
        pattern=r"(    finish\(\.\.\.\)\n)    local now\n(?:    +[^\n]*\n)+?    end\n(  end\n)",
        replacement=r"\1\2",
        also=[
            (
                LINE_STORE,
                r" +stale, replies = self\._settling\.settle\([^\n]*, then=then\)\n",
                DROPS_LATER,
            ),
            (
                LINE_STORE,
                r" +return self\._settling\.settle\([^\n]*, then=\[self\._wake_command\(\)\]\)\[0\]\n",
                "        then = [self._wake_command()]\n" + DROPS_LATER + "        return stale\n",
            ),
        ],
        scenario="ordered",
        test="tests/stores/test_order_per_key.py",
    ),
]


def mutate(root: Path, mutation: Mutation) -> None:
    """Take the safeguard out of a copy.

    Raises:
        ValueError: a file does not have it as often as it should, so that the mutation proves nothing.
    """
    edits = [(name, mutation.pattern, mutation.replacement, mutation.times) for name in mutation.files]
    edits += [(*edit, 1) for edit in mutation.also]
    for name, pattern, replacement, times in edits:
        path = root / name
        text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
        if count != times:
            raise ValueError(f"{name} has {count} in place of {times} of {pattern!r}")
        path.write_text(text, encoding="utf-8")


def violations(root: Path, scenario: str, seed: str) -> int:
    """Play a scenario in a copy, and return how many violations the checker found."""
    command = [sys.executable, "-m", "tests.chaos", "--seed", seed, "--store", "stream"]
    command += ["--server", str(servers()[-1]), scenario]
    # What never becomes well is not waited for as long as it would be otherwise.
    env = {**os.environ, "CHAOS_HASTE": "1"}
    try:
        played = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return 1
    lines = played.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{scenario} did not come to its end: {played.stderr[-2000:]}")
    return int(json.loads(lines[-1])["violations"])
