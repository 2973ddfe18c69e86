"""Other queues in a Django project, a file each: how a transaction publishes, and who handles that.

The files have headings and run in environments of their own, as those of `benchmarks.peers`. They have two functions:
`publish(kind, data)`, which is called in a transaction, and `consumer(processes, threads)`, as those have.
"""
