"""The project whose messages are published and handled under faults."""

import json
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["mq_django", "tests.chaos.apps.Chaos"]
DATABASES: dict[str, Any] = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

#: Set in the environment, it is the database of all processes, as JSON, and gives the consumers the queues of orders.
TRANSACTIONS = "CHAOS_TRANSACTIONS"
if os.environ.get(TRANSACTIONS):
    # As most servers keep their connections.
    DATABASES["default"] = {"CONN_MAX_AGE": None, **json.loads(os.environ[TRANSACTIONS])}
    if find_spec("pymysql") is not None:
        pymysql = import_module("pymysql")
        # The driver that Django expects has another name, and a newer version.
        pymysql.version_info = (2, 2, 7, "final", 0)
        pymysql.install_as_MySQLdb()
#: The queue of orders, that of what is booked, and a topic that keeps every order.
ORDERS, LEDGER, PLACED = "orders", "ledger", "placed"
#: The keys of orders.
KEYS = [f"customer-{number}" for number in range(40)]

#: What the messages lie in: "stream", "topic" or "rsmq".
STORE = os.environ.get("CHAOS_STORE", "stream")
STORES = ("stream", "topic", "rsmq")
TOPIC = "work"
#: What the runtime calls the queue: of a topic, one of its groups.
QUEUE = "work:all" if STORE == "topic" else "work"
#: Set in the environment, it gives the consumers two queues more.
NEIGHBOURS = "CHAOS_NEIGHBOURS"
STREAM_NEIGHBOUR, RSMQ_NEIGHBOUR = "beside", "beside-rsmq"
#: The queues of workflows. Consumers serve them if this is set in the environment.
FLOWS = "CHAOS_FLOWS"
FLOW_QUEUE, FLOW_QUEUE_BESIDE = "flows", "flows-beside"
#: Set in the environment, it gives the queue ORDERED.
IN_ORDER = "CHAOS_IN_ORDER"
#: Set in the environment, it gives the queue a handler that calls a partner, with a breaker.
PARTNER = "CHAOS_PARTNER"
#: Its breaker: the results that count, half of which open it, and seconds between two probes.
PARTNER_OF, PARTNER_PROBE = 20, 0.5
#: The file, in the folder of the history, that exists while the partner is away.
PARTNER_FLAG = "partner-away"
#: Set in the environment, it gives the queue STREAM, and a handler that streams.
STREAMS = "CHAOS_STREAMS"
#: Readers of each stream: one begins at once, one late, and one stops now and then, and goes on from anywhere.
READERS = ("early", "late", "restless")
#: Set in the environment, it gives the consumers the queues of a cluster: on each of three masters some, of every kind.
CLUSTER = "CHAOS_CLUSTER"
SPREAD_PLAIN, SPREAD_ORDERED = ("plain-a", "work", "plain-b"), ("lines", "lines-c", "lines-b")
SPREAD_RSMQ, SPREAD_TOPIC = "mails", "log"
#: A queue with a partition on each master, and these partitions.
PARTITIONED, PARTITIONS = "parts", 3
SPREAD_PARTS = tuple(f"{PARTITIONED}.{number}" for number in range(PARTITIONS))
#: A group of a topic with a partition on each master, and its partitions.
SPREAD_EVENTS = "events"
SPREAD_LOGS = tuple(f"{SPREAD_EVENTS}.{number}:all" for number in range(PARTITIONS))
#: The queues and groups with partitions.
WHOLES = (PARTITIONED, f"{SPREAD_EVENTS}:all")
#: All that have a slot of their own.
SPREAD = (*SPREAD_PLAIN, *SPREAD_ORDERED, *SPREAD_PARTS, *SPREAD_LOGS, SPREAD_RSMQ, f"{SPREAD_TOPIC}:all")
#: Short, so that a run sees many deaths: the promise is about multiples of it.
VISIBILITY_SECONDS = 3
MAX_ATTEMPTS = 5


def mq_django(connection: str) -> dict[str, Any]:
    """Return MQ_DJANGO for a server."""
    options: dict[str, Any] = {"MAX_ATTEMPTS": MAX_ATTEMPTS, "RETRY": {"delay": 0.3, "factor": 1, "jitter": 0}}
    if os.environ.get(STREAMS):
        options["STREAM"] = True
    streams = {**options, "VISIBILITY_TIMEOUT": VISIBILITY_SECONDS}
    beside: dict[str, Any] = {FLOW_QUEUE: streams, FLOW_QUEUE_BESIDE: streams}
    if os.environ.get(CLUSTER):
        ordered = {**streams, "ORDERED": True}
        served = {**dict.fromkeys(SPREAD_PLAIN, streams), **dict.fromkeys(SPREAD_ORDERED, ordered)}
        rsmq = {**options, "STORE": "rsmq", "NAMESPACE": "{rsmq}", "VT": VISIBILITY_SECONDS}
        served |= {PARTITIONED: {**ordered, "PARTITIONS": PARTITIONS}, SPREAD_RSMQ: rsmq}
        logs = {SPREAD_TOPIC: streams, SPREAD_EVENTS: {**streams, "PARTITIONS": PARTITIONS}}
        return {"CONNECTION": connection, "QUEUES": {**beside, **served}, "TOPICS": logs}
    if os.environ.get(TRANSACTIONS):
        # A message that many faults hit is no dead letter.
        orders = {**streams, "MAX_ATTEMPTS": 30}
        served = {ORDERS: {**orders, "ORDERED": True, "OUTBOX": True}, LEDGER: orders, QUEUE: streams}
        return {"CONNECTION": connection, "QUEUES": {**beside, **served}, "TOPICS": {PLACED: {"OUTBOX": True}}}
    if STORE == "rsmq":
        mine = {**options, "STORE": "rsmq", "VT": VISIBILITY_SECONDS}
        return {"CONNECTION": connection, "QUEUES": {**beside, QUEUE: mine}}
    if STORE == "topic":
        return {"CONNECTION": connection, "QUEUES": beside, "TOPICS": {TOPIC: streams}}
    if os.environ.get(NEIGHBOURS):
        foreign = {"STORE": "rsmq", "NAMESPACE": STREAM_NEIGHBOUR, "VT": 3}
        beside |= {STREAM_NEIGHBOUR: streams, RSMQ_NEIGHBOUR: foreign}
    order = {"ORDERED": True} if os.environ.get(IN_ORDER) else {}
    return {"CONNECTION": connection, "QUEUES": {**beside, QUEUE: {**streams, **order}}}


def queues() -> list[str]:
    """Return the queues that consumers serve."""
    if os.environ.get(CLUSTER):
        return [*(name for name in SPREAD if name not in (*SPREAD_PARTS, *SPREAD_LOGS)), *WHOLES]
    if os.environ.get(TRANSACTIONS):
        return [ORDERS, LEDGER]
    if os.environ.get(FLOWS):
        return [QUEUE, FLOW_QUEUE, FLOW_QUEUE_BESIDE]
    return [STREAM_NEIGHBOUR, RSMQ_NEIGHBOUR, QUEUE] if os.environ.get(NEIGHBOURS) else [QUEUE]


def is_beside(key: str) -> bool:
    """Tell whether a key is a neighbour's, of which nothing is promised."""
    return key.startswith((f"{STREAM_NEIGHBOUR}:", f"mq:{{{STREAM_NEIGHBOUR}}}:"))


MQ_DJANGO = mq_django(os.environ.get("CHAOS_CONNECTION", "unix:///nowhere/redis.sock"))
