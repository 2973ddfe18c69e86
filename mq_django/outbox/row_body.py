"""The body of a row of the outbox.

It is JSON: `message` has the attributes that differ from their defaults, `options` the options of the publish, and
`data` comes last, as the text that is published. This module needs no models: the inspector, which shows rows, may be
imported before Django has loaded them.
"""

from typing import Any

from mq_django.core.jsontext import loads
from mq_django.errors import DecodeError

#: Stands before the data. No text in the JSON before it has it, because quotes in texts are escaped, and no key: `data`
#: is no name of a header.
DATA = ',"data":'


def contents_of(body: str) -> tuple[dict[str, Any], bytes]:
    """Return what the body of a row has before the data, and the data as text.

    Raises:
        DecodeError: it is not the body of a row.
    """
    head, _, tail = body.partition(DATA)
    found = loads(head.encode() + b"}")
    if not isinstance(found, dict) or not isinstance(found.get("message"), dict):
        raise DecodeError("the row has no message")
    return found, tail[:-1].encode()
