"""What people do not get to see of a message's data."""

import time

from mq_django.core.redaction import REDACTED, is_redacted, is_secret, redact, redact_text, restore


def test_secret_keys(subtests):
    for key in [
        *("password", "Password", "dbPassword", "PASSWORD_HASH", "user.passwd", "newPassword2"),
        *("token", "access_token", "refreshToken", "X-Auth-Token", "csrfmiddlewaretoken"),
        *("secret", "client_secret", "authorization", "Proxy-Authorization", "credentials"),
        *("api_key", "apiKey", "API-KEY", "x_api_key", "private key", "AWSAccessKeyId"),
        *("card", "card_no", "cardNumber", "creditCard", "CVV", "cvv2", "cvc", "pan", "iban"),
        *(
            "pincode",
            "pin_code",
            "mfa_code",
            "mfaToken",
            "verification_code",
            "backup_codes",
            "2fa_code",
            "twoFactorCode",
        ),
        *("cc_number", "account_number", "routingNumber", "card_num", "security-code", "login_code", "sms_code"),
        *("account_no", "accountNo", "routing_no"),
        *("security_answer", "securityAnswers", "sort_code", "sortcode", "bank.sortCode", "mothers_maiden_name"),
        *("tax_id", "taxIds", "tax_number", "passport", "passport_number", "passportNo", "national_insurance_number"),
        *("nationalId", "social_security", "socialSecurityNumber", "insurance_number", "drivers_license", "IBAN_code"),
        *("x" * 201, "x" * 300 + "_password"),
        *("ssn", "user_ssn", "otp", "pin", "pwd", "jwt", "cookie", "Set-Cookie", "sessionid"),
    ]:
        with subtests.test(key=key):
            assert is_secret(key)


def test_keys_that_only_look_a_bit_like_secrets(subtests):
    for key in [
        *("name", "email", "user_id", "key", "discard", "cardinality", "postcard", "spin", "pinned"),
        *("lessness", "compass", "passenger", "author", "authored_by", "span", "company", "optional", ""),
        *("sort", "sort_order", "resort_code", "tax", "tax_rate", "syntax_id", "taxi_driver", "answer", "maiden_trip"),
        *("national", "insurance", "insurance_id", "social", "driver_id", "license", "security"),
        *("postcode", "code", "status_code", "country_code", "number", "account", "order_number", "success_codes"),
    ]:
        with subtests.test(key=key):
            assert not is_secret(key)


def test_data(subtests):
    for data, shown in [
        ({"password": "x", "n": 1}, {"password": REDACTED, "n": 1}),
        ([{"a": [{"api_key": "x"}]}], [{"a": [{"api_key": REDACTED}]}]),
        ({"card": {"number": "4111", "holder": "me"}}, {"card": REDACTED}),
        ({"tokens": ["a", "b"]}, {"tokens": REDACTED}),
        ({"pin": 1234, "otp": 0}, {"pin": REDACTED, "otp": REDACTED}),
        # Whether there is one gives nothing away, and is worth seeing.
        ({"token": None, "secret": "", "password": True}, {"token": None, "secret": "", "password": True}),
        (
            {"redis://u:x@host": 1, "redis://u:y@host": 2},
            {f"redis://u:{REDACTED}@host{n}": v for n, v in (("", 1), (" (1)", 2))},
        ),
        ({"url": "https://u:pw@host/x"}, {"url": f"https://u:{REDACTED}@host/x"}),
        ({"body": '{"password": "x", "n": 1}'}, {"body": f'{{"password": {REDACTED}, "n": 1}}'}),
        ("text", "text"),
        (7, 7),
        (None, None),
    ]:
        with subtests.test(data=data):
            assert redact(data) == shown


def test_what_is_nested_too_deep_is_not_shown():
    data: list[object] = ["visible"]
    for _ in range(500):
        data = [data]

    assert "visible" not in repr(redact(data))


def test_text(subtests):
    for text, shown in [
        ("password=abc def", f"password={REDACTED} def"),
        ("db_password = 'a b' tail", f"db_password = {REDACTED} tail"),
        ('{"user": {"token": "a\\"b", "x": 1}}', f'{{"user": {{"token": {REDACTED}, "x": 1}}}}'),
        ('{"token": "cut off he', f'{{"token": {REDACTED}'),
        ("{'card': {'a': {'b': 1}, 'number': '4111'}, 'n': 3}", f"{{'card': {REDACTED}, 'n': 3}}"),
        ('{\\"api_key\\": \\"abc\\", \\"n\\": 1}', f'{{\\"api_key\\": {REDACTED}, \\"n\\": 1}}'),
        ("Authorization: Bearer ab.cd.ef next", f"Authorization: {REDACTED}"),
        # The scheme is not all of the value.
        *(
            (f"token={scheme} xyzzy next", f"token={REDACTED} next")
            for scheme in ("Bearer", "Basic", "Token", "bearer")
        ),
        ("x" * 300 + "_password=abc def", "x" * 300 + f"_password={REDACTED} def"),
        # As in YAML: everything with a deeper indent than the key.
        ("a:\n  password:\n    x\n    y\n  name: bob", f"a:\n  password:{REDACTED}\n  name: bob"),
        ("password: |-\r\n  it's x\n\n  y\nname: bob", f"password: {REDACTED}\nname: bob"),
        *(
            (f"password: {value}\nname: bob", f"password: {REDACTED}\nname: bob")
            for value in (
                *(
                    "# why\n  x",
                    "| # why\n  x",
                    "!!str x",
                    "&a x",
                    "!!str\n  x",
                    "&a !!str # why\n  x",
                    "!vault |\n  1\n  x",
                ),
                *("&a 'x y'", '!!str "x y"', "!<tag:yaml.org,2002:str> x", "!!omap [x, {y: 1}]", "!x"),
            )
        ),
        (r"a: 'password: &a # why\n  x\nname: bob'", rf"a: 'password: {REDACTED}\nname: bob'"),
        ("PASSWORD= && echo done", "PASSWORD= && echo done"),
        ("- tokens:\n  - x\n  - y\n- name: bob", f"- tokens:{REDACTED}\n- name: bob"),
        ("  if not token:\n    ^^^^^\n  File", f"  if not token:{REDACTED}\n  File"),
        ("the password:\nname: bob", "the password:\nname: bob"),
        ("https://x/?api_key=12", f"https://x/?api_key={REDACTED}"),
        ("redis://:s3cret@host:1/0", f"redis://:{REDACTED}@host:1/0"),
        # What names an error, and what only asks for a secret, stays readable.
        ("InvalidTokenError: Signature has expired", "InvalidTokenError: Signature has expired"),
        ("KeyError: 'token'", "KeyError: 'token'"),
        ("the password: ", "the password: "),
        ("discard=3 cardinality=4", "discard=3 cardinality=4"),
    ]:
        with subtests.test(text=text):
            assert redact_text(text) == shown


PIECES = [
    *("a=", 'password="', "a", "://", "x:", "aa://bb:", "token=(", "token:{}", '"_', "token='\\", "token: \t"),
    *("a://:x", "--a ", "-password a ", "<a>", "<a ", "<token>", "eyJ", "eyJaaaaaaaaaaa.", "Bearer ", "Basic a"),
    *("password=a ", "password=a,", "password= a ", "password=a b;", 'cookie: a="', "cookie:a", "\\", '"'),
    *("-----BEGIN PRIVATE KEY-----", "a.", "a-", "-", "('", "('a', '", "'a', 'value': ", "password '"),
    *("password: ! ", "password: &a\n", "!a ", "&", "password: #\n ", "# ", "!", "password: |#\\n "),
    *("password:\n ", "password:\n", "password: |\n  ", "\n  ", "\\n ", "password:\\n "),
    *("0123456789abcdef", "SG.a", "xoxb-", "x@", "x://a", "gh", "do", "1:AA"),
]


def test_hostile_text_takes_no_time(subtests):
    for piece in PIECES:
        text = piece * (20_000 // len(piece))
        with subtests.test(piece=piece):
            # What this thread computes: milliseconds, and many seconds if it grew with the square of the length.
            started = time.thread_time()
            for before in ("", "password=", "cookie: "):
                redact_text(before + text)
            assert time.thread_time() - started < 2


def test_secrets_come_back_where_they_were(subtests):
    for original, edited, restored in [
        ({"a": 1, "token": "t"}, {"a": 2, "token": REDACTED}, {"a": 2, "token": "t"}),
        ({"token": "t"}, {"token": "new"}, {"token": "new"}),
        ({"x": {"pin": "1", "n": 1}}, {"x": {"pin": REDACTED, "n": 2}}, {"x": {"pin": "1", "n": 2}}),
        ({"ab://b:c@d": 1, "n": 1}, {f"ab://b:{REDACTED}@d": 2, "n": 1}, {"ab://b:c@d": 2, "n": 1}),
        ([{"pin": "1"}, 5], [{"pin": REDACTED}, 6], [{"pin": "1"}, 6]),
        # Somebody took the first away: whose secret the other one's place has is not to be guessed.
        ([{"pin": "1"}, {"pin": "2"}], [{"pin": REDACTED}], [{"pin": REDACTED}]),
        ({"a": 1}, [1], [1]),
    ]:
        with subtests.test(original=original):
            assert restore(edited, redact(original), original) == restored
            assert is_redacted(restored) == (REDACTED in str(restored))
