"""Management commands: `runconsumer` and `mq`.

A verb of `mq` is a `terminal.Verb`: its name, its arguments, and a function that returns a `VerbResult`: JSON values,
and lines for people. The modules whose names end in verbs declare them, grouped by what they are about:

    status_verbs, queue_verbs, limit_verbs, topic_verbs, schedule_verbs, workflow_verbs
    message_verbs, find_verbs, dead_letter_verbs, job_verbs, outbox_verbs
    consumer_verbs, health_verbs

`commands/mq.py` has the table of them, and turns errors into one line and an exit status. Verbs read through the
inspector, so that they show what the admin's pages show. `listing` reads the messages that the options of a verb
select, `as_dict` makes JSON of views.

A verb that deletes or moves messages shows what it would do, and does it with --yes. A new verb needs a section in
docs/commands.md and a test.
"""
