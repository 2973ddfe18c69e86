"""`python -m tests.chaos.mutations [SCENARIO]...`: is the proof worth anything? Each whole run asks, too.

Takes one safeguard out of a copy of the tree at a time, and plays the scenario that it stands against: the checker must
find a violation each time. Where faults hardly ever get to a safeguard, a test must fail instead. A copy, because a
product that can switch its safeguards off has none.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.mutation import Mutation
from tests.chaos.surroundings import servers
from tests.chaos.transaction_mutations import TRANSACTION_MUTATIONS

ROOT = Path(__file__).parent.parent.parent
#: Seconds of one scenario, with everything that goes wrong in it.
LIMIT = 240
#: What goes wrong is a matter of moments: a safeguard is missed when none of these shows that it is missing.
SEEDS = ("mutation", "another", "third")
#: Mutations tried side by side.
AT_ONCE = 2


LUA = "mq_django/transport/lua"
LINE_STORE = "mq_django/stores/line_store.py"
ORDER_TESTS = "tests/stores/test_order_per_key.py"

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
        name="the order of notes: a failure counts that is known after the success of its step",
        files=[f"{LUA}/workflows_advance.lua"],
        pattern=r"(function events\.failed[^\n]*\n)  if step\.state ~= 'S' and [^\n]*\n    return\n  end\n",
        replacement=r"\1",
        scenario="workflows",
        test="tests/workflows/test_event_orders.py",
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
        name="the wait for a retry: the token of a key is dropped with each attempt",
        files=[f"{LUA}/parts/retry.lua"],
        pattern=r"    if receipts\.keeps_order then\n[^\n]*\n    end\n",
        replacement="",
        scenario="ordered",
        test=ORDER_TESTS,
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
        test=ORDER_TESTS,
    ),
    Mutation(
        name="the token of what is purged: its key waits until somebody finds that nothing runs",
        files=[f"{LUA}/stream_purge.lua"],
        pattern=r"    drop_token\([^\n]*\n",
        replacement="",
        times=2,
        scenario="ordered",
        test=ORDER_TESTS,
    ),
    Mutation(
        name="the choice of what is sent again: a whole trip is, of which a node has executed a part",
        files=["mq_django/transport/redirections.py"],
        pattern=r"    return \[at for at in among if isinstance\(replies\[at\], _REFUSALS\) or [^\n]*\n",
        replacement="    return among\n",
        scenario="cluster-reshard",
        test="tests/transport/test_cluster_wires.py",
    ),
    Mutation(
        name="the look after a failover: what the new master never heard to be settled stays pending",
        files=["mq_django/consumers/worker/queue_reader.py"],
        pattern=r"if self\._moves != self\._session\.moves:",
        replacement="if False:",
        scenario="cluster-kills",
        test="tests/consumers/test_cluster_failover.py",
    ),
    *TRANSACTION_MUTATIONS,
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


def violations(root: Path, scenario: str, seed: str) -> tuple[int, str]:
    """Play a scenario in a copy, and return how many violations the checker found, and what it said of them."""
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--seed",
        seed,
        "--server",
        str(servers()[-1]),
        "--store",
        "stream",
        scenario,
    ]
    # What never becomes well is not waited for as long as it would be otherwise.
    env = {**os.environ, "CHAOS_HASTE": "1"}
    try:
        played = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return 1, f"    {scenario} came to no end\n"
    lines = played.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{scenario} did not come to its end: {played.stderr[-2000:]}")
    told = "".join(f"    {line.strip()}\n" for line in lines if line.startswith("    ") or "BROKEN" in line)
    return int(json.loads(lines[-1])["violations"]), told


def failures(root: Path, test: str) -> tuple[int, str]:
    """Run a file of tests in a copy until one fails, and return how many have failed, and which."""
    shutil.copy(ROOT / "pyproject.toml", root)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", test]
    # The tests have settings of their own: those of a run of scenarios may be in the environment.
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    try:
        ran = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return 1, f"    {test} came to no end\n"
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{test} did not come to its end: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED")]
    return len(failed), "".join(f"    {line}\n" for line in failed)


def survives(mutation: Mutation) -> bool:
    """Tell whether the proof does not notice that a safeguard is missing, and say what it noticed."""
    told = ""
    with tempfile.TemporaryDirectory(prefix="mq-mutation-") as folder:
        root = Path(folder)
        for part in ("mq_django", "tests", "example_project"):
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        mutate(root, mutation)
        for seed in SEEDS:
            found, told = failures(root, mutation.test) if mutation.test else violations(root, mutation.scenario, seed)
            if found or mutation.test:
                break
    verdict = told if found else "    SURVIVES: the proof does not see it\n"
    sys.stdout.write(f"without {mutation.name} ({mutation.test or mutation.scenario})\n{verdict}")
    sys.stdout.flush()
    return not found


def survivors(mutations: Sequence[Mutation]) -> list[str]:
    """Return the names of the mutations that the proof does not see."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        alive = list(pool.map(survives, mutations))
    return [mutation.name for mutation, there in zip(mutations, alive, strict=True) if there]


def of_tier(tier: str) -> list[Mutation]:
    """Return the mutations that a whole run of a tier tries: in CI there is no time for those of transactions."""
    return [one for one in MUTATIONS if tier == "nightly" or one not in TRANSACTION_MUTATIONS]


def main(scenarios: Sequence[str]) -> int:
    """Try the mutations of some scenarios, or all, and return 1 when one survives."""
    return 1 if survivors([one for one in MUTATIONS if not scenarios or one.scenario in scenarios]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
