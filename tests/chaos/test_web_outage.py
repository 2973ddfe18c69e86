"""Web requests while Redis is killed, emptied and unreachable: none fails, and everything is published in the end."""

import sys

import pytest

from tests.chaos.web_outage import PAGES, Request, figures, play


def request(page, ms, error="", phase="killed"):
    return Request(page, phase, ms / 1000, error)


def test_the_figures_of_both_pages():
    lines = []
    requests = [request("insert", 10)] * 50 + [request("publish", 12)] * 49 + [request("publish", 12, "status 500")]
    # What happens before the first phase is no measurement, and may not fail either.
    requests += [request("insert", 900, "status 500", "warm-up")]
    found = figures("sqlite", requests, lines.append)
    assert found == {
        "database": "sqlite",
        "requests": 101,
        "failed": 2,
        "insert_p99_ms": 10.0,
        "publish_p99_ms": 12.0,
        "p99_ratio": 1.2,
    }
    line, error = lines
    assert (
        "killed       insert: 50 requests, 0 failed, p50 10.0 ms, p99 10.0 ms; publish: 50 requests, 1 failed" in line
    )
    assert error == "    status 500\n"


@pytest.mark.slow
@pytest.mark.single_server(why="it is started and killed here")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSTOP")
def test_no_request_fails(django_db_blocker):
    """How fast they are depends on the machine: `python -m tests.chaos.web` measures that."""
    with django_db_blocker.unblock():
        found = play("sqlite", 3.0)
    assert found["requests"] > len(PAGES) * 20
    assert found["failed"] == 0
