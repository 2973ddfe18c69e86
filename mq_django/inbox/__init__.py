"""The inbox: rows that name the messages whose handlers have run, in the transaction of the handler.

A message may be delivered again. With `@exactly_once` its handler runs in one transaction with a row that names the
message, so its effect on that database happens once:

    begin -> insert the row -> run the handler -> commit -> ack
               | the row is there: ack without running, with the result that the row keeps

`once.Once.run()` drives this for a message, and `once.OnceTogether` for a batch, which has a row for each of its
messages. `entries` writes and finds the rows. `once` also lets the effects of a group of a topic happen again after a
seek: a row names the pass of its group, too.

Rows are kept for INBOX_RETENTION. An older message that is delivered again is not run, because nobody knows whether
it has run before: it becomes a dead letter with the reason `uncertain`.

The inbox guards the database that it is in. A handler may do twice what it does elsewhere, such as sending a mail.
Two deliveries of a message that run at the same time wait for each other at the row: one of them finds it committed.
"""
