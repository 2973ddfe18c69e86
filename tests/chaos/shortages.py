"""9, 10, 11: Redis's clock jumps, its memory is used up, its disk is full; the consumers' temporary folder, too."""

import os
import time
from pathlib import Path

from redis.exceptions import RedisError

from tests.chaos.stage import Stage
from tests.waiting import wait_until

#: Seconds, one after another; each is the distance from the machine's clock.
STEPS = (3600, -3600, 5, -5, 0)


def clock_steps(stage: Stage, rounds: int) -> None:
    """9: the server's clock is stepped by an hour and by five seconds, either way."""
    clock = stage.surroundings.clock
    assert clock is not None
    for number in range(rounds):
        stage.pause(0.5, 1.0)
        offset = STEPS[number % len(STEPS)]
        name = stage.strike("clock", lambda: _step(stage, clock, offset), pids=stage.pids())  # noqa: B023
        stage.heal(name)
        stage.pause(0.5, 1.0)
    # What was delayed by a clock that was an hour ahead is due when that hour has come.
    stage.heal(stage.strike("clock", lambda: _step(stage, clock, 2 * max(STEPS)), pids=stage.pids()))


def _step(stage: Stage, clock: Path, offset: int) -> None:
    stage.history.note("clock", offset=offset)
    fresh = clock.with_suffix(".new")
    fresh.write_text(f"{offset:+d}", encoding="ascii")
    fresh.replace(clock)

    def shows() -> bool:
        with stage.client as client:
            return bool(abs(client.time()[0] - time.time() - offset) < 2)

    wait_until(shows, timeout=10, message="the server's clock is stepped")
    # Due times were given by either clock until now.
    stage.history.note("clock", offset=offset)


def memory_runs_out(stage: Stage, rounds: int) -> None:
    """10: Redis is at its maxmemory; producers are told so, and consumers work off what is there."""
    with stage.client as client:
        for _ in range(rounds):
            stage.pause(0.5, 1.0)
            used = int(client.info("memory")["used_memory"])
            name = stage.strike("memory", lambda: client.config_set("maxmemory", used) and None, pids=stage.pids())  # noqa: B023
            stage.pause(1.0, 2.0)
            client.config_set("maxmemory", 0)
            stage.heal(name)


def disk_fills_up(stage: Stage, rounds: int) -> None:
    """11: Redis cannot write its file, and refuses everything; nobody ends for it."""
    disk = stage.surroundings.disk
    assert disk is not None
    for _ in range(rounds):
        stage.pause(0.5, 1.0)
        name = stage.strike("disk", lambda: _fill(disk), pids=stage.pids())
        wait_until(lambda: _refuses(stage), timeout=10, message="Redis notices that its disk is full")
        stage.pause(0.5, 1.5)
        (disk / "filler").unlink()
        wait_until(lambda: not _refuses(stage), timeout=10, message="Redis notices that there is room again")
        stage.heal(name)


def _fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler:
        block = bytes(2**20)
        while block:
            try:
                filler.write(block)
            except OSError:
                block = block[: len(block) // 2]
        os.fsync(filler.fileno())


def temporary_folder_fills_up(stage: Stage, rounds: int) -> None:
    """The consumers' temporary folder is full; they go on, and those that die are replaced."""
    folder = stage.surroundings.temporary
    assert folder is not None
    for _ in range(rounds):
        stage.pause(0.5, 1.0)
        name = stage.strike("temporary", lambda: _fill(folder), pids=stage.pids(), spares=True)
        for tree in stage.trees:
            (pid, *_) = wait_until(tree.children, timeout=30)
            stage.kill(pid)
            wait_until(lambda: len(set(tree.children()) - {pid}) > 1, timeout=30)  # noqa: B023 - called at once
            stage.pause(0.5, 1.0)
        (folder / "filler").unlink()
        stage.heal(name)


def _refuses(stage: Stage) -> bool:
    try:
        with stage.client as client:
            client.ping()
    except RedisError as error:
        return "MISCONF" in str(error)
    return False
