"""Management commands: `runconsumer` and `mq`.

`verbs` is the table of the verbs of `mq`: the name of each, its arguments, and the function that does it, whose first
line of documentation is the help. An argument says which other one it `needs`, and `Verb.run_with()` refuses it without
that. `commands/mq.py` gives the table to argparse, finds the verb, and turns errors into one line and an exit status.

A function gets the options and the terminal, and returns a `terminal.VerbResult`: JSON values, and lines for people.
The functions are in modules by what they are about:

    queue_verbs (status, pause, resume, line), capacity_verbs (limit, repartition)
    message_verbs (find, publish, export), job_verbs (redrive, purge, jobs)
    process_verbs (consumers, activity, doctor, metrics), schedule_verbs, workflow_verbs, topic_verbs, outbox_verbs

They read and act through `mq_django.inspect` and the inspector, so that they show what the admin's pages show.
`terminal.columns()` makes JSON values of the attributes of a view. A verb that deletes or moves messages says what it
would do, and does it with --yes. None asks a question, and none reads a key of its own.

A new verb needs a line in the table, a section in docs/commands.md and a test.
"""
