"""PyRSMQ at the other end of a pipe: a JSON line [method, options] in, a JSON line {ok} or {error} out."""

import json
import sys

import redis
from rsmq import RedisSMQ


def main(url: str, namespace: str) -> None:
    """Answer until the pipe ends."""
    client = redis.Redis.from_url(url, decode_responses=True, protocol=2)
    for line in sys.stdin:
        method, options = json.loads(line)
        try:
            queue = RedisSMQ(client=client, ns=namespace, qname=options.pop("qname", None), exceptions=True)
            told = {"ok": getattr(queue, method)(**options).execute()}
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            told = {"error": type(error).__name__, "message": str(error)}
        sys.stdout.write(json.dumps(told, default=list) + "\n")
        sys.stdout.flush()


main(*sys.argv[1:3])
