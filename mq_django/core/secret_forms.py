"""Detect secrets: by the names of their keys, and by the formats of values that are secret under any key.

Libraries that detect secrets report lines of files and need PyYAML and requests; none replaces a part of a text. So
the formats are here: those in the issuers' documentation that have a distinctive prefix.
"""

import re
from functools import lru_cache

#: Longer keys are not examined.
MAX_KEY = 200

#: A key is secret if it contains one of these: `dbPassword`, `X-Auth-Token`.
PARTS = (
    *("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "authorization", "credential"),
    *("apikey", "privatekey", "accesskey", "accountkey", "authkey", "encryptionkey", "masterkey", "sharedkey"),
    *("signingkey", "sshkey", "signature", "creditcard", "cvv", "cvc2"),
    *("sessionid", "sessionkey", "phpsessid", "pincode", "onetimecode", "twofactorcode", "2facode"),
    *(f"{of}code" for of in ("mfa", "verification", "security", "access", "backup", "recovery", "login", "reset")),
    *(f"{of}{number}" for of in ("cc", "account", "routing", "card") for number in ("num", "nr")),
)

#: A key is secret if one of its words is one of these: `card_no`, but not `discard`.
WORDS = frozenset(
    (
        *("auth", "bearer", "card", "cards", "cookie", "cookies", "creds", "csrf", "cvc", "iban"),
        *("jwt", "mfa", "mnemonic", "otp", "pan", "pass", "pin", "psw", "pw", "sig", "ssn", "totp", "xsrf"),
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
    return any(part in squeezed for part in PARTS) or not WORDS.isdisjoint(words)


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


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD_BREAK.split(key[:MAX_KEY]) if word]
