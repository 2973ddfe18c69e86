"""Other queues, a file each: what it needs and how it is set in a heading as of PEP 723, then the verbs of the driver.

A peer's file is run in an environment of its own, where nothing of mq_django is installed; the suite itself reads no
more than the heading. `benchmarks.peers.rq` is a short one to learn from.
"""
