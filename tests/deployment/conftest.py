"""Trees of processes, as for tests of consumers."""

from tests.consumers.conftest import history, publish, trees

__all__ = ["history", "publish", "trees"]
