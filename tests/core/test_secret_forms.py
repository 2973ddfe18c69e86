"""The forms in which secrets stand in data, errors, tracebacks and command lines: none of them is shown."""

import json

import pytest

from mq_django.core.redaction import REDACTED, redact, redact_bytes, redact_forms, redact_text

#: Part of every secret below, if the form has no other.
S = "hunter2"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"
KEY = "MIIEpAIBAAKCAQEA"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}7\nabc{KEY}\n-----END RSA PRIVATE KEY-----"

#: Text with a secret, and what of it must not be shown.
TEXTS: list[tuple[str, str]] = [
    # Assigned, in the ways of languages, settings and logs.
    ("password=hunter2", S),
    ("password = hunter2", S),
    ("password: hunter2", S),
    ("password:hunter2", S),
    ("PASSWORD := 'hunter2'", S),
    ("'password' => 'hunter2'", S),
    ("password == 'hunter2'", S),
    ("db.password=hunter2", S),
    ("export PGPASSWORD=hunter2", S),
    ("MYSQL_PWD=hunter2", S),
    ('config["password"] = "hunter2"', S),
    ("user[password]=hunter2", S),
    ("User(name='bob', password='hunter2')", S),
    ("User(name=bob, password=hunter2, age=3)", S),
    ('password=SecretStr("hunter2")', S),
    ("password=b'hunter2'", S),
    ("password = r'hunter2'", S),
    ("password='it\\'s hunter2'", S),
    ("password%3Dhunter2", S),
    ("ALTER USER bob WITH PASSWORD 'hunter2'", S),
    ("<password>hunter2</password>", S),
    ('<ns:password type="text">hunter2</ns:password>', S),
    ("pw=hunter2 host=db", S),
    ("dbpwd=hunter2", S),
    # Command lines.
    ("mysql --password=hunter2 db", S),
    ("mysql --password hunter2 db", S),
    ("tool --db-password='hunter2'", S),
    ("tool -password hunter2", S),
    ("tool --api-key hunter2", S),
    ("('--token', 'hunter2')", S),
    # Of several words, and with characters that end a value elsewhere.
    ("password: correct horse hunter2", S),
    ("passphrase = correct horse hunter2", S),
    ("Server=db;Password=correct horse hunter2;Database=x", S),
    ("password='correct horse hunter2'", S),
    ('"password": "correct, horse; hunter2"', S),
    ("password=a,hunter2", S),
    ("password=a)hunter2", S),
    ("password=a&hunter2", S),
    ("password=a}hunter2!", S),
    ("password=DOMAIN\\hunter2", S),
    ("password: a\\nb hunter2", S),
    ("password=" + "\\" * 200 + '"hunter2"', S),
    # Headers.
    ("Authorization: Bearer hunter2hunter2", S),
    ("authorization: Basic aHVudGVyMg==", "aHVudGVyMg"),
    ('Authorization: Digest username="bob", realm="x", response="hunter2"', S),
    ("Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=hunter2", S),
    ("Proxy-Authorization: Negotiate hunter2", S),
    ("X-Api-Key: hunter2", S),
    ("HTTP_AUTHORIZATION=hunter2 abc", S),
    ("('Authorization', 'Token hunter2')", S),
    ("[b'authorization', b'hunter2']", S),
    ('["X-Auth-Token", "hunter2"]', S),
    ("Cookie: theme=dark; sessionid=hunter2", S),
    ("Cookie: a=1; b=hunter2; c=3", S),
    ("Set-Cookie: id=1; Path=/; x=hunter2", S),
    ("{'Cookie': 'a=1; b=hunter2'}", S),
    # Known by their form alone.
    ("Bearer hunter2hunter2", S),
    ("authorized by bearer hunter2hunter2", S),
    ("got Bearer abc.hunter2-x from the client", S),
    ("sent Basic aHVudGVyMjpodW50ZXIy to the host", "aHVudGVyMjpodW50ZXIy"),
    (JWT, "SflKxwRJSMeKKF2QT4"),
    (f"the token {JWT} has expired", "eyJzdWIiOiIxMjM0In0"),
    (JWT[:40], "eyJzdWIi"),
    (PEM, KEY),
    (PEM.replace("\n", "\\n"), KEY),
    (PEM[:60], KEY),
    (PEM.replace("RSA ", ""), KEY),
    (PEM.replace("RSA", "OPENSSH"), KEY),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----", S),
    ("AKIAIOSFODNN7EXAMPLE is not allowed", "AKIAIOSFODNN7EXAMPLE"),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "0123456789abcdefghij"),
    ("github_pat_11ABCDEFG0123456789_abcdefghij", "11ABCDEFG0123456789"),
    ("glpat-0123456789abcdefghij", "0123456789abcdefghij"),
    ("xoxb-123456789012-abcdefABCDEF", "abcdefABCDEF"),
    ("https://hooks.slack.com/services/T00000000/B00000000/abcdefABCDEF", "abcdefABCDEF"),
    ("sk_" + "live_0123456789abcdefghijklmn", "0123456789abcdefghijklmn"),
    ("SG.0123456789abcdefghijkl.0123456789abcdefghijkl", "abcdefghijkl"),
    ("AIza0123456789abcdefghijABCDEFGHIJ01234", "0123456789abcdefghij"),
    ("sk-proj-0123456789abcdefghij", "0123456789abcdefghij"),
    ("npm_0123456789abcdefghijABCDEFGHIJ012345", "0123456789abcdefghij"),
    ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"),
    # URLs and connection strings.
    ("redis://:hunter2@host:6379/0", S),
    ("postgres://bob:hunter2@host/db", S),
    ("postgres://bob:a/hunter2@host/db", S),
    ("postgres://bob:a@hunter2@host/db", S),
    ("postgres://bob:a#hunter2?x@host/db", S),
    ("amqps://bob:a:hunter2@host", S),
    ("mongodb+srv://bob:hunter2@h1,h2/db", S),
    ("redis://:hunter2@h1,redis://:hunter2@h2", S),
    ("https://hunter20123456789abcdef@o1.ingest.example.com/7", S),
    ("https://host/path?api_key=hunter2&x=1", S),
    ("https://host/cb#access_token=hunter2", S),
    ("https://host/blob?sv=1&sig=hunter2", S),
    ("https://bucket/x?X-Amz-Signature=hunter2", S),
    ("host=db user=bob password=hunter2 dbname=x", S),
    ("host=db password='hunter2 x' dbname=x", S),
    ("Server=db;Database=x;User Id=sa;Password=hunter2;", S),
    ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=hunter2==;EndpointSuffix=y", S),
    ("Endpoint=sb://x/;SharedAccessKeyName=y;SharedAccessKey=hunter2=", S),
    ("jdbc:postgresql://host/db?user=bob&password=hunter2", S),
    # JSON as text, and as text in text.
    ('{"password": "hunter2"}', S),
    ('{"password": "hunter2', S),
    ('{"a": {"password": ["x", "hunter2"]}}', S),
    ('{"pin": 271828}', "271828"),
    ('{"session_key": null, "client_secret": "hunter2"}', S),
    (json.dumps(json.dumps({"password": "hunter2"})), S),
    (json.dumps(json.dumps(json.dumps({"password": "hunter2", "n": 1}))), S),
    (json.dumps(json.dumps(json.dumps(json.dumps({"password": 'a "b" hunter2'})))), S),
    ("password: hunter2\nuser: bob", S),
    ("- password: 'hunter2'", S),
]

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
    "order:7",
    "user=bob name=card shop",
    "key=abc id=7 name=bob",
    "https://host:8080/path?email=bob@example.com",
    "https://host/path?q=a:b@c",
    "ssh://git@github.com/x/y",
    "mailto:bob@example.com",
    "bob@example.com: refused",
    "redis://host:6379/0",
    "KeyError: 'token'",
    "the bearer token is missing",
    "Bearer authentication failed",
    "Basic authentication failed",
    "jwt.exceptions.InvalidTokenError: Signature has expired",
    "InvalidToken: not enough segments",
    "the password is too short",
    "password reset for bob",
    "unexpected token '<' in line 3",
    "discard=3 cardinality=4 spin: 5 compass: 6",
    "11111111-2222-3333-4444-555555555555",
    "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    "sk-8 is a skill, task_live is none",
    "ValueError: 5 of 7 (x=1, y=2): [a, b]",
]


@pytest.mark.parametrize(("text", "secret"), TEXTS)
def test_a_secret_in_text_is_not_shown(text, secret):
    assert secret in text.replace("\\", "")
    for shown in (redact_text(text), redact({"note": text})["note"], redact_text(f"ValueError: {text}")):
        assert secret not in shown
        assert REDACTED in shown


@pytest.mark.parametrize(("text", "secret"), TEXTS)
def test_a_secret_in_text_that_is_quoted_in_other_text_is_not_shown(text, secret):
    for _ in range(3):
        text = json.dumps({"body": text, "n": 1})
        assert secret not in redact_text(text)


@pytest.mark.parametrize("data", DATA)
def test_a_secret_in_data_is_not_shown(data):
    assert S in json.dumps(data)
    assert S not in json.dumps(redact(data))
    assert S not in redact_text(json.dumps(data))
    assert S not in redact_text(repr(data))


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_is_shown(text):
    assert redact_text(text) == text
    assert redact({"note": text}) == {"note": text}


@pytest.mark.parametrize("name", ["card:7", "token:17", "session:abc", "auth=3", "pin", "password.reset", "u:card-7"])
def test_what_names_something_is_not_taken_for_a_key(name):
    assert redact_forms(name) == name


@pytest.mark.parametrize("name", [JWT, f"job-{JWT}", "redis://:hunter2@host", "Bearer hunter2hunter2"])
def test_what_names_something_and_is_a_secret_is_not_shown(name):
    assert REDACTED in redact_forms(name)


@pytest.mark.parametrize(
    "raw",
    [
        b"password\nhunter2\nx\ny",
        b"x\ny\nAPI-Key\nhunter2",
        b'data\n{"password": "hunter2"\xff}',
        b"\xff\xfe password=hunter2",
        b"authorization\nBearer hunter2",
    ],
)
def test_a_secret_in_raw_bytes_is_not_shown(raw):
    assert b"hunter2" not in redact_bytes(raw)


def test_raw_bytes_without_a_secret_are_shown():
    assert redact_bytes(b"type\nwelcome\ndata\n{\xff") == b"type\nwelcome\ndata\n{\\xff"
