"""What servers take for the pieces of a script, beside the first of them: processor time of the server, on Linux.

python -m benchmarks.script_costs /usr/bin/redis-server /path/of/another/server
"""

import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from mq_django.transport.private_server import PrivateServer, ServerBinary

#: Rounds, and calls in a pipeline.
ROUNDS, CALLS = 9, 400
PIECES = {
    "an empty script": "return 1",
    "1,000 turns of a loop": "local x = 0 for i = 1, 1000 do x = x + i end return x",
    "200 strings": "local t = {} for i = 1, 200 do t[i] = 'a' .. i end return #table.concat(t)",
    "200 tables": "local t = {} for i = 1, 200 do t[i] = { i, i } end return #t",
    "200 finds": "for i = 1, 200 do string.find('abc:def', ':', 1, true) end return 1",
    "100 calls of GET": "for i = 1, 100 do redis.call('get', 'k') end return 1",
    "100 calls of XADD": "for i = 1, 100 do redis.call('xadd', 's', 'maxlen', '1000', '*', 'a', 'b') end return 1",
}


def micros(client: Any, pid: int, *command: str) -> float:
    """Return the microseconds of its processor that a server takes for a command."""
    pipeline = client.pipeline(transaction=False)
    for _ in range(CALLS):
        pipeline.execute_command(*command)
    before = _used(pid)
    pipeline.execute()
    return (_used(pid) - before) / CALLS / 1000


def _used(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def main() -> None:
    """Measure in turns, and print the median of each piece by server."""
    paths = [Path(each) for each in sys.argv[1:]]
    found: dict[str, list[list[float]]] = {name: [[] for _ in paths] for name in ("GET", *PIECES)}
    with ExitStack() as stack:
        servers = [stack.enter_context(PrivateServer(binary=ServerBinary(path=path, origin="PATH"))) for path in paths]
        clients: list[Any] = [redis.Redis.from_url(server.url) for server in servers]
        for _ in range(ROUNDS):
            for number, (server, client) in enumerate(zip(servers, clients, strict=True)):
                assert server.pid
                found["GET"][number].append(micros(client, server.pid, "get", "k"))
                for name, text in PIECES.items():
                    sha = client.script_load(text)
                    found[name][number].append(micros(client, server.pid, "evalsha", sha, "0"))
        for path, client in zip(paths, clients, strict=True):
            info = client.info()
            version = info.get("valkey_version") or info["redis_version"]
            print(f"{path}: {version}, {info['mem_allocator']}, gcc {info['gcc_version']}")
    for name, values in found.items():
        took = [statistics.median(each) for each in values]
        print(f"{name}: " + ", ".join(f"{each:.2f} us ({each / took[0]:.2f})" for each in took))


if __name__ == "__main__":
    main()
