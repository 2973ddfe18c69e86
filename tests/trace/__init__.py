"""How many modules of mq_django a message passes, on an older tree and on this one: `python -m tests.trace`.

What counts: the modules whose functions run for one message, that is those that are called, and those that wait for
what happens and go on with it. Imports and everything that happens once at the start of a process do not count.

| action | from | to |
|-|-|-|
| publish | the call of `queues[...].publish()`, outside of a transaction | its return |
| fetch to ack | the reply of Redis that brings a message to an idle consumer | the command that acks it |
| retry | the exception of its handler | the command that makes it wait |
| bury | the exception of its handler, at its last attempt | the command that buries it |
| redrive | the beginning of `manage.py mq redrive QUEUE ID` | its end |

In a consumer the threads count that the message goes through: the one that fetches, until it is back in its loop, the
one that runs the handler, and the one that settles. What other threads do meanwhile is not about it. Of fifteen
messages, the path that most took is shown.
"""
