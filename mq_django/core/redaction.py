"""Replace secrets in a message's data: values of secret keys, and values that look like secrets."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from mq_django.errors import InvalidMessage

# Detect secrets: by the names of their keys, and by the formats of values that are secret under any key.
#
# Libraries that detect secrets report lines of files and need PyYAML and requests; none replaces a part of a text. So
# the formats are here: those in the issuers' documentation that have a distinctive prefix.

#: Longer keys are not examined.
MAX_KEY = 200

#: A key is secret if it contains one of these: `dbPassword`, `X-Auth-Token`.
PARTS = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "authorization", "credential"),
    *("apikey", "privatekey", "accesskey", "accountkey", "authkey", "encryptionkey", "masterkey", "sharedkey"),
    *("signingkey", "sshkey", "signature", "creditcard", "cvv", "cvc2"),
    *("sessionid", "sessionkey", "phpsessid", "pincode", "onetimecode", "twofactorcode", "2facode"),
    *(
        f"{of}code"
        for of in ("mfa", "sms", "verification", "security", "access", "backup", "recovery", "login", "reset")
    ),
    *(f"{of}{number}" for of in ("cc", "account", "routing", "card") for number in ("num", "nr")),
)

#: A key is secret if one of its words is one of these: `card_no`, but not `discard`.
WORDS = frozenset(
    (
        *("auth", "bearer", "card", "cards", "cookie", "cookies", "creds", "csrf", "cvc", "iban"),
        *("jwt", "mfa", "mnemonic", "otp", "pan", "pass", "passport", "pin", "psw", "pw", "sig", "ssn", "totp", "xsrf"),
    )
)

#: A key is secret if one of its words, or two in a row, are one of these: `sort_code`, but not `resort_code`.
PHRASES = frozenset(
    (
        *("sortcode", "taxid", "taxnumber", "taxpayerid", "nationalid", "nationalinsurance", "insurancenumber"),
        *("socialsecurity", "licensenumber", "licencenumber", "driverlicense", "driverslicense", "drivinglicense"),
        *("drivinglicence", "maidenname", "securityanswer", "recoveryanswer"),
        *("accountno", "routingno"),
    )
)

#: The value of such a key extends to the end of its line, including commas and semicolons.
LINES = frozenset(("authorization", "cookie", "cookies"))

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+|(?<=\D)(?=\d)")
#: `InvalidTokenError: ...` is an error, and its text must stay readable.
_ERROR = re.compile(r"(?:Error|Exception|Warning|Expired|Invalid)\Z|\A(?:[\w.]*\.)?(?:Invalid|Missing|Expired)[A-Z]")

_FORMS = re.compile(
    r"""
      # A private key, which may be truncated.
      -----BEGIN[ ](?:[A-Z0-9]{1,20}[ ]){0,4}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
        (?:(?!-----END[ ])[\s\S])*(?:-----END[ ][A-Z0-9 ]{1,60}-----)?
      # A JSON Web Token: its header is JSON, so it always starts with eyJ. It may be truncated.
    | \beyJ[\w-]{10,}(?:\.[\w-]*){0,4}
      # After the scheme of an Authorization header: anything that is not a word.
    | (?<=\bBearer[ ])(?!(?:auth\w*|token\w*|scheme|realm\b)(?![\w.-]))[\w.~+/=-]{6,}
    | (?<=\bbearer[ ])(?=[\w.~+/-]*\d)[\w.~+/=-]{6,}
    | (?<=\bBasic[ ])(?=[\w+/-]*(?:\d|[a-z][A-Z]|=))[\w+/-]{6,}={0,2}
    | (?<=\bToken[ ])(?=[\w-]*\d)[\w.-]{16,}
      # Amazon, GitHub, GitLab, Slack, Stripe, npm, PyPI, SendGrid, Google, OpenAI and alike, Hugging Face,
      # DigitalOcean, Shopify, Square, Twilio, Telegram, HashiCorp, Mailchimp.
    | \b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b
    | \bgh[pousr]_\w{30,} | \bgithub_pat_\w{22,} | \bgl(?:pat|ptt|rt|dt)-[\w-]{16,}
    | \bxox[abeoprs]-[\w-]{10,} | \bxapp-[\w-]{10,} | (?<=hooks\.slack\.com/services/)[\w/]{16,}
    | \b[rs]k_(?:live|test)_\w{16,} | \bwhsec_\w{16,}
    | \bnpm_\w{30,} | \bpypi-[\w-]{30,} | \bSG\.[\w-]{16,}\.[\w-]{16,}
    | \bAIza[\w-]{35} | \bya29\.[\w-]{16,} | \bGOCSPX-[\w-]{16,}
    | \bsk-[\w-]{20,} | \bhf_\w{30,} | \bdo[opr]_v1_[0-9a-f]{32,}
    | \bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | \bsq0[a-z]{3}-[\w-]{22,}
    | \bSK[0-9a-f]{32}\b | \b\d{8,10}:AA[\w-]{33}\b | \bhv[sbr]\.[\w-]{20,} | \b[0-9a-f]{32}-us\d{1,2}\b
    """,
    re.VERBOSE,
)

#: Every match of `_FORMS` contains one of these.
_SIGNS = (
    *("-----BEGIN ", "eyJ", "earer ", "Basic ", "Token ", "AKIA", "ASIA", "ABIA", "ACCA", "xox", "xapp-"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glptt-", "glrt-", "gldt-"),
    *("slack.com/", "k_live_", "k_test_", "whsec_", "npm_", "pypi-", "SG.", "AIza", "ya29.", "GOCSPX-", "sk-", "hf_"),
    *("_v1_", "shp", "sq0", "SK", ":AA", "hvs.", "hvb.", "hvr.", "-us"),
)

#: `redis://user:secret@host`: the password is a secret with any scheme, and may contain / and @. A port with a path is
#: not one. A long user name without a password is a token.
_URL_LOGIN = re.compile(
    r"""(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)
        (?: (?P<user>[^\s/:@"'<>?\#]{0,80}:)(?!\d{1,5}[/?\#])(?:(?!://)[^\s"'<>]){1,300}(?=@)
          | [^\s/:@"'<>?\#]{20,300}(?=@) )""",
    re.VERBOSE | re.IGNORECASE,
)


def is_secret(key: str) -> bool:
    """Return whether the values under a key are secret. One that is too long to be examined counts as secret."""
    return len(key) > MAX_KEY or _is_secret(key)


@lru_cache(maxsize=4096)
def _is_secret(key: str) -> bool:
    words = _words(key)
    squeezed = "".join(words)
    phrases = [phrase.removesuffix("s") for phrase in (*words, *map("".join, pairwise(words)))]
    return any(part in squeezed for part in PARTS) or not (WORDS.isdisjoint(words) and PHRASES.isdisjoint(phrases))


def names_error(key: str) -> bool:
    """Return whether a key in a text is the name of an error."""
    return _ERROR.search(key) is not None


def spans_line(key: str) -> bool:
    """Return whether the value of a secret key extends to the end of its line."""
    return not LINES.isdisjoint(_words(key))


def replace_forms(text: str, mark: str) -> str:
    """Return text with a mark in place of all values that look like secrets."""
    if "://" in text and "@" in text:
        text = _URL_LOGIN.sub(lambda found: f"{found['scheme']}{found['user'] or ''}{mark}", text)
    # Most texts have none, and this check takes a tenth of the time of the search.
    return _FORMS.sub(mark, text) if any(sign in text for sign in _SIGNS) else text


#: A log-in in front of a host, as in a URL without its scheme, and the value of an option, as in `?password=x`.
_LOGIN = re.compile(r"""[^\s/:@"']{0,300}:(?!//|\[redacted\])[^\s"']{1,300}@""")
_ASSIGNED = re.compile(r"""(?P<key>[\w.-]{1,200})=[^\s&,;"']+""")


def replace_logins(text: str, mark: str) -> str:
    """Return the text of a value that stands at the wrong place, such as a setting, with a mark in place of secrets."""
    text = replace_forms(text, mark)
    # In a long word without spaces each search takes milliseconds.
    if "@" in text:
        text = _LOGIN.sub(f"{mark}@", text)
    if "=" not in text:
        return text
    return _ASSIGNED.sub(lambda found: f"{found['key']}={mark}" if is_secret(found["key"]) else found[0], text)


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD_BREAK.split(key[:MAX_KEY]) if word]


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
#: The end of a line, also in text with any level of quoting; what stands before a value in YAML: tags and anchors, the
#: sign of a block of lines, and a comment; and the next line of the block.
_LINE_END = r"(?:\r|\\{1,64}r)?(?:\n|\\{1,64}n)"
_PROPERTY = r"""(?:!|&(?!&))(?:(?!\\{1,64}[rn])[^\s"'])*+"""
_PROPERTIES = re.compile(rf"(?:{_PROPERTY}[ \t]{{1,8}}){{1,4}}")
_COMMENT = r"(?:#(?:(?!\\{1,64}[rn])[^\r\n])*+)?"
_BLOCK = re.compile(rf"(?:{_PROPERTY}[ \t]{{0,8}}){{0,4}}(?:[|>][-+\d]{{0,2}})?[ \t]{{0,8}}{_COMMENT}(?={_LINE_END})")
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


def secrets_in(value: Any, *, depth: int = 0) -> set[str]:
    """Return the texts and numbers in JSON data that redact() replaces because of their keys."""
    if depth > MAX_DEPTH:
        return set()
    if isinstance(value, Mapping):
        pairs = [(each, is_secret(key)) for key, each in value.items()]
    else:
        pairs = [(each, False) for each in value] if isinstance(value, list | tuple) else []
    found = [_leaves(each) if hides else secrets_in(each, depth=depth + 1) for each, hides in pairs]
    return set().union(*found)


def _leaves(value: Any, *, depth: int = 0) -> set[str]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return {str(value)}
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return set().union(*(_leaves(each, depth=depth + 1) for each in items)) if depth <= MAX_DEPTH else set()


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
    if properties := _PROPERTIES.match(text, at):
        at = properties.end()
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
