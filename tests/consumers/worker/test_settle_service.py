"""The thread that settles outcomes by itself."""

import threading

from mq_django.consumers.worker.settler import SettleService


def test_asked_to_stop_it_ends_its_wait_for_outcomes(monkeypatch):
    """Else each stop of a consumer would take up to a second longer."""
    service = SettleService()
    monkeypatch.setattr(service.due, "wait", lambda _: threading.Event.wait(service.due, 600))
    service.start()
    service.stop()
    assert service.join(30)
