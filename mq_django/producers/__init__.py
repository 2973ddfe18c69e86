r"""Publishing to queues and topics, and what code of a project does with them afterwards.

`queues["name"]` and `topics["name"]` are the entries. Each publish takes the same way:

    Queue.publish -> core.publication -> middleware -> sinks.send -> a store, now
                                                               \-> on commit: a store, or a row of the outbox

`sinks` chooses by the destination, by its option OUTBOX and by whether a transaction is open. A batch is one call of
a script. Asynchronous methods (`apublish()`) run the same code in a thread.

`schedules` creates and changes schedules at run time. `workflow_steps` publishes what may start next in runs of
workflows, and passes on how steps have ended; `workflow_run` has what code and operators do with a run.
`watcher` waits for results with one subscription a process, and `message_streams` reads streams for all of its readers
in the same way.

Producers never read what the inspector reads, and never import a consumer.
"""

from mq_django.producers.queues import Queue, Queues, queues
from mq_django.producers.topics import Group, Topic, Topics, topics

__all__ = ["Group", "Queue", "Queues", "Topic", "Topics", "queues", "topics"]
