"""What of a message's data people do not get to see: values whose key says that they are secret."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

#: Stands where a secret was.
REDACTED = "[redacted]"

#: A key is secret when it has one of these in it, whatever stands around: `dbPassword`, `X-Auth-Token`.
PARTS = (
    *("password", "passwd", "passphrase", "secret", "token", "authorization", "credential"),
    *("apikey", "privatekey", "accesskey", "signingkey"),
    *("cardnumber", "creditcard", "cvv", "cvc2", "sessionid", "sessionkey"),
)

#: A key is secret when one of its words is one of these: `card_no`, but not `discard`.
WORDS = frozenset(
    (
        *("auth", "card", "cards", "cookie", "cookies", "csrf", "cvc", "iban"),
        *("jwt", "otp", "pan", "pass", "pin", "pwd", "ssn"),
    )
)

#: Values nested deeper are not looked at, and so not shown.
MAX_DEPTH = 60

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+|(?<=\D)(?=\d)")
#: What comes before a value in error texts, tracebacks and cut JSON: `password=`, `"token": `.
_KEY = re.compile(r"""(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{0,80}+)\\?["']?\s{0,8}(?:=>|[:=])\s{0,8}""")
#: A value: a scheme and its word, text in quotes (which may be cut), or a word.
_VALUE = re.compile(
    r"""(?:Bearer|Basic|Token)\s+[^\s,;"'}\])]+
      | \\"(?:[^\\]|\\[^"])*(?:\\"|\Z)
      | "(?:[^"\\]|\\.)*(?:"|\Z)
      | '(?:[^'\\]|\\.)*(?:'|\Z)
      | [^\s,;"'}\])]+""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_BRACKET = re.compile(r"[\[\](){}]")
#: `InvalidTokenError: ...` names an error, and what follows is what one wants to read.
_ERROR = re.compile(r"(?:Error|Exception|Warning|Expired|Invalid)\Z")
#: `redis://user:secret@host`: the part between is a secret whatever it is called.
_URL_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,80}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_secret(key: str) -> bool:
    """Tell whether the values under a key are secret."""
    words = [word.lower() for word in _WORD_BREAK.split(key[:200]) if word]
    squeezed = "".join(words)
    return any(part in squeezed for part in PARTS) or not WORDS.isdisjoint(words)


def redact(value: Any, *, depth: int = 0) -> Any:
    """Return JSON data with every secret replaced, however deep it lies.

    Text inside is treated as `redact_text` does, because data often carries headers, URLs and JSON as text.
    """
    if depth > MAX_DEPTH:
        return REDACTED
    if isinstance(value, Mapping):
        return {
            key: REDACTED if is_secret(key) and not _says_nothing(item) else redact(item, depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item, depth=depth + 1) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return text with what is assigned to a secret key replaced, and log-ins in URLs."""
    text = _URL_LOGIN.sub(rf"\g<scheme>{REDACTED}", text)
    parts, at = [], 0
    while found := _KEY.search(text, at):
        parts.append(text[at : found.end()])
        at = found.end()
        if is_secret(found["key"]) and not _ERROR.search(found["key"]):
            end = _end_of_value(text, at)
            parts.append(REDACTED if end > at else "")
            at = end
    parts.append(text[at:])
    return "".join(parts)


def _end_of_value(text: str, at: int) -> int:
    if text[at : at + 1] not in ("{", "[", "("):
        found = _VALUE.match(text, at)
        return found.end() if found else at
    depth = 0
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket[0] in "{[(" else -1
        if depth == 0:
            return bracket.end()
    return len(text)


def _says_nothing(value: Any) -> bool:
    """Tell whether a value gives no secret away, and its absence is worth seeing."""
    return value is None or value is True or value is False or value in ("", [], {})


def restore(edited: Any, shown: Any, original: Any) -> Any:
    """Return edited data with the secrets back that its editor was not shown: what is as it was shown is as it was.

    In a list whose items changed they are not put back, since nobody knows whose they are.
    """
    if type(edited) is type(shown) and edited == shown:
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, Mapping):
        return {
            key: restore(value, shown[key], original[key]) if key in shown and key in original else value
            for key, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        return [
            before if type(value) is type(seen) and value == seen else value
            for value, seen, before in zip(edited, shown, original, strict=True)
        ]
    return edited


def is_redacted(value: Any) -> bool:
    """Tell whether a replaced secret is anywhere in data."""
    if isinstance(value, Mapping):
        return any(map(is_redacted, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_redacted, value))
    return isinstance(value, str) and REDACTED in value
