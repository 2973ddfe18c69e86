"""The process that starts and watches consumers, and runs the background services of their queues.

`supervisor.Supervisor` is the main loop: it handles signals, looks after the consumers (`worker_set`, `workers`), and
answers probes and systemd (`health`). It runs no handler, so no code of the project can stop it.

`services.ServerServices` starts these services for the queues on one server:

    heartbeat     says that this supervisor is alive, and finds those that are not
    reclaimer     settles the deliveries of dead consumers
    promoter      makes delayed messages ready when they are due
    scheduler     publishes the messages of schedules
    chores        keep topics, histories and the inbox within their limits, run background jobs, look after workflows
    others        announced handlers, long handlers, the outbox

Each service may run in any number of supervisors at once: what must happen once is one script in Redis. There is no
leader.

`launcher` starts consumers: forks of a `template`, which has loaded the project and does nothing else, or where that
is not safe, new interpreters. `reload` replaces them on SIGHUP, one after another, when the new code has loaded;
`preflight` checks servers before anything starts.
"""
