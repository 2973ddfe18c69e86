"""`python -m tests.mutations [WORD]...`: see the package."""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tests.chaos.surroundings import servers
from tests.mutations.table import Mutation, mutations

ROOT = Path(__file__).parent.parent.parent
#: Mutations tried side by side.
AT_ONCE = 2
#: Seconds of one run of pytest, and of one test: a mutation with which they do not end is found.
LIMIT, TEST_LIMIT = 600, 120
#: Before the name of a scenario, in the place of tests; and seconds of one, with everything that goes wrong in it.
SCENARIO, PLAYED = "scenario:", 240
#: What goes wrong is a matter of moments: a safeguard is missed when none of these shows that it is missing.
SEEDS = ("mutation", "another", "third")
NOT_COPIED = (".git", ".venv*", "build", "__pycache__", "node_modules", ".*_cache", "*.egg-info")
FOUND, MISSED, BROKEN = "found", "MISSED", "BROKEN"
_FAILED = re.compile(r"^(\S+\.py::.*?) (?:FAILED|ERROR)\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mutation, and what became of it."""

    mutation: Mutation
    verdict: str = ""
    #: The test that has found it, or why it was not found.
    by: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        row = self.mutation
        return f"{self.verdict:6} {row.topic}: {row.name} ({self.seconds:.0f} s): {self.by}"


def run_tests(root: Path, arguments: Sequence[str]) -> tuple[int, list[str], str]:
    """Run tests in a copy, and return pytest's exit code, the tests that failed, and the end of what it said."""
    command = [sys.executable, "-m", "pytest", *arguments, "-v", "--tb=no", "-n", "0", "-o", f"timeout={TEST_LIMIT}"]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly"]
    # The tests have settings of their own. Their processes must not import what is installed: the tree itself.
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    env["PYTHONPATH"] = str(root)
    ran = subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, _ = ran.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        ran.send_signal(signal.SIGINT)  # so that it ends its servers
        with suppress(subprocess.TimeoutExpired):
            ran.communicate(timeout=20)
        ran.kill()
        return 1, [], "it came to no end"
    return ran.returncode, _FAILED.findall(said), said[-500:].replace("\n", " ")


class Runner:
    """Tries mutations in copies of the tree, which are restored after each.

    Args:
        folder: gets the copies.
    """

    def __init__(self, folder: Path) -> None:
        #: The copies that nobody uses now.
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(AT_ONCE):
            root = folder / str(number)
            shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
            self._copies.put(root)

    def attempt(self, case: Case) -> Case:
        """Try a mutation, and return it with what became of it."""
        with self._copy() as root:
            began = time.monotonic()
            before = {name: (root / name).read_text(encoding="utf-8") for name in case.mutation.files}
            try:
                case.mutation.apply(root)
                verdict, by = _tried(root, case.mutation.tests)
            except (ValueError, RuntimeError) as error:
                verdict, by = BROKEN, str(error).replace("\n", " ")
            finally:
                for name, text in before.items():
                    (root / name).write_text(text, encoding="utf-8")
            return replace(case, verdict=verdict, by=by, seconds=time.monotonic() - began)

    def failing_anyway(self, tests: Sequence[str]) -> list[str]:
        """Return which tests fail without any mutation."""
        with self._copy() as root:
            code, failed, said = run_tests(root, tests) if tests else (0, [], "")
        if code not in (0, 1) or bool(code) != bool(failed):
            raise RuntimeError(f"The tests that found mutations cannot be run without any: {said}")
        return failed

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        root = self._copies.get()
        try:
            yield root
        finally:
            self._copies.put(root)


def _tried(root: Path, tests: str) -> tuple[str, str]:
    if scenario := tests.removeprefix(SCENARIO) if tests.startswith(SCENARIO) else "":
        return FOUND if any(_violations(root, scenario, seed) for seed in SEEDS) else MISSED, f"the scenario {scenario}"
    code, failed, said = run_tests(root, [*shlex.split(tests), "-x"])
    if code == 0:
        return MISSED, tests
    return (FOUND, failed[0] if failed else said) if code == 1 else (BROKEN, said)


def _violations(root: Path, scenario: str, seed: str) -> int:
    """Play a scenario in a copy, and return how many violations the checker found."""
    command = [sys.executable, "-m", "tests.chaos", "--seed", seed, "--store", "stream"]
    command += ["--server", str(servers()[-1]), scenario]
    # What never becomes well is not waited for as long as it would be otherwise.
    env = {**os.environ, "CHAOS_HASTE": "1"}
    try:
        played = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=PLAYED, check=False)
    except subprocess.TimeoutExpired:
        return 1
    lines = played.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"{scenario} did not come to its end: {played.stderr[-2000:]}")
    return int(json.loads(lines[-1])["violations"])


def chosen(words: Sequence[str]) -> list[Mutation]:
    """Return the mutations of some topics, and those with some words in their names; of no words all."""
    rows = list(mutations())
    topics = {row.topic for row in rows}.intersection(words)
    parts = set(words) - topics
    return [row for row in rows if not words or row.topic in topics or any(part in row.name for part in parts)]


def main() -> int:
    """Try the chosen mutations, and return 1 unless all are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("words", nargs="*", metavar="WORD", help="a topic, or a part of a name; none: all mutations")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write verdict, topic, name, test and seconds of each"
    )
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    given = parser.parse_args()
    rows = chosen(given.words)
    if given.list:
        sys.stdout.writelines(f"{row.topic}: {row.name} ({row.tests})\n" for row in rows)
        return 0
    with tempfile.TemporaryDirectory(prefix="mq-mutations-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        runner = Runner(Path(folder))
        running: list[Future[Case]] = [pool.submit(runner.attempt, Case(mutation=row)) for row in rows]
        try:
            for number, done in enumerate(as_completed(running), 1):
                _say(f"[{number}/{len(rows)}] {done.result()}")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
        tried = [done.result() for done in running]
        anyway = runner.failing_anyway(sorted({case.by for case in tried if case.verdict == FOUND and "::" in case.by}))
    tried = [replace(one, verdict=BROKEN, by=f"{one.by} fails anyway") if one.by in anyway else one for one in tried]
    if given.record:
        told = (
            "\t".join((one.verdict, one.mutation.topic, one.mutation.name, one.by, f"{one.seconds:.0f}"))
            for one in tried
        )
        given.record.write_text("".join(f"{row}\n" for row in told), encoding="utf-8")
    others = [one for one in tried if one.verdict != FOUND]
    _say(f"\n{len(tried) - len(others)} of {len(tried)} mutations were found, {len(others)} were not")
    for one in others:
        _say(str(one))
    return 1 if others else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
