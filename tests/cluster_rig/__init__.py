"""A Redis Cluster for tests, whose nodes can be killed, frozen, added and removed, and whose slots can be moved."""
