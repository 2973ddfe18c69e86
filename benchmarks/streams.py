"""What a chunk costs that a handler streams: its thread, Redis, and memory; and how many a second one handler can.

python -m benchmarks.streams
"""

import os
from dataclasses import replace
from statistics import median
from typing import Any

import django

from benchmarks import messages
from benchmarks.contenders import HANDLERS
from benchmarks.trial import Trial
from mq_django import queues, read_stream
from mq_django.conf import get_config

#: Measurements of each, of which the medians are shown.
ROUNDS = 5
#: Chunks of a run that never pauses, so that they are sent in batches, and of one that pauses after each for so many
#: seconds, so that each is sent alone.
BURST, ALONE, PAUSE = 10_000, 200, 0.02
#: Bytes of a chunk.
SIZES = (5, 200)
OPTIONS = '{"STREAM": {"bytes": 67108864}}'


def measure(client: Any, size: int, count: int, pause: float) -> dict[str, float]:
    """Let a handler stream, and return what each chunk took."""
    client.config_resetstat()
    message = queues[messages.queue_name(0)].publish("stream", {"count": count, "size": size, "pause": pause})
    key = get_config().queue(messages.queue_name(0)).keys.message_stream(message)
    *_, line, end = read_stream(message, queue=messages.queue_name(0), timeout=60)
    first = client.xrange(key, count=1)[0][0].decode()
    scripts = client.info("commandstats")["cmdstat_evalsha"]
    return {
        "us of the handler's thread": int(line.value) / count / 1000,
        "us of Redis": scripts["usec"] / count,
        "script calls": scripts["calls"] / count,
        "bytes in Redis": client.memory_usage(key, samples=0) / count,
        "chunks/s": count / max(1, _ms(end.id) - _ms(first)) * 1000,
    }


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])


def main() -> None:
    """Measure, and print a line for each size of chunks, in batches and alone."""
    with Trial(replace(HANDLERS, variables={"BENCH_OPTIONS": OPTIONS})) as trial:
        os.environ.update(trial.environment())
        django.setup()
        with trial.consumer():
            for size in SIZES:
                for count, pause in ((BURST, 0.0), (ALONE, PAUSE)):
                    measure(trial.client, size, count, pause)
                    rounds = [measure(trial.client, size, count, pause) for _ in range(ROUNDS)]
                    found = {name: median(each[name] for each in rounds) for name in rounds[0]}
                    told = ", ".join(f"{value:,.2f} {name}" for name, value in found.items())
                    print(f"{size} bytes, {'each alone' if pause else 'in batches'}: {told}")


if __name__ == "__main__":
    main()
