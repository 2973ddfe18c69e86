"""The outbox: publications that a transaction writes as rows, and a relay that publishes them after the commit.

A publish in a transaction becomes a row of the same transaction, so that both or neither happen. After the commit a
relay publishes it:

    insertion --commit--> a row --claimed--> published, and marked in Redis --> deleted
                                      | cannot be published: set aside with its error, for an operator

A relay is a service of each supervisor, or `manage.py mq outbox --relay`. `relay.DatabaseRelay` looks for rows, and
`relay.PartitionRelay` publishes the rows of a queue or topic in the order in which they were claimed. Rows
commit out of their order, so the last number that was published says nothing: each claim gets a number (`claims`), and
Redis notes which rows of a claim are published (`stores/outbox_marks`). A relay that is killed therefore loses and
doubles nothing.

With KEEP_UNTIL "handled" a row stays until its message has ended, so that messages survive the loss of Redis
(`stored_rows`, which also finds, cancels and counts rows).

No transaction here is longer than one statement or a few, and none is open while Redis is asked.
"""
