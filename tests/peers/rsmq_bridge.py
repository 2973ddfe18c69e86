"""Our class behind RSMQ's API: a JSON line [method, options] in, a JSON line {ok} or {error} out."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings

from mq_django.errors import RSMQError
from mq_django.rsmq import RSMQ, Received

#: Details that our errors have after RSMQ's own text.
DETAILS = re.compile(r"[:,] .*", re.DOTALL)


def as_npm(found: Received | None) -> dict[str, Any]:
    """Return a received message as npm's rsmq does."""
    if found is None:
        return {}
    return {"id": found.id, "message": found.message, "rc": found.rc, "fr": found.fr, "sent": found.sent}


def call(rsmq: RSMQ, method: str, options: Mapping[str, Any]) -> Any:
    """Call the method of our class, and return the result as npm's rsmq does."""
    queue, message_id = options.get("qname"), options.get("id")
    numbers = {name: options[name] for name in ("vt", "delay", "maxsize") if options.get(name) is not None}
    calls: Mapping[str, Callable[[], Any]] = {
        "createQueue": lambda: rsmq.create_queue(queue, **numbers) or 1,
        "deleteQueue": lambda: rsmq.delete_queue(queue) or 1,
        "listQueues": lambda: sorted(rsmq.list_queues()),
        "getQueueAttributes": lambda: rsmq.get_queue_attributes(queue)._asdict(),
        "setQueueAttributes": lambda: rsmq.set_queue_attributes(queue, **numbers)._asdict(),
        "sendMessage": lambda: rsmq.send(queue, options.get("message"), **numbers),
        "receiveMessage": lambda: as_npm(rsmq.receive(queue, **numbers)),
        "popMessage": lambda: as_npm(rsmq.pop(queue)),
        "deleteMessage": lambda: int(rsmq.delete(queue, message_id)),
        "changeMessageVisibility": lambda: int(rsmq.change_visibility(queue, message_id, **numbers)),
        "quit": lambda: "OK",
    }
    return calls[method]()


def answer(rsmq: RSMQ, method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a call, or its error by RSMQ's name and text."""
    try:
        return {"ok": call(rsmq, method, options)}
    except RSMQError as error:
        return {"error": {"name": error.name, "message": DETAILS.sub("", str(error))}}


def main(*, realtime: bool) -> None:
    """Answer calls until the input ends."""
    settings.configure(MQ_DJANGO={"CONNECTION": os.environ["MQ_REDIS_URL"]})
    rsmq = RSMQ(realtime=realtime)
    for line in sys.stdin:
        print(json.dumps(answer(rsmq, *json.loads(line))), flush=True)  # noqa: T201 - the other end reads it


if __name__ == "__main__":
    main(realtime=sys.argv[1] == "realtime")
