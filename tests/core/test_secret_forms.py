"""The forms in which secrets stand in data, errors, tracebacks and command lines: none of them is shown."""

import json

from mq_django.core.redaction import REDACTED, redact, redact_bytes, redact_forms, redact_text

#: Part of every secret below, if the form has no other.
S = "hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"
KEY = "MIIEpAIBAAKCAQEA"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}7\nabc{KEY}\n-----END RSA PRIVATE KEY-----"

#: Text with a secret, by what of it must not be shown.
TEXTS = {
    S: [
        # Assigned, in the ways of languages, settings and logs.
        *("password=hunter2", "password = hunter2", "password: hunter2", "password:hunter2", "PASSWORD := 'hunter2'"),
        *("'password' => 'hunter2'", "password == 'hunter2'", "db.password=hunter2", "export PGPASSWORD=hunter2"),
        *("MYSQL_PWD=hunter2", 'config["password"] = "hunter2"', "user[password]=hunter2"),
        *("User(name='bob', password='hunter2')", "User(name=bob, password=hunter2, age=3)"),
        *('password=SecretStr("hunter2")', "password=b'hunter2'", "password = r'hunter2'"),
        *("password='it\\'s hunter2'", "password%3Dhunter2", "ALTER USER bob WITH PASSWORD 'hunter2'"),
        *("<password>hunter2</password>", '<ns:password type="text">hunter2</ns:password>', "pw=hunter2 host=db"),
        "dbpwd=hunter2",
        # Command lines.
        *("mysql --password=hunter2 db", "mysql --password hunter2 db", "tool --db-password='hunter2'"),
        *("tool -password hunter2", "tool --api-key hunter2", "('--token', 'hunter2')"),
        # Of several words, and with characters that end a value elsewhere.
        *("password: correct horse hunter2", "passphrase = correct horse hunter2"),
        *("Server=db;Password=correct horse hunter2;Database=x", "password='correct horse hunter2'"),
        *('"password": "correct, horse; hunter2"', "password=a,hunter2", "password=a)hunter2", "password=a&hunter2"),
        *("password=a}hunter2!", "password=DOMAIN\\hunter2", "password: a\\nb hunter2"),
        "password=" + "\\" * 200 + '"hunter2"',
        # Headers.
        "Authorization: Bearer hunter2hunter2",
        'Authorization: Digest username="bob", realm="x", response="hunter2"',
        "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=hunter2",
        *("Proxy-Authorization: Negotiate hunter2", "X-Api-Key: hunter2", "HTTP_AUTHORIZATION=hunter2 abc"),
        *("('Authorization', 'Token hunter2')", "[b'authorization', b'hunter2']", '["X-Auth-Token", "hunter2"]'),
        *("Cookie: theme=dark; sessionid=hunter2", "Cookie: a=1; b=hunter2; c=3"),
        *("Set-Cookie: id=1; Path=/; x=hunter2", "{'Cookie': 'a=1; b=hunter2'}"),
        # Known by their form alone.
        *("Bearer hunter2hunter2", "authorized by bearer hunter2hunter2", "got Bearer abc.hunter2-x from the client"),
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----",
        # URLs and connection strings.
        *("redis://:hunter2@host:6379/0", "postgres://bob:hunter2@host/db", "postgres://bob:a/hunter2@host/db"),
        *("postgres://bob:a@hunter2@host/db", "postgres://bob:a#hunter2?x@host/db", "amqps://bob:a:hunter2@host"),
        *("mongodb+srv://bob:hunter2@h1,h2/db", "redis://:hunter2@h1,redis://:hunter2@h2"),
        *("https://hunter20123456789abcdef@o1.ingest.example.com/7", "https://host/path?api_key=hunter2&x=1"),
        *("https://host/cb#access_token=hunter2", "https://host/blob?sv=1&sig=hunter2"),
        *("https://bucket/x?X-Amz-Signature=hunter2", "host=db user=bob password=hunter2 dbname=x"),
        *("host=db password='hunter2 x' dbname=x", "Server=db;Database=x;User Id=sa;Password=hunter2;"),
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hunter2==;EndpointSuffix=y",
        "Endpoint=sb://x/;SharedAccessKeyName=y;SharedAccessKey=hunter2=",
        "jdbc:postgresql://host/db?user=bob&password=hunter2",
        # JSON as text, and as text in text.
        *('{"password": "hunter2"}', '{"password": "hunter2', '{"a": {"password": ["x", "hunter2"]}}'),
        *('{"session_key": null, "client_secret": "hunter2"}', json.dumps(json.dumps({"password": "hunter2"}))),
        json.dumps(json.dumps(json.dumps({"password": "hunter2", "n": 1}))),
        json.dumps(json.dumps(json.dumps(json.dumps({"password": 'a "b" hunter2'})))),
        *("password: hunter2\nuser: bob", "- password: 'hunter2'"),
        *("password:\n  hunter2\nuser: bob", "password: >\n  correct\n  hunter2", "tokens:\n- abc\n- hunter2"),
        # Under long keys.
        *(
            f"{'x' * 100}_password=hunter2",
            f"tool --{'x' * 100}-password hunter2",
            f"('{'x' * 100}_password', 'hunter2')",
        ),
        *(
            f"<{'x' * 100}password>hunter2</x>",
            f'{{"name": "{"x" * 100}_token", "value": "hunter2"}}',
            "2password=hunter2",
        ),
    ],
    "aHVudGVyMg": ["authorization: Basic aHVudGVyMg=="],
    "aHVudGVyMjpodW50ZXIy": ["sent Basic aHVudGVyMjpodW50ZXIy to the host"],
    "SflKxwRJSMeKKF2QT4": [JWT],
    "eyJzdWIiOiIxMjM0In0": [f"the token {JWT} has expired"],
    "eyJzdWIi": [JWT[:40]],
    KEY: [PEM, PEM.replace("\n", "\\n"), PEM[:60], PEM.replace("RSA ", ""), PEM.replace("RSA", "OPENSSH")],
    "AKIAIOSFODNN7EXAMPLE": ["AKIAIOSFODNN7EXAMPLE is not allowed"],
    "0123456789abcdefghij": [
        *("ghp_0123456789abcdefghijABCDEFGHIJ012345", "glpat-0123456789abcdefghij"),
        *("AIza0123456789abcdefghijABCDEFGHIJ01234", "sk-proj-0123456789abcdefghij"),
        "npm_0123456789abcdefghijABCDEFGHIJ012345",
    ],
    "11ABCDEFG0123456789": ["github_pat_11ABCDEFG0123456789_abcdefghij"],
    "abcdefABCDEF": [
        "xoxb-123456789012-abcdefABCDEF",
        "https://hooks.slack.com/services/T00000000/B00000000/abcdefABCDEF",
    ],
    "0123456789abcdefghijklmn": ["sk_" + "live_0123456789abcdefghijklmn"],
    "abcdefghijkl": ["SG.0123456789abcdefghijkl.0123456789abcdefghijkl"],
    "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw": ["110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"],
    "271828": ['{"pin": 271828}'],
}

#: Data with a secret.
DATA = [
    {"password": S},
    {"user": {"credentials": {"x": S}}},
    {"headers": [["Authorization", S], ["Host", "x"]]},
    {"headers": [{"name": "Authorization", "value": S}]},
    {"env": [{"key": "API_TOKEN", "value": S}]},
    {"argv": ["tool", "--password", S, "--verbose"]},
    {"argv": ["tool", f"--password={S}"]},
    {"command": f"tool --password {S}"},
    {"cookies": {"a": S}},
    {"HTTP_COOKIE": f"a=1; b={S}"},
    {"note": f"Bearer {S}{S}"},
    {"url": f"redis://:a/{S}@host"},
    {"body": json.dumps({"body": json.dumps({"body": json.dumps({"secret": S})})})},
]

#: Text that is shown as it is.
PLAIN = [
    *("order:7", "user=bob name=card shop", "key=abc id=7 name=bob", "https://host:8080/path?email=bob@example.com"),
    *("https://host/path?q=a:b@c", "ssh://git@github.com/x/y", "mailto:bob@example.com", "bob@example.com: refused"),
    *("redis://host:6379/0", "KeyError: 'token'", "the bearer token is missing", "Bearer authentication failed"),
    *("Basic authentication failed", "jwt.exceptions.InvalidTokenError: Signature has expired"),
    *("InvalidToken: not enough segments", "the password is too short", "password reset for bob"),
    *("unexpected token '<' in line 3", "discard=3 cardinality=4 spin: 5 compass: 6"),
    *("11111111-2222-3333-4444-555555555555", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"),
    *("sk-8 is a skill, task_live is none", "ValueError: 5 of 7 (x=1, y=2): [a, b]"),
]
#: Ids and keys that are shown, and those that are not.
NAMES = ["card:7", "token:17", "session:abc", "auth=3", "pin", "password.reset", "u:card-7"]
SECRET_NAMES = [JWT, f"job-{JWT}", "redis://:hunter2@host", "Bearer hunter2hunter2"]
#: Bytes with a secret.
RAW = [
    *(b"password\nhunter2\nx\ny", b"x\ny\nAPI-Key\nhunter2", b'data\n{"password": "hunter2"\xff}'),
    *(b"kind\ntoken\npassword\nhunter2", b"x" * 100 + b"_password\nhunter2"),
    *(b"\xff\xfe password=hunter2", b"authorization\nBearer hunter2"),
]


def each_text():
    return [(text, secret) for secret, texts in TEXTS.items() for text in texts]


def test_a_secret_in_text_is_not_shown():
    for text, secret in each_text():
        assert secret in text.replace("\\", "")
    shown = [
        (text, secret, shown)
        for text, secret in each_text()
        for shown in (redact_text(text), redact({"note": text})["note"], redact_text(f"ValueError: {text}"))
    ]
    assert [row for row in shown if row[1] in row[2] or REDACTED not in row[2]] == []


def test_a_secret_in_text_that_is_quoted_in_other_text_is_not_shown():
    wrong = []
    for text, secret in each_text():
        quoted = text
        for _ in range(3):
            quoted = json.dumps({"body": quoted, "n": 1})
            if secret in redact_text(quoted):
                wrong.append(quoted)
    assert wrong == []


def test_a_secret_in_data_is_not_shown():
    wrong = []
    for data in DATA:
        text = json.dumps(data)
        assert S in text
        wrong += [
            shown for shown in (json.dumps(redact(data)), redact_text(text), redact_text(repr(data))) if S in shown
        ]
    assert wrong == []


def test_what_is_no_secret_is_shown():
    assert [redact_text(text) for text in PLAIN] == PLAIN
    assert redact({"notes": PLAIN}) == {"notes": PLAIN}


def test_a_name_is_not_shown_only_if_it_is_a_secret():
    assert [redact_forms(name) for name in NAMES] == NAMES
    assert [name for name in SECRET_NAMES if REDACTED not in redact_forms(name)] == []


def test_a_secret_in_raw_bytes_is_not_shown():
    assert [raw for raw in RAW if b"hunter2" in redact_bytes(raw)] == []
    assert redact_bytes(b"type\nwelcome\ndata\n{\xff") == b"type\nwelcome\ndata\n{\\xff"
