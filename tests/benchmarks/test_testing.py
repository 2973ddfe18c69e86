import pytest

from benchmarks import testing
from benchmarks.contenders import HANDLERS
from benchmarks.trial import Failed


@pytest.mark.slow
def test_each_row_is_measured():
    found = testing.costs(HANDLERS)
    assert found.keys() == {f"{testing.TEST}{name} {what} ms" for name in testing.ROWS for what in ("p50", "p95")}
    assert min(found.values()) > 0
    assert {testing.HOOK_P95, testing.FIXTURE_P95, testing.MESSAGE_P95} <= found.keys()


def test_without_pytest_in_its_environment_the_step_says_so(monkeypatch):
    monkeypatch.setattr(testing, "find_spec", lambda name: None)
    with pytest.raises(Failed, match="pytest-django is not installed"):
        testing.costs(HANDLERS)
