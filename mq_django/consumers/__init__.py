"""The processes of `runconsumer`: a supervisor and its consumers. Here is what both use.

    supervisor/   starts and watches consumers, and does what needs no handler
    worker/       a consumer: it fetches, runs and settles messages

The two speak through `shared_state`: memory in which a consumer notes which delivery each of its slots runs, and
which deliveries have ended. It outlives the consumer, so whatever kills that process, its supervisor knows what ran.

`decisions` decides what becomes of a delivery that failed, was interrupted, or was held by a dead consumer: it is the
only place that counts attempts. It also sends the signals of what was settled.

`service.Service` is the loop of every background thread: it calls `run_once`, waits, and survives errors. `each`
gives each queue its part of a round, so that a queue that fails or is slow holds up no other; queues are grouped by
the server that they are on. `Liveness` finds out whether a thread is stuck. `processes` identifies this machine and its
processes.

Nothing here waits without a timeout, and no thread ends silently.
"""
