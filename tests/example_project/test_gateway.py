"""The gateway of the example project, which is busy, slow or gone as often as it is told, and its client."""

import http.client
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from pytest_django import Settings

from example_project.gateway.client import GatewayBusy, GatewayRefusal, send_push, send_sms
from tests.example_project.conftest import StartGateway


def call(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path, body if isinstance(body, str) else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_key_is_sent_once_however_often_it_is_tried(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = url = start_gateway()
    settings.GATEWAY_TIMEOUT = timedelta(seconds=10)
    body = {"number": "+49151", "text": "hello"}

    send_push(device="telephone-1", text="Grüße", key="push-1")
    answers = [call(url, "POST", "/sms", body, **{"Idempotency-Key": "sms-1"}) for _ in range(2)]

    assert answers == [(202, {"status": "sent"}), (202, {"status": "sent before"})]
    assert call(url, "GET", "/sent/push-1") == (200, {"device": "telephone-1", "text": "Grüße"})
    assert call(url, "GET", "/sent/push-2")[0] == 404
    assert call(url, "GET", "/") == (200, {"push 202": 1, "sms 202": 2})


def test_the_client_tells_what_is_refused_for_good_from_what_is_busy(start_gateway, settings, subtests):
    sms, push = {"number": "+49151", "text": "x", "key": "1"}, {"device": "telephone-1", "text": "x", "key": "1"}
    for shares, send, options, error, said in [
        ({"gone": 1}, send_push, push, GatewayRefusal, r"410.*device gone"),
        ({"unknown": 1}, send_sms, sms, GatewayRefusal, r"404.*number unknown"),
        ({"failing": 1}, send_sms, sms, GatewayBusy, "503"),
        ({"sms_a_second": 0}, send_sms, sms, GatewayBusy, "429"),
    ]:
        with subtests.test(shares=shares):
            settings.GATEWAY_URL, settings.GATEWAY_TIMEOUT = start_gateway(**shares), timedelta(seconds=10)
            with pytest.raises(error, match=said):
                send(**options)


def test_a_slow_gateway_is_busy_and_has_sent_the_message(start_gateway: StartGateway, settings: Settings) -> None:
    settings.GATEWAY_URL = url = start_gateway(slow=1, slow_seconds=60)
    settings.GATEWAY_TIMEOUT = timedelta(seconds=0.2)

    with pytest.raises(GatewayBusy, match="no answer"):
        send_sms(number="+49151", text="hello", key="sms-1")

    assert call(url, "GET", "/sent/sms-1")[0] == 200
