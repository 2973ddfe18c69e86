"""What runs in a contender's own environment: publish, publish at a pace, consume.

python -m benchmarks.driver benchmarks.peers.rq publish --count 1000

A contender's module has the functions `publish(kind, data)`, `publish_later(kind, data, delay)` and, if it can,
`publish_many(kind, many, delay)`, all three plain or `async`; a `session()`, an asynchronous context manager around
them, if it needs one; and `consumer(processes, threads)`, which returns a command. `driver.js` is the same for node.
"""

import argparse
import asyncio
import inspect
import json
import os
import random
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from benchmarks import messages

#: Messages of one call, for those who can publish many with one.
BULK = 1000
#: Published before the clock starts: connections and caches.
WARM_UP = 20


Calls = Iterable[tuple[Any, ...]]


def call_each(module: Any, function: Callable[..., Any], calls: Calls, *, warm_up: Calls = ()) -> float:
    """Call a function for each tuple of arguments, after some that do not count; return the seconds.

    Coroutine functions are called on one event loop, within the module's `session()` if it has one.
    """
    if inspect.iscoroutinefunction(function):
        return asyncio.run(_await_each(module, function, calls, warm_up))
    for arguments in warm_up:
        function(*arguments)
    began = time.perf_counter()
    for arguments in calls:
        function(*arguments)
    return time.perf_counter() - began


async def _await_each(module: Any, function: Callable[..., Any], calls: Calls, warm_up: Calls) -> float:
    async with module.session() if hasattr(module, "session") else nullcontext():
        for arguments in warm_up:
            await function(*arguments)
        began = time.perf_counter()
        for arguments in calls:
            await function(*arguments)
        return time.perf_counter() - began


def publish(module: Any, options: argparse.Namespace) -> float:
    """Publish messages as fast as can be, one by one or in bulk, and return the seconds."""
    made = [messages.make(number) for number in range(options.count)]
    if options.bulk:
        chunks = [made[at : at + BULK] for at in range(0, len(made), BULK)]
        return call_each(module, module.publish_many, [(options.kind, chunk, options.delay) for chunk in chunks])
    if options.delay:
        return call_each(module, module.publish_later, [(options.kind, data, options.delay) for data in made])
    calls = [(options.kind, data) for data in made]
    # Only of what leaves no trace: the others are counted.
    return call_each(module, module.publish, calls, warm_up=calls[:WARM_UP] if options.kind == messages.NOOP else ())


def paced(options: argparse.Namespace) -> Calls:
    """Yield the arguments of publish calls, each at its moment."""
    shuffled = random.Random(7)  # the same moments for all
    at = time.monotonic()
    for number in range(options.count):
        # Not at even steps: they could fall in step with somebody's poll.
        at += shuffled.uniform(0.5, 1.5) / options.rate
        time.sleep(max(0.0, at - time.monotonic()))
        kind = messages.SLOW if options.slow_every and number % options.slow_every == 50 else options.kind
        delay = options.delay and shuffled.uniform(0.5, 1.5) * options.delay
        data = messages.make(number, delay=delay)
        yield (kind, data, delay) if delay else (kind, data)


def pace(module: Any, options: argparse.Namespace) -> float:
    """Publish messages at a rate, each at a random moment, and return the seconds."""
    return call_each(module, module.publish_later if options.delay else module.publish, paced(options))


def consume(module: Any, options: argparse.Namespace) -> None:
    """Become the contender's consumer."""
    os.environ["BENCH_THREADS"] = str(options.threads)
    command = module.consumer(options.processes, options.threads)
    os.execvp(command[0], command)


def main() -> None:
    """Do what the command line says, and print the seconds it took as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("verb", choices=["publish", "pace", "consume"])
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kind", choices=messages.KINDS, default=messages.NOOP)
    parser.add_argument("--bulk", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds")
    parser.add_argument("--rate", type=float, default=50.0, help="messages a second")
    parser.add_argument("--slow-every", type=int, default=0, help="one in so many takes a second")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    module = import_module(options.module)
    if options.verb == "consume":
        consume(module, options)
    seconds = publish(module, options) if options.verb == "publish" else pace(module, options)
    print(json.dumps({"count": options.count, "seconds": seconds}))


if __name__ == "__main__":
    main()
