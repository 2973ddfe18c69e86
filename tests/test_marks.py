"""The marks of tests that say in which tier they run."""

import pytest

from tests import on_cluster
from tests.conftest import pytest_collection_modifyitems


def test_a_mark_without_a_reason_is_an_error(request):
    request.node.add_marker(pytest.mark.single_server)
    with pytest.raises(pytest.UsageError, match=r"test_a_mark_without_a_reason.*single_server\(why=\.\.\.\)"):
        pytest_collection_modifyitems([request.node])


def test_what_needs_one_server_is_skipped_on_a_cluster_only(request, monkeypatch):
    request.node.add_marker(pytest.mark.single_server(why="there is one MONITOR for each node"))
    reasons = []
    for url in ("", "redis+cluster://127.0.0.1:7000"):
        monkeypatch.setattr(on_cluster, "URL", url)
        pytest_collection_modifyitems([request.node])
        reasons.append([mark.kwargs["reason"] for mark in request.node.iter_markers("skip")])
    assert reasons == [[], ["not on a Redis Cluster: there is one MONITOR for each node"]]
