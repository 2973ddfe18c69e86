"""`python -m tests.compat [--seconds N]`: an older version and this one share all keys under load.

Both versions publish, consume, cancel, claim unique keys and read results. Each version's consumers are replaced once,
as in a rolling deploy. Nothing may be lost, and without a fault nothing may be done twice.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from mq_django.transport.private_server import PrivateServer
from tests.compat.history import read
from tests.compat.judge import Account, faults
from tests.compat.versions import OLD_COMMIT, ROOT, NoHistory, Version, export, stop
from tests.waiting import becomes_true

#: Seconds to work everything off after the last publish.
DRAIN = 60.0
#: Words of log lines that no run without a fault may have.
ALARMS = (" ERROR ", " CRITICAL ", "Traceback")
#: What such a line has when a handler failed because its message says so.
PURPOSE = "on purpose"


def run(seconds: float, folder: Path) -> list[str]:
    """Let both versions work side by side, and return a sentence for each promise that was not kept."""
    export(OLD_COMMIT, folder / "old")
    with PrivateServer(tcp=True) as server:
        old = Version(label="old", path=folder / "old", connection=server.url, folder=folder)
        new = Version(label="new", path=ROOT, connection=server.url, folder=folder)
        began = time.monotonic()
        # The old one first, as in a deploy: the new one finds keys that it did not write.
        consumers = {old: old.consumer(), new: new.consumer()}
        producers: list[subprocess.Popen[bytes]] = []
        found = []
        try:
            found += _load(server.url)
            producers += [version.producer(seconds) for version in (old, new)]
            loaded = time.monotonic()
            for part, version in enumerate((old, new), start=1):
                _sleep_until(loaded + seconds * part / 3)
                code = stop(consumers[version])
                if code:
                    found.append(f"the {version.label} supervisor ended with {code}")
                consumers[version] = version.consumer()
                found += _load(server.url)
            found += ["a producer failed" for producer in producers if producer.wait(seconds + 60)]
            found += _come_to_rest(folder, server.url)
            elapsed = time.monotonic() - began
            found += [f"the {v.label} supervisor ended with {code}" for v in consumers if (code := stop(consumers[v]))]
        finally:
            for process in (*consumers.values(), *producers):
                process.kill() if process.poll() is None else None
        account = Account(read(folder))
        _tell(account)
        return [*found, *faults(account, seconds=elapsed), *_results(account, old, new), *_logs(old, new)]


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _load(url: str) -> Iterator[str]:
    """Wait until a consumer of each version has loaded the project, which takes its time on a busy machine."""
    with redis.Redis.from_url(url, protocol=2, socket_timeout=10) as client:

        def are_loaded() -> bool:
            found = client.hgetall("mq:{plain}:consumers")
            told = [json.loads(value) for name, value in found.items() if name.startswith(b"consumer:")]
            return len(told) == 2 and not any(each.get("starting") for each in told)

        if not becomes_true(are_loaded, within=DRAIN):
            yield "the consumers of both versions did not start"


def _come_to_rest(folder: Path, url: str) -> Iterator[str]:
    """Wait until everything is worked off, and yield what is left."""
    account: Account

    def is_done() -> bool:
        nonlocal account
        account = Account(read(folder))
        return not account.missing()

    if not becomes_true(is_done, within=DRAIN):
        yield f"after {DRAIN:g} s there was still something to do"
    with redis.Redis.from_url(url, protocol=2, socket_timeout=10) as client:
        if not becomes_true(lambda: client.xlen("mq:{plain}:dead") == len(account.dying), within=DRAIN):
            yield f"{client.xlen('mq:{plain}:dead')} dead letters instead of {len(account.dying)}"
        for queue in ("limited", "log:first", "log:second"):
            if dead := client.xlen(f"mq:{{{queue}}}:dead"):
                yield f"{dead} dead letters in {queue}"


def _results(account: Account, *versions: Version) -> Iterator[str]:
    lines = "".join(f"{result} {value}\n" for result, value in account.results.items())
    for version in versions:
        right = version.read_results(lines)
        if right != len(account.results):
            yield f"the {version.label} version read {right} of {len(account.results)} results right"


def _logs(*versions: Version) -> Iterator[str]:
    for version in versions:
        # A record goes on in indented lines.
        records = re.split(r"\n(?! )", version.logged())
        # What is published to fail is logged as that.
        alarms = [record for record in records if any(word in record for word in ALARMS) and PURPOSE not in record]
        if alarms:
            yield f"the {version.label} version logged {len(alarms)} errors, such as: {alarms[0].splitlines()[0]}"


def _tell(account: Account) -> None:
    say = sys.stdout.write
    columns = [(by, of) for by in ("old", "new") for of in ("old", "new")]
    say(f"{'kind':<14}" + "".join(f"{f'{by} to {of}':>12}" for by, of in columns) + "\n")
    for kind in sorted(account.published):
        say(f"{kind:<14}" + "".join(f"{account.crossings[kind][pair]:>12}" for pair in columns) + "\n")
    say(
        f"published {sum(map(len, account.published.values()))}, buried {len(account.dying)}, "
        f"cancelled {len(account.cancelled)}, ticks {len(account.ticks)}, results {len(account.results)}, "
        f"lost {sum(map(len, account.missing().values()))}, doubled {sum(map(len, account.doubled().values()))}\n"
    )


def main() -> int:
    """Run, write a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long both versions publish.")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mq-compat-"))
    try:
        found = run(options.seconds, folder)
    except NoHistory as error:
        found = [str(error)]
    for sentence in found:
        sys.stdout.write(f"  {sentence}\n")
    if found:
        sys.stdout.write(f"The history and the logs are in {folder}\n")
    else:
        shutil.rmtree(folder)
    sys.stdout.write(f"{0 if found else 1} passed, {1 if found else 0} failed\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
