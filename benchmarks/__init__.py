"""Measure mq_django beside the raw limit of Redis and beside other queues: `make bench`."""
