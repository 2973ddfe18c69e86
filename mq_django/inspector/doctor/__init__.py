"""What is wrong with a project's servers, settings, consumers and code, and what to do about it.

A look (`findings.DoctorCheck`) is declared once: its code, such as D104, a level, a function that gets the facts of an
area and yields what it sees, and what to do about that. docs/doctor.md has a section for each code. A code is for what
loses, doubles, delays or stops messages. docs/deployment.md says what any monitoring of Redis shows.

    facts of a server, read once                        -> server_checks
    keys, queues, topics, heartbeats, settings and code -> checks, which takes the system checks as they are

Each thing is found in one place: the risks of a server as `runconsumer` logs them at its start are in
`transport.capabilities`, the problems of queues and outboxes as the admin and `mq status --check` show them in
`queue_view` and `outbox_views`.

`report.examine_project()` takes the looks of each area and puts their findings into one report. A server that cannot
be reached is a finding, and ends the looks at it. A look that fails is a finding, too, and ends no other.

Looks only read, in bounded time, and need no more rights than the admin: what a Redis user may not run is found out
without running it. A new look needs a line in the list of its module, a section in docs/doctor.md and a
test.
"""
