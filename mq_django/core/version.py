"""The version of mq_django, for use inside the package, and that of its protocol.

A test checks that `mq_django.__version__` is the same.
"""

VERSION = "0.1.0"

#: The version of the protocol in `docs/protocol.md`, which says what changes it. Supervisors announce it.
PROTOCOL = 1
