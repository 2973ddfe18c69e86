import pytest
import redis

from benchmarks import environments, headings
from mq_django.transport.private_server import PrivateServer

HEADING = """/// script
dependencies = ["queue==1.0", "hiredis"]

[tool.bench]
name = "Queue"
remaining = "redis.call('llen', 'queue')"
one_by_one = 10
bulk = 0
handled = 20
skips = ["bulk"]
fast = "no promise"
safe = "every promise"
///
"""


@pytest.fixture
def written(tmp_path):
    def write(name, text, sign):
        path = tmp_path / name
        path.write_text("".join(f"{sign} {line}".rstrip() + "\n" for line in text.splitlines()) + "\nrest\n")
        return path

    return write


@pytest.fixture
def client():
    """A client of a Redis of its own: the names of the queues are those of all benchmarks."""
    with PrivateServer() as server, redis.Redis.from_url(server.url) as client:
        yield client


def test_a_heading_makes_a_fastest_and_a_safest_contender(written, subtests):
    for name, sign, module in [("q.py", "#", "benchmarks.peers.q"), ("q.js", "//", None)]:
        with subtests.test(name=name):
            path = written(name, HEADING, sign)
            fastest, safest = headings.read(path)
            assert (fastest.name, safest.name) == ("Queue", "Queue, safest")
            assert (fastest.variables["BENCH_MODE"], safest.variables["BENCH_MODE"]) == ("fast", "safe")
            assert (fastest.settings, safest.settings) == ("no promise", "every promise")
            assert fastest.module == (module or str(path))
            assert fastest.packages == ("queue==1.0", "hiredis")
            assert fastest.is_peer
            assert fastest.is_python == (sign == "#")
            assert "bulk" in fastest.skips


def test_a_wrong_heading_is_told_with_its_file(written, subtests):
    for text in [
        "nothing",
        HEADING.replace("name =", "nome ="),
        HEADING.replace("handled = 20\n", ""),
        HEADING.replace("[tool.bench]\n", ""),
        HEADING.replace("= 10", "="),
        HEADING.replace("dependencies", 'requires-python = "~=3.12"\ndependencies'),
    ]:
        with subtests.test(text=text), pytest.raises(headings.WrongHeading, match=r"^q\.py"):
            headings.read(written("q.py", text, "#"))


def test_a_peer_that_needs_a_newer_redis_is_left_out_before_anything_is_installed(written, monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "HOME", tmp_path)
    text = HEADING.replace("bulk = 0\n", 'bulk = 0\noldest_redis = "8.6"\n')
    for peer in headings.read(written("q.py", text, "#")):
        assert environments.prepare(peer, "7.0.15") == "Redis here is 7.0.15, and it needs 8.6 or newer"
    assert not environments.folder("q").exists()


def test_every_peer_has_a_heading_and_an_empty_queue_has_nothing_left(client):
    peers = headings.peers()
    assert len(peers) >= 20
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(("," in peer.name) == peer.is_safest for peer in peers), "the drawing tells variants by their comma"
    for peer in peers:
        assert peer.remaining(client) == 0, peer.name
