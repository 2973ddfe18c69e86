import pytest

from benchmarks import testing
from benchmarks.contenders import HANDLERS


@pytest.mark.slow
def test_each_row_is_measured():
    found = testing.costs(HANDLERS)
    assert found.keys() == {f"{testing.TEST}{name} {what} ms" for name in testing.ROWS for what in ("p50", "p95")}
    assert min(found.values()) > 0
    assert {testing.HOOK_P95, testing.FIXTURE_P95, testing.MESSAGE_P95} <= found.keys()
