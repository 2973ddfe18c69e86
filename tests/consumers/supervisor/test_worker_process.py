from mq_django.consumers.supervisor.launcher import environment


def test_a_consumer_gets_few_heaps_unless_itsenvironment_says_otherwise(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert environment()["MALLOC_ARENA_MAX"] == "2"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert environment()["MALLOC_ARENA_MAX"] == "8"
