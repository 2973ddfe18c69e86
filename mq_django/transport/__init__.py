"""Connections to Redis, local Redis servers, and Lua scripts.

A `Transport` sends commands. `pipeline()` sends several commands of one hash slot in one round trip, and returns a
reply or an error for each; `pipelines()` does so for several slots or queues. Its callers do not know whether it is one
connection (`sessions.Session`), a pool (`sessions.Pooled`) or a Redis Cluster (`cluster_transport`).

    CONNECTION of the settings -> locations -> connections -> sessions / cluster_transport -> stores

`scripts.command()` returns the call of a script in `lua/`: one transition a file, with its keys in `KEYS`. What
several scripts share is in `lua/parts/` and is included when a script is loaded.

`failures` translates the errors of redis-py into errors of `mq_django.errors`, with advice for connecting.
`private_server` starts servers: also the embedded one, which all processes of a project share. `test_server` starts one
for a test run, and `test_mode` decides whether it is used.

No command here is repeated after an error, because it may have been executed: its sender decides. Nothing waits
for Redis without a timeout.
"""
