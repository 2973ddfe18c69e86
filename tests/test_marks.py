"""What fails is run again only where its test says why it may fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import on_cluster
from tests.conftest import pytest_collection_modifyitems

ROOT = Path(__file__).parent.parent

#: Both pass the second time.
TESTS = """
import pytest

runs = []


def pass_the_second_time(name):
    runs.append(name)
    assert runs.count(name) == 2


@pytest.mark.retried(why="the other machine may be slow")
def test_with_a_reason():
    pass_the_second_time("with")


def test_without():
    pass_the_second_time("without")
"""


def test_only_a_test_that_says_why_runs_once_more(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_modifyitems\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert "1 failed, 1 passed, 1 rerun in" in done.stdout


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.retried,
        pytest.mark.retried(why=" "),
        pytest.mark.retried("because"),
        pytest.mark.flaky(reruns=1),
        pytest.mark.single_server,
    ],
    ids=["nothing", "empty", "unnamed", "flaky", "single_server"],
)
def test_a_mark_without_a_reason_is_an_error(mark, request):
    request.node.add_marker(mark)
    name = "single_server" if mark.name == "single_server" else "retried"
    with pytest.raises(pytest.UsageError, match=rf"test_a_mark_without_a_reason_is_an_error.*{name}\(why=\.\.\.\)"):
        pytest_collection_modifyitems([request.node])


@pytest.mark.parametrize(("url", "skipped"), [("redis+cluster://127.0.0.1:7000", True), ("", False)])
def test_what_needs_one_server_is_skipped_on_a_cluster(url, skipped, request, monkeypatch):
    monkeypatch.setattr(on_cluster, "URL", url)
    request.node.add_marker(pytest.mark.single_server(why="there is one MONITOR for each node"))
    pytest_collection_modifyitems([request.node])
    reasons = [mark.kwargs["reason"] for mark in request.node.iter_markers("skip")]
    assert reasons == (["not on a Redis Cluster: there is one MONITOR for each node"] if skipped else [])
