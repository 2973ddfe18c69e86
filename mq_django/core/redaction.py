"""Replace secrets in a message's data: values of secret keys, and values that look like secrets."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from mq_django.core.secret_forms import is_secret, names_error, replace_forms, spans_line
from mq_django.errors import InvalidMessage

__all__ = [
    "REDACTED",
    "is_redacted",
    "is_secret",
    "redact",
    "redact_bytes",
    "redact_forms",
    "redact_text",
    "restore",
    "restored",
]

#: Replaces a secret.
REDACTED = "[redacted]"

#: Values that are nested deeper are not examined, and therefore replaced.
MAX_DEPTH = 60

#: The text before a value in error texts, tracebacks and JSON, with any level of quoting: `password=`,
#: `"token": `, `\\"pin\\":`, `config["secret"] = `, `token%3D`.
_KEY = re.compile(
    r"""(?<![\w.-])[.-]*+(?P<key>\w[\w.-]*+)\\{0,64}["']?\]?\s{0,8}(?:=>|[:=]{1,3}|%3[AaDd])(?P<space>[^\S\r\n]{0,8})"""
)
#: `("Authorization", `, `"--password", `, and `"Authorization", "value": `.
_PAIR = re.compile(
    r"""(?:[\[(]\s{0,8}[bB]?\\{0,64}["']|["'](?=-))(?P<key>[\w.-]++)\\{0,64}["']\s{0,8},\s{0,8}(?=[bB]?\\{0,64}["'])"""
)
_NAMED = re.compile(r"""["'](?P<key>[\w.-]++)\\{0,64}["']\s{0,8},\s{0,8}\\{0,64}["']value\\{0,64}["']\s{0,8}:\s{0,8}""")
#: `--password hunter2`, and SQL's `PASSWORD 'hunter2'`.
_OPTION = re.compile(r"(?<!\S)(?P<key>--?[A-Za-z][\w.-]++)[ \t]+(?=[^\s-])")
_SAID = re.compile(r"(?P<key>password|passwd|passphrase|secret)\s{1,8}(?=\\{0,64}')", re.IGNORECASE)
_ELEMENT = re.compile(r"<(?P<key>[A-Za-z_][\w.:-]*+)(?:\s[^<>]{0,200})?>(?P<value>[^<]{1,10000})")
#: In this order, each with a text that it needs: searching for that takes a tenth of the time.
_KEYS = ((_PAIR, ","), (_NAMED, "value"), (_KEY, ""), (_OPTION, "-"), (_SAID, "'"))
#: The name of a field, alone on its line.
_FIELD = re.compile(r"\s*[\w.-]+\s*")
#: Quoted text: up to the same quotes with the same backslashes, or to the end if it was truncated.
_QUOTED = re.compile(r"""[bBrRuU]{0,2}(?P<quotes>\\{0,64}["'])[\s\S]*?(?:(?<!\\)(?P=quotes)|\Z)""")
_CALL = re.compile(r"""[A-Za-z_][\w.]{0,80}(?=\(\\{0,64}["'])""")
_TOO_MANY = "\\" * 65
_BRACKET = re.compile(r"[\[\](){}]")
#: A word, in which some separators are allowed unless another key or nothing follows; and the words of a line.
_WORD = r"""(?:[^\s,;&"'\\}\])]|\\(?!\\{0,64}["'])|[,&](?![\w.-]{1,80}=)(?=[^\s,;&"'\\}\])])|[}\])](?=[\w@!$%*+]))"""
_WORDS = re.compile(rf"(?:(?:Bearer|Basic|Token)[ ]+)?{_WORD}+(?:[ ]+{_WORD}+(?=[^\n=;]{{0,200}};))*", re.IGNORECASE)
_PHRASE = re.compile(rf"{_WORD}+(?:[ \t]+{_WORD}+)*")
#: The end of a line, also in text with any level of quoting; the sign of a block of lines in YAML, and its next line.
_LINE_END = r"(?:\r|\\{1,64}r)?(?:\n|\\{1,64}n)"
_BLOCK = re.compile(rf"(?:[|>][-+\d]{{0,2}})?[ \t]{{0,8}}(?={_LINE_END})")
_NEXT_LINE = re.compile(
    rf"(?:{_LINE_END}[ \t]{{0,200}}(?={_LINE_END}))*+(?P<end>{_LINE_END})(?P<indent>[ \t]{{0,200}})(?P<list>- )?"
)
_INDENT = re.compile(r"^[ \t]*(?:-[ \t]+)?")
_REST, _QUOTED_LINE = re.compile(r"[^\r\n]+"), re.compile(r"(?:(?!\\{1,64}[rn])[^\r\n])+")
_LINE = re.compile(r"""(?:=\\{0,64}["'][^"'\r\n]*["']|(?!\\{1,64}[rn"'])[^\r\n"'])+""")


def redact(value: Any, *, depth: int = 0) -> Any:
    """Return JSON data with every secret replaced, at any depth.

    Text is treated as in `redact_text`, because data often has headers, URLs and JSON as text.
    """
    if depth > MAX_DEPTH:
        return REDACTED
    if isinstance(value, Mapping):
        # A common form of headers and settings: {"name": "Authorization", "value": ...}.
        named = any(is_secret(name) for key in ("name", "key") if isinstance(name := value.get(key), str))
        return {
            shown: REDACTED
            if (is_secret(key) or (named and key == "value")) and not _is_harmless(value[key])
            else redact(value[key], depth=depth + 1)
            for shown, key in _keys(value).items()
        }
    if isinstance(value, list | tuple):
        return _redact_list(value, depth)
    return redact_text(value) if isinstance(value, str) else value


def _keys(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a dict by what is shown of them: not a log-in in a URL."""
    found: dict[str, str] = {}
    for key in data:
        shown = redact_forms(key)
        while shown in found:
            shown += f" ({len(found)})"
        found[shown] = key
    return found


def _redact_list(items: Sequence[Any], depth: int) -> list[Any]:
    """Return a list with secrets replaced: in a (key, value) pair, and after an option of a command line."""
    found, before = [], ""
    for item in items:
        hides = is_secret(before) and (before.startswith("-") or len(items) == 2)
        found.append(REDACTED if hides and not _is_harmless(item) else redact(item, depth=depth + 1))
        before = item if isinstance(item, str) and len(item) <= 80 and "=" not in item else ""
    return found


def redact_text(text: str) -> str:
    """Return text without the values of secret keys and the values that look like secrets."""
    text = redact_forms(text)
    if "<" in text:
        text = _ELEMENT.sub(_without_value, text)
    for keys, hint in _KEYS:
        if hint in text:
            text = _redact_keys(keys, text)
    return text


def redact_forms(text: str) -> str:
    """Return a name without values that look like secrets. Keys have no meaning in it: `card:7` stays."""
    return replace_forms(text, REDACTED)


def redact_bytes(raw: bytes) -> bytes:
    """Return the fields of an entry that could not be decoded, one per line, with secrets replaced."""
    lines = raw.decode(errors="backslashreplace").split("\n")
    # A name, and its value.
    shown = [REDACTED if _FIELD.fullmatch(name) and is_secret(name.strip()) else line for name, line in pairwise(lines)]
    return redact_text("\n".join([lines[0], *shown])).encode(errors="backslashreplace")


def _without_value(found: re.Match[str]) -> str:
    if not is_secret(found["key"]) or not found["value"].strip():
        return found[0]
    return found[0][: found.start("value") - found.start()] + REDACTED


def _redact_keys(keys: re.Pattern[str], text: str) -> str:
    parts, at = [], 0
    while found := keys.search(text, at):
        parts.append(text[at : found.end()])
        at = found.end()
        if is_secret(found["key"]) and not names_error(found["key"]):
            end = _end_of_value(text, found)
            parts.append(REDACTED if end > at else "")
            at = end
    parts.append(text[at:])
    return "".join(parts)


def _end_of_value(text: str, found: re.Match[str]) -> int:
    at = found.end()
    block = _BLOCK.match(text, at)
    if block and (end := _end_of_block(text, found.start("key"), block.end())) > block.end():
        return end
    if text.startswith(REDACTED, at):
        at += len(REDACTED)
    call = _CALL.match(text, at)
    if text[at : at + 1] in ("{", "[", "(") or call:
        return _end_of_bracket(text, call.end() if call else at)
    # With more backslashes than any quoting has, the end of the value is unknown.
    if text.startswith(_TOO_MANY, at):
        return len(text)
    value = (_QUOTED.match(text, at) or _unquoted(found).match(text, at)) if text[at : at + 1].strip() else None
    return value.end() if value else at


def _end_of_block(text: str, start: int, at: int) -> int:
    """Return the end of the lines that are the value of a key at `start`, as in YAML: a list, or a deeper indent."""
    before = re.split(r"\n|\\n", text[max(0, start - 200) : start])[-1]
    own = len(before) - len(_INDENT.sub("", before, count=1))
    while (line := _NEXT_LINE.match(text, at)) and len(line["indent"]) >= own + (line["list"] is None):
        value = (_QUOTED_LINE if "\\" in line["end"] else _REST).match(text, line.end())
        at = (value or line).end()
    return at


def _unquoted(found: re.Match[str]) -> re.Pattern[str]:
    groups = found.groupdict()
    if spans_line(found["key"]):
        return _LINE
    # `password=abc user=bob` has one word, `password: correct horse` all of them.
    return _PHRASE if groups.get("space") else _WORDS


def _end_of_bracket(text: str, at: int) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket[0] in "{[(" else -1
        if depth == 0:
            return bracket.end()
    return len(text)


def _is_harmless(value: Any) -> bool:
    """Return whether a value reveals no secret, and is useful to see."""
    return value is None or value is True or value is False or value in ("", [], {})


def restore(edited: Any, shown: Any, original: Any) -> Any:
    """Return edited data with the original secrets: values that were not changed get their original value.

    In a list whose items were changed they are not restored, because it is not known where they belong.
    """
    if type(edited) is type(shown) and edited == shown:
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, Mapping):
        keys = _keys(original)
        return {
            keys.get(key, key): restore(value, shown[key], original[keys[key]]) if key in keys else value
            for key, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        return [
            before if type(value) is type(seen) and value == seen else value
            for value, seen, before in zip(edited, shown, original, strict=True)
        ]
    return edited


def restored(edited: Any, original: Any) -> Any:
    """Return data that was edited as redact() shows it, with the original secrets.

    Raises:
        InvalidMessage: a placeholder is in a place that had no secret.
    """
    found = restore(edited, redact(original), original)
    if is_redacted(found) and not is_redacted(original):
        raise InvalidMessage(f"{REDACTED} is a placeholder for a secret, but this place had none")
    return found


def is_redacted(value: Any) -> bool:
    """Return whether data has a replaced secret."""
    if isinstance(value, Mapping):
        return any(map(is_redacted, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple):
        return any(map(is_redacted, value))
    return isinstance(value, str) and REDACTED in value
