"""Send through the gateway, and tell a refusal that lasts from one that may pass."""

import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from django.conf import settings


class GatewayError(Exception):
    """The gateway did not take a message."""


class GatewayBusy(GatewayError):
    """The gateway failed or did not answer in time: the same message may go through later."""


class GatewayRefusal(GatewayError):
    """The gateway will never take this message: the device is gone, or the number unknown."""


def send_push(*, device: str, text: str, key: str) -> None:
    """Send a push message; one key is sent once, however often it is tried."""
    _post("/push", {"device": device, "text": text}, key=key)


def send_sms(*, number: str, text: str, key: str) -> None:
    """Send an SMS; one key is sent once, however often it is tried."""
    _post("/sms", {"number": number, "text": text}, key=key)


def _post(path: str, body: dict[str, str], *, key: str) -> None:
    address = urlsplit(settings.GATEWAY_URL)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=settings.GATEWAY_TIMEOUT.total_seconds())
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read().decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise GatewayBusy(f"no answer from the gateway: {error!r}") from error
    finally:
        connection.close()
    if response.status == HTTPStatus.ACCEPTED:
        return
    # 4xx is about this message, and stays; but 408 and 429 are about the moment.
    passing = response.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
    lasting = HTTPStatus.BAD_REQUEST <= response.status < HTTPStatus.INTERNAL_SERVER_ERROR and not passing
    raise (GatewayRefusal if lasting else GatewayBusy)(f"{response.status} {answer}")
