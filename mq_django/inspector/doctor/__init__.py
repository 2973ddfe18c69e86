"""What is wrong with a project's servers, settings, consumers and code, and what to do about it.

A look (`findings.Look`) is a function that gets the facts of an area and yields findings. Each finding has a code,
such as D104, a level, what was seen and what to do; docs/doctor.md has a section for each code.

    facts of a server, read once    -> server_looks, replication_looks, memory_trend, rights, key_looks
    queues, topics and heartbeats   -> queue_looks
    this process and its machine    -> project_looks, machine_looks

`report.look_at_project()` takes the looks of each area and puts their findings into one report. A server that cannot
be reached is a finding, and ends the looks at it. A look that fails is a finding, too, and ends no other.

Looks only read, in bounded time, and need no more rights than the admin: what a Redis user may not run is found out
without running it (`rights`). A new look needs a line in the list of its module, a section in docs/doctor.md and a
test.
"""
