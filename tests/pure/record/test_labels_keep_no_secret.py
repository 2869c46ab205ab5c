"""Five hundred messages of twenty protocols with a secret in each place: no label has any of it.

And the names that servers are known by stay as they are.
"""

from __future__ import annotations

import base64
import string
import struct
from collections.abc import Callable, Iterator
from random import Random

import pytest

from critpath_record.hpack import Headers
from critpath_record.messages import WINDOW, MessageLabels

Make = Callable[[Random], str]


def draw(rng: Random, letters: str, count: int) -> str:
    return "".join(rng.choices(letters, k=count))


# What secrets look like: none is a short word in letters of one case, which nobody can tell from
# a name.
SECRETS: dict[str, Make] = {
    "letters of both cases": lambda rng: "qZ" + draw(rng, string.ascii_letters, rng.randint(8, 14)),
    "many letters": lambda rng: draw(rng, string.ascii_lowercase, rng.randint(16, 22)),
    "capitals": lambda rng: draw(rng, string.ascii_uppercase, rng.randint(9, 20)),
    "with digits": lambda rng: draw(rng, string.ascii_lowercase, 9) + str(rng.randint(10, 999)),
    "base64": lambda rng: base64.urlsafe_b64encode(rng.randbytes(15)).decode(),
    "hexadecimal": lambda rng: rng.randbytes(8).hex(),
    "a number": lambda rng: str(rng.randrange(10**9, 10**12)),
    "of a JWT": lambda rng: f"eyJ{base64.urlsafe_b64encode(rng.randbytes(12)).decode()}",
    "an address": lambda rng: f"u{rng.randint(100, 999)}.{rng.choice(['anna', 'jo'])}@example.org",
}
# Words that may stand bare where only a user's name or a password stands.
NAMES: dict[str, Make] = {
    "a word": lambda rng: (
        "".join(rng.choices("bdfgklmnprstvz", k=3)) + rng.choice(["ikow", "arma"])
    ),
    **{name: SECRETS[name] for name in ("letters of both cases", "many letters", "with digits")},
}


def postgres(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def mysql(text: str) -> bytes:
    return len(text).to_bytes(3, "little") + b"\0\3" + text.encode()


# Protocol and place: the secret stands at {}.
TEXTS: dict[str, tuple[str, ...]] = {
    "HTTP": (
        "GET /{} HTTP/1.1\r\n",
        "GET /users/{}/orders HTTP/1.1\r\n",
        "PUT /reset/{}.json HTTP/1.1\r\n",
        "POST /a?token={} HTTP/1.1\r\n",
        "GET /a;session={} HTTP/1.1\r\n",
        "GET /a#{} HTTP/1.1\r\n",
        "GET http://u:{}@host/in HTTP/1.1\r\n",
        "GET http://{}.example/in HTTP/1.1\r\n",
        "GET /a HTTP/1.1\r\nCookie: {}\r\n",
        "POST /a HTTP/1.0\r\n\r\n{}",
        "DELETE /a/x-{} HTTP/1.1\r\n",
        "PATCH /a/%20{} HTTP/1.1\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /{}\r\n",
        "GET /{}",
    ),
    "Redis": (
        "*2\r\n$3\r\nGET\r\n$20\r\n{}\r\n",
        "*2\r\n$4\r\nAUTH\r\n$20\r\n{}\r\n",
        "$20\r\n{}\r\n",
        "+{}\r\n",
        "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$9\r\n{}\r\n",
        "*1\r\n$20\r\n{}\r\n",
        "GET {}\r\n",
    ),
    "memcached": (
        "get {}\r\n",
        "set {} 0 0 5\r\nhello\r\n",
        "set k 0 0 20\r\n{}\r\n",
        "VALUE {} 0 5\r\n",
    ),
    "NATS": ("PUB {} 5\r\nhello\r\n", "MSG a 1 20\r\n{}\r\n", 'CONNECT {{"auth_token":"{}"}}\r\n'),
    "SMTP": ("AUTH PLAIN {}\r\n", "MAIL FROM:<{}>\r\n", "RCPT TO:<{}>\r\n", "{}\r\n"),
    "IMAP": ("a1 LOGIN anna {}\r\n", "a1 SELECT {}\r\n"),
    "POP3": ("USER {}\r\n", "PASS {}\r\n", "APOP anna {}\r\n"),
    "FTP": ("USER {}\r\n", "PASS {}\r\n", "RETR {}\r\n", "DELETE {}\r\n"),
    "IRC": ("PASS {}\r\n", "PRIVMSG NickServ :IDENTIFY {}\r\n", "NICK {}\r\n"),
    "STOMP": ("CONNECT\nlogin:anna\npasscode:{}\n\n\0", "SEND\ndestination:/queue/{}\n\nx\0"),
    "XMPP": ("<auth mechanism='PLAIN'>{}</auth>", "<stream to='{}'>"),
    "SIP": ("REGISTER sip:{}@example.org SIP/2.0\r\n", "OPTIONS sip:{} SIP/2.0\r\n"),
    "RTSP": ("DESCRIBE rtsp://anna:{}@host/a RTSP/1.0\r\n", "OPTIONS /{} RTSP/1.0\r\n"),
}
BYTES: dict[str, tuple[tuple[bytes, bytes], ...]] = {
    "AMQP": (
        (b"\1\0\1\0\0\0\x0d\0\x3c\0\x28\0\0\0\x14", b""),
        (b"\1\0\0\0\0\0\x0d\0\x0a\0\x0b", b"\xce"),
        (b"\3\0\1\0\0\0\x20", b"\xce"),
    ),
    "MQTT": ((b"\x10\x20\0\4MQTT\4\xc2\0\x3c\0\2id\0\1u\0\x10", b""), (b"\x30\x20\0\x10", b"")),
    "Kafka": (
        (b"\0\0\0\x40\0\0\0\7\0\0\0\1\0\x10", b""),
        (b"\0\0\0\x30\0\x24\0\0\0\0\0\1\0\1c", b""),
    ),
    "MongoDB": (
        (b"\x60\0\0\0\1\0\0\0\0\0\0\0\xdd\7\0\0\0\0\0\0\0\x40\0\0\0\2pwd\0\x14\0\0\0", b"\0\0"),
    ),
    "LDAP": ((b"\x30\x30\2\1\1\x60\x2b\2\1\3\4\x0bcn=a,dc=org\x80\x14", b""),),
    "Cassandra": (
        (b"\4\0\0\1\x0f\0\0\0\x20\0\0\0\x1c\0anna\0", b""),
        (b"\4\0\0\1\7\0\0\0\x30SELECT * FROM t WHERE k=", b""),
    ),
    "TLS": ((b"\x16\3\1\2\0\1\0\1\xfc\3\3", b""),),
    "SSH": ((b"SSH-2.0-", b"\r\n"),),
    "SOCKS": ((b"\1\4anna\x14", b""),),
    "DNS": ((b"\1\2\1\0\0\1\0\0\0\0\0\0\x14", b"\3org\0\0\1\0\1"),),
    "PostgreSQL's own": (
        (b"\0\0\0\x29\0\3\0\0user\0", b"\0\0"),
        (b"p\0\0\0\x19", b"\0"),
        (b"B\0\0\0\x30\0s\0\0\1\0\0\0\1\0\0\0\x14", b""),
        (b"D\0\0\0\x20\0\1\0\0\0\x14", b""),
    ),
    "MySQL's own": (
        (b"\x50\0\0\1\x85\xa6\xff\1\0\0\0\1\x21" + bytes(23), b"\0\x14"),
        (b"\x20\0\0\0\x17\1\0\0\0\0\1\0\0\0", b""),
    ),
}
QUOTED = (
    "SELECT a FROM u WHERE p = '{}'",
    "INSERT INTO u VALUES ('{}')",
    "SET x = '{}'",
    "SELECT E'{}'",
    "UPDATE u SET p='{}'",
    "SELECT $${}$$",
    "/* {} */ SELECT 1",
    "SELECT 1 -- {}",
    "COPY t FROM '{}'",
    "CREATE USER anna PASSWORD '{}'",
    "SELECT a FROM u WHERE p LIKE '%{}%'",
    "NOTIFY c, '{}'",
)
BARE = (
    "SELECT a FROM u WHERE token={}",
    "SELECT a FROM u WHERE token = {} AND b = 1",
    "SET password = {}",
    "SET app.token TO {}",
    "UPDATE u SET p={}, q=1",
    "UPDATE u SET p = {} WHERE a = 3",
    "INSERT INTO u VALUES ({})",
    "INSERT INTO u (a) VALUES (1, {})",
    "SELECT a FROM u WHERE a IN ({})",
    'SELECT a FROM u WHERE p = "{}"',
    "SELECT a FROM u WHERE p = `{}`",
    "SET SESSION x = {}",
)
USERS = (
    "CREATE USER {}",
    "ALTER USER {} PASSWORD 'x'",
    "DROP USER IF EXISTS {}",
    "CREATE ROLE {} LOGIN",
    "GRANT SELECT ON t TO {}",
    "GRANT {} TO anna",
    "REVOKE ALL ON t FROM {}",
    "SET ROLE {}",
    "SET SESSION AUTHORIZATION {}",
    "ALTER TABLE t OWNER TO {}",
    "REASSIGN OWNED BY {} TO x",
    "CREATE USER anna IDENTIFIED BY {}",
    "SET PASSWORD FOR {} = 'x'",
    "CREATE USER '{}'@'host'",
    "ALTER ROLE {} SET x TO 1",
    "CREATE USER MAPPING FOR {} SERVER s",
    'CREATE USER "{}"',
    "CREATE USER anna WITH PASSWORD {}",
    "DROP ROLE {}",
    "GRANT ALL ON t TO `{}`@`host`",
)


def sql(text: str) -> Iterator[tuple[str, bytes]]:
    yield "PostgreSQL", postgres(b"Q", text.encode() + b"\0")
    yield "PostgreSQL, parsed", postgres(b"P", b"s\0" + text.encode() + b"\0\0\0")
    yield "MySQL", mysql(text)


def messages() -> Iterator[tuple[str, str, bytes]]:
    """Yield protocol, secret and message, each place with some kinds of secrets."""
    rng = Random(3)  # noqa: S311 - inputs, not secrets
    kinds = list(SECRETS.values())
    for protocol, texts in TEXTS.items():
        for number, text in enumerate(texts * 5):
            secret = kinds[number % len(kinds)](rng)
            yield protocol, secret, text.format(secret).encode()
    for protocol, parts in BYTES.items():
        for number, (before, after) in enumerate(parts * 4):
            secret = kinds[number % len(kinds)](rng)
            yield protocol, secret, before + secret.encode() + after
    for texts, known in ((QUOTED, SECRETS), (BARE, SECRETS), (USERS, NAMES)):
        made = list(known.values())
        for number, text in enumerate(texts):
            secret = made[number % len(made)](rng)
            for protocol, data in sql(text.format(secret)):
                if "--" not in text or protocol != "MySQL":
                    yield protocol, secret, data
    for number in range(60):
        secret = kinds[number % len(kinds)](rng)
        yield "HTTP", secret, f"GET /items/{secret}/a HTTP/1.1\r\n".encode()


CORPUS = list(messages())


def leaks(label: str, secret: str) -> bool:
    """Tell whether five characters of a secret in a row are in a label."""
    return any(secret[at : at + 5] in label for at in range(len(secret) - 4))


def test_there_are_five_hundred_of_twenty_protocols():
    assert len(CORPUS) >= 500
    assert len({protocol for protocol, *_ in CORPUS}) >= 20


def test_no_label_has_any_of_a_secret():
    kept = []
    for protocol, secret, data in CORPUS:
        label = MessageLabels().label(1, data[:WINDOW])
        if leaks(label, secret):
            kept.append((protocol, secret, label))
    assert not kept


def encode(name: bytes, value: bytes) -> bytes:
    """Return a header of HTTP/2, neither known nor compressed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


@pytest.mark.parametrize("kind", SECRETS)
def test_no_name_of_a_stream_has_any_of_a_secret(kind):
    rng = Random(5)  # noqa: S311 - as above
    for _ in range(10):
        secret = SECRETS[kind](rng)
        for path, more in (
            (f"/a/{secret}", b""),
            (f"/a?b={secret}", b""),
            ("/a", secret.encode()),
        ):
            block = encode(b":method", b"GET") + encode(b":path", path.encode())
            block += encode(b"authorization", more)
            assert not leaks(Headers().label(block, whole=True)[0], secret)


@pytest.mark.parametrize(
    "name",
    [
        "GET /",
        "GET /users/:id/orders",
        "GET /api/v2/me",
        "GET /static/app.js",
        "GET /index.html",
        "POST /oauth2/token",
        "GET /recommendations",
        "POST /cart/checkout",
        "GET /placeOrder",
        "GET /api/getUserById",
        "GET /order-history/all",
        "GET /snake_case/path",
        "GET /API/items",
        "POST /home-timeline/read",
        "GET /healthz",
        "GET /metrics",
        "GET /ProductPage",
        "GET /shop.Orders/Get",
    ],
)
def test_names_that_servers_are_known_by_stay(name):
    assert MessageLabels().label(1, f"{name.replace(':id', '17')} HTTP/1.1\r\n".encode()) == name


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("SELECT a FROM t JOIN u ON t.id = u.tid", "SELECT a FROM t JOIN u ON t.id = u.tid"),
        ("UPDATE b SET bal = bal + $1 WHERE bid = $2", "UPDATE b SET bal = bal + ? WHERE bid = ?"),
        ("SELECT a FROM t WHERE b = ANY ($1)", "SELECT a FROM t WHERE b = ANY (?)"),
        ("SELECT a FROM t WHERE at = now()", "SELECT a FROM t WHERE at = now()"),
        ("INSERT INTO t (a, b) VALUES ($1, $2)", "INSERT INTO t (a, b) VALUES (?)"),
        (
            "SELECT a FROM t WHERE b IN (SELECT c FROM d)",
            "SELECT a FROM t WHERE b IN (SELECT c FROM d)",
        ),
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ),
        ("SET NAMES utf8mb4", "SET NAMES utf8mb4"),
        ("SELECT a FROM users GROUP BY a", "SELECT a FROM users GROUP BY a"),
        ("SELECT a FROM user WHERE id = 7", "SELECT a FROM user WHERE id = ?"),
        ("CREATE USER anna PASSWORD 'x'", "CREATE USER ?"),
        ("GRANT SELECT ON t TO anna", "GRANT SELECT ON t TO ?"),
        ("SET search_path TO shop", "SET search_path TO ?"),
        ("DISCARD ALL", "DISCARD ALL"),
        ("SAVEPOINT sa_savepoint_1", "SAVEPOINT sa_savepoint_1"),
        ("SELECT t.a FROM t WHERE t.b = t.c", "SELECT t.a FROM t WHERE t.b = t.c"),
    ],
)
def test_statements_stay_what_they_are(text, label):
    assert MessageLabels().label(1, postgres(b"Q", text.encode() + b"\0")) == label
