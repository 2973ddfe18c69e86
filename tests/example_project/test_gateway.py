import http.client
import json
import signal
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from pytest_django import Settings

from example_project.gateway import server
from example_project.gateway.client import GatewayBusy, GatewayRefusal, send_push, send_sms
from example_project.gateway.manners import Manners
from tests.example_project.conftest import ROOT, StartGateway


def call(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path, body if isinstance(body, str) else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_what_was_sent_can_be_looked_up(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = url = start_gateway()
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)

    send_push(device="telephone-1", text="Grüße", key="push-1")

    assert call(url, "GET", "/sent/push-1") == (200, {"device": "telephone-1", "text": "Grüße"})
    assert call(url, "GET", "/sent/push-2")[0] == 404
    assert call(url, "GET", "/") == (200, {"push 202": 1})


def test_a_key_is_sent_once_however_often_it_is_tried(start_gateway: StartGateway) -> None:
    url = start_gateway()
    body = {"number": "+49151", "text": "hello"}

    answers = [call(url, "POST", "/sms", body, **{"Idempotency-Key": "sms-1"}) for _ in range(3)]

    assert answers == [
        (202, {"status": "sent"}),
        (202, {"status": "sent before"}),
        (202, {"status": "sent before"}),
    ]


def test_a_device_that_is_gone_is_refused_for_good(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = start_gateway(gone=1)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)
    with pytest.raises(GatewayRefusal, match=r"410.*device gone"):
        send_push(device="telephone-1", text="hello", key="push-1")


def test_an_unknown_number_is_refused_for_good(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = start_gateway(unknown=1)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)
    with pytest.raises(GatewayRefusal, match=r"404.*number unknown"):
        send_sms(number="+49151", text="hello", key="sms-1")


def test_a_failing_gateway_is_busy(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = start_gateway(failing=1)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)
    with pytest.raises(GatewayBusy, match="503"):
        send_sms(number="+49151", text="hello", key="sms-1")


def test_a_slow_gateway_is_busy_and_has_sent_the_message(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = url = start_gateway(slow=1, slow_seconds=60)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=0.2)

    with pytest.raises(GatewayBusy, match="no answer"):
        send_sms(number="+49151", text="hello", key="sms-1")

    assert call(url, "GET", "/sent/sms-1")[0] == 200


def test_a_gateway_that_is_away_is_busy(settings: Settings) -> None:
    settings.GATEWAY_URL = "http://127.0.0.1:1"
    settings.GATEWAY_TIMEOUT = timedelta(seconds=1)
    with pytest.raises(GatewayBusy):
        send_sms(number="+49151", text="hello", key="sms-1")


def test_what_is_not_a_message_is_refused_with_the_reason(start_gateway, subtests):
    for path, body, headers, complaint in [
        ("/sms", {"number": "1", "text": "x"}, {}, "'Idempotency-Key' is missing"),
        ("/sms", {"text": "x"}, {"Idempotency-Key": "1"}, "'number' is missing"),
        ("/push", {"device": "x"}, {"Idempotency-Key": "1"}, "'text' is missing"),
        ("/push", {"device": 7, "text": "x"}, {"Idempotency-Key": "1"}, "'device' is missing"),
        ("/fax", {"text": "x"}, {"Idempotency-Key": "1"}, "only /push and /sms"),
        ("/sms", "[1]", {"Idempotency-Key": "1"}, "not a JSON object"),
        ("/sms", "{", {"Idempotency-Key": "1"}, "not JSON"),
        ("/sms", "", {"Idempotency-Key": "1"}, "bytes"),
        ("/sms", {"text": "x" * 20_000}, {"Idempotency-Key": "1"}, "bytes"),
    ]:
        with subtests.test(path=path, body=body, headers=headers, complaint=complaint):
            status, answer = call(start_gateway(), "POST", path, body, **headers)
            assert status == 400
            assert complaint in answer["error"]


def test_the_same_seed_fails_in_the_same_way() -> None:
    def course(seed: int) -> list[bool]:
        manners = Manners(seed=seed, failing=0.5)
        return [manners.fails(f"push-{number}", attempt=1) for number in range(64)]

    assert course(1) == course(1)
    assert course(1) != course(2)


def test_the_shares_are_about_what_was_asked_for() -> None:
    manners = Manners(failing=0.2, slow=0.1, gone=0.3, unknown=0.4)
    count = range(2000)
    assert sum(manners.fails(f"{n}", attempt=1) for n in count) == pytest.approx(400, rel=0.2)
    assert sum(manners.delay_seconds(f"{n}", attempt=1) > 0 for n in count) == pytest.approx(200, rel=0.2)
    assert sum(manners.is_gone(f"{n}") for n in count) == pytest.approx(600, rel=0.2)
    assert sum(manners.is_unknown(f"{n}") for n in count) == pytest.approx(800, rel=0.2)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_gateway_stops_when_it_is_asked_to(signum: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "example_project.gateway"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signum)
        assert process.wait(10) == 0


def test_more_sms_in_a_second_than_the_gateway_takes_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    outbox = server.Outbox()
    assert [outbox.is_over(2) for _ in range(4)] == [False, False, True, True]
    now[0] += 1.0
    assert [outbox.is_over(2) for _ in range(3)] == [False, False, True]


def test_what_is_too_much_is_refused_for_now(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = url = start_gateway(sms_a_second=0)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)
    with pytest.raises(GatewayBusy, match="429"):
        send_sms(number="+49151", text="hello", key="sms-1")
    send_push(device="telephone-1", text="hello", key="push-1")
    assert call(url, "GET", "/") == (200, {"push 202": 1, "sms 429": 1})
