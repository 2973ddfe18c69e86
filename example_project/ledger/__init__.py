"""What the shop published and what its handlers did, in the shop's own database.

A real shop has no need of it. The demo has: it must not ask the queue whether the queue lost something.
"""
