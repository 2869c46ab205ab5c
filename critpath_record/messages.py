"""What people call a message: method and path, first words of SQL, the name of a command.

A message's first bytes come in, and a label goes out that has no value of it: no query
string, no number or quoted text, no key.  What is none of these has no label.
"""

from __future__ import annotations

import re
from typing import Final

WINDOW: Final = 64  # bytes of a message that are looked at
LABEL: Final = 64  # bytes that a label has at most
HEADERS: Final = 1024  # bytes that are looked through for a traceparent, if that is asked for
METHODS: Final = (b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS")
# Bytes of a command of Redis that have its name; behind it are keys and values.
COMMAND: Final = 32
# Of brokers: what NATS says of a message, and AMQP's methods of class 60, from byte 7 on.
NATS: Final = (b"PUB ", b"HPUB", b"MSG ", b"HMSG")
AMQP: Final = {40: "basic.publish", 60: "basic.deliver", 71: "basic.get-ok"}
BASIC: Final = 60

_MOST_PREPARED: Final = 65_536  # statements; those of the oldest socket are forgotten
_STARTUP: Final = b"\0\3\0\0"  # PostgreSQL's first message, behind its length
_MOST_KNOWN: Final = 4_096  # messages whose label is remembered

_REQUEST_LINE: Final = re.compile(
    rb"(%s) (?:https?://[^/\s]*)?(/[^\s?#;]*)([\s?#;][^\r\n]*)?" % b"|".join(METHODS)
)
# Of a path: a word, with a version's number or a single digit at its end (v1, oauth2, ipv6).
_LONGEST: Final = 24  # technical: letters of a segment with words
_BETWEEN: Final = re.compile(r"[._~-]+")
_WORD: Final = re.compile(
    r"v\d{1,2}|[a-z]{1,15}|[A-Z]{1,8}|[A-Z][a-z]{1,14}|(?:[a-z]{2,10}|[A-Z]{2,8})\d", re.ASCII
)
# placeOrder, UserById: letters of both cases are words only where each may be read as one.
_CAMEL: Final = re.compile(r"[a-z]{2,12}(?=[A-Z])|[A-Z][a-z]{1,11}", re.ASCII)
_SAYABLE: Final = re.compile(r"(?=.*[aeiouy])(?!.*[^aeiouy]{4})", re.IGNORECASE)
_LITTLE: Final = frozenset(re.findall(r"\w+", "as at by do go id in is me my no of on or to up"))
_MOST_WORDS: Final = 4  # technical: of one name in both cases
_FOLDED: Final = ":id"
_FILES: Final = frozenset(
    re.findall(r"\w+", "css gif htm html ico jpeg jpg js json map mjs pdf php png svg txt webp xml")
)
_MOST_SEGMENTS: Final = 12

_COMMAND: Final = re.compile(rb"\*[1-9]\d{0,5}\r\n\$(\d{1,2})\r\n([A-Za-z.]{2,24})\r\n")
_MODULES: Final = frozenset(("JSON", "FT", "BF", "CF", "CMS", "TOPK", "TS", "TDIGEST"))
# Replies have the same form: only what is a command's name is taken for one.
_COMMANDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
    APPEND AUTH BGSAVE BITCOUNT BITFIELD BITOP BITPOS BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP
    BZPOPMAX BZPOPMIN CLIENT CLUSTER COMMAND CONFIG COPY DBSIZE DECR DECRBY DEL DISCARD DUMP ECHO
    EVAL EVALSHA EXEC EXISTS EXPIRE EXPIREAT EXPIRETIME FCALL FLUSHALL FLUSHDB FUNCTION GEOADD
    GEODIST GEOHASH GEOPOS GEORADIUS GEOSEARCH GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HELLO
    HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN HSET HSETNX
    HSTRLEN HVALS INCR INCRBY INCRBYFLOAT INFO KEYS LASTSAVE LINDEX LINSERT LLEN LMOVE LMPOP LPOP
    LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MEMORY MGET MIGRATE MONITOR MOVE MSET MSETNX MULTI
    OBJECT PERSIST PEXPIRE PEXPIREAT PFADD PFCOUNT PFMERGE PING PSETEX PSUBSCRIBE PTTL PUBLISH
    PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY RENAME RENAMENX REPLCONF RESET RESTORE ROLE RPOP
    RPOPLPUSH RPUSH RPUSHX SADD SAVE SCAN SCARD SCRIPT SDIFF SDIFFSTORE SELECT SET SETBIT SETEX
    SETNX SETRANGE SHUTDOWN SINTER SINTERCARD SINTERSTORE SISMEMBER SLOWLOG SMEMBERS SMISMEMBER
    SMOVE SORT SPOP SRANDMEMBER SREM SSCAN STRLEN SUBSCRIBE SUNION SUNIONSTORE SWAPDB TIME TOUCH
    TTL TYPE UNLINK UNSUBSCRIBE UNWATCH WAIT WATCH XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO
    XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE XTRIM ZADD ZCARD ZCOUNT ZDIFF ZINCRBY ZINTER
    ZINTERSTORE ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX
    ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE
    ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE
    """,
    )
)

_STATEMENTS: Final = frozenset(
    re.findall(
        r"\w+",
        """
    ALTER ANALYZE BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT COMMIT COPY CREATE DEALLOCATE
    DECLARE DELETE DESCRIBE DISCARD DO DROP END EXECUTE EXPLAIN FETCH GRANT INSERT LISTEN LOAD
    LOCK MERGE MOVE NOTIFY PREPARE REFRESH REINDEX RELEASE REPLACE RESET REVOKE ROLLBACK SAVEPOINT
    SELECT SET SHOW START TABLE TRUNCATE UNLISTEN UPDATE USE VACUUM VALUES WITH
    """,
    )
)
_SQL_COMMENT: Final = re.compile(r"\s*(?:/\*.*?\*/|--[^\n]*\n)", re.DOTALL)
_SQL_FIRST: Final = re.compile(r"[\s(;]*([A-Za-z]{2,12})(?![A-Za-z])")
_SQL_VALUE: Final = re.compile(r"\$\d+|(?<![\w$])[+-]?\.?\d[\w.]*", re.ASCII)
_SQL_VALUES: Final = re.compile(r"\?(?:\s*,\s*\?)+")
# From here on it may be text that somebody wrote: quoted (also $$...$$), or a comment.
_SQL_QUOTED: Final = re.compile(r"'|\$(?!\d)|/\*|--|\0")
# A word after these is somebody's name or password, of statements about users.
_USERS: Final = frozenset(("ALTER", "CREATE", "DROP", "REASSIGN", "RENAME", "SET"))
_WORDS: Final = r"(?:[\w$@.%-]+|\"[^\"]*\"?|`[^`]*`?)"
_SQL_USER: Final = re.compile(
    r"\b(USER(?! MAPPING)|ROLE|GROUP|LOGIN|FOR|AUTHORIZATION|OWNER TO|OWNED BY|DEFINER ?=)\s+"
    rf"((?:IF\s+(?:NOT\s+)?EXISTS\s+)?)(?!\?){_WORDS}.*",
    re.IGNORECASE,
)
_SQL_SECRET: Final = re.compile(
    rf"\b(PASSWORD|IDENTIFIED(?:\s+WITH\s+\w+)?(?:\s+(?:BY|AS))?)\s+(?!\?|FOR\b){_WORDS}.*",
    re.IGNORECASE,
)
_SQL_GRANT: Final = re.compile(
    r"\b(GRANT|REVOKE)\b(.*?\bON\s+\S+)?\s+(?:(TO|FROM)\b)?.*", re.IGNORECASE
)
_SQL_SET: Final = re.compile(
    rf"(SET\s+(?:SESSION\s+|LOCAL\s+|GLOBAL\s+)?(?!TRANSACTION|NAMES|CHARACTER){_WORDS})"
    r"(\s*=\s*|\s+TO\s+|\s+)(?!=|TO\b).+",
    re.IGNORECASE,
)
# What is equal to something: a name that was there before, a function, a word of SQL's, or a value.
_SQL_EQUAL: Final = re.compile(rf"(=\s*)({_WORDS})(?![\w$@.%-]|\s*\()")
_SQL_LISTED: Final = re.compile(r"\b(VALUES\s*\(|IN\s*\()(?!\s*SELECT\b)([^()]*)", re.IGNORECASE)
_SQL_OWN: Final = frozenset(
    re.findall(
        r"\w+", "ALL ANY ARRAY CASE CURRENT_DATE CURRENT_TIMESTAMP DEFAULT FALSE NOT NULL TRUE"
    )
)
_SQL_LENGTH: Final = 44  # where the message goes on: what is before the statement varies
_NAMES: Final = 8  # bytes by which longer names of prepared statements make room for less

_TRACE: Final = rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT: Final = re.compile(rb"\r\ntraceparent:[ \t]*" + _TRACE, re.IGNORECASE)
# As sqlcommenter and OpenTelemetry's instrumentations write it into a comment of a statement.
_COMMENTED: Final = re.compile(rb"/\*[^*]*?traceparent='" + _TRACE + rb"'[^*]*\*/")


class MessageLabels:
    """Labels messages; remembers what statements that were prepared say."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._prepared: dict[int, dict[bytes, str]] = {}
        self._statements = 0

    def label(self, socket: int, data: bytes) -> str:
        """Return the label of a message that a socket received, "" for none."""
        if data[:1] in {b"P", b"B"} and data[1:2] == b"\0":
            return self._label_prepared(socket, data)
        if data[4:8] == _STARTUP and data[:2] == b"\0\0":
            # Another connection of this socket's address: what was prepared over the last is gone.
            self._forget(socket)
            return ""
        known = self._known.get(data)
        if known is None:
            known = label_message(data)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[data] = known
        return known

    def _label_prepared(self, socket: int, data: bytes) -> str:
        """Label PostgreSQL's Parse, which has the statement, and Bind, which has its name."""
        first, found, rest = data[5:].partition(b"\0")
        if not found:
            return ""
        if data[:1] == b"P":
            # A statement is called the same whatever number its name ends with.
            room = min(_SQL_LENGTH, WINDOW - 6 - _NAMES * (len(first) // _NAMES + 1))
            said = label_sql(rest, cut=b"\0" not in rest, room=room)
            if self._statements >= _MOST_PREPARED:
                self._forget(next(iter(self._prepared)))
            mine = self._prepared.setdefault(socket, {})
            self._statements += first not in mine
            mine[first] = said
            return said
        name, found, _ = rest.partition(b"\0")
        return self._prepared.get(socket, {}).get(name, "") if found else ""

    def _forget(self, socket: int) -> None:
        """Forget what was prepared over a socket."""
        self._statements -= len(self._prepared.pop(socket, ()))


def label_message(data: bytes) -> str:
    """Return the label of a message's first bytes, "" where they are of no known kind."""
    if data[:1] == b"*":
        return _label_command(data)
    if data[:1] == b"Q" and data[1:2] == b"\0":
        return label_sql(data[5:], cut=b"\0" not in data[5:])
    if data[2:5] == b"\0\0\3":
        # MySQL's COM_QUERY; without attributes there are a count of none and of one set.
        return label_sql(data[5:].removeprefix(b"\0\1"), quotes='"#', cut=len(data) == WINDOW)
    if data[:1] == b"\1" and data[7:10] == bytes((0, BASIC, 0)):
        return AMQP.get(data[10], "") if len(data) > 10 else ""
    if data[:4] in NATS:
        return data[:4].decode().rstrip() if data[4:5] != b"\r" else ""
    return _label_http(data)


def _label_http(data: bytes) -> str:
    """Return method and path, with what varies folded; only of what has the form of a request."""
    found = _REQUEST_LINE.match(data)
    if found is None:
        return ""
    method, target, after = found.groups()
    after = (after or b"").partition(b" ")[2] if after else b""
    if after and not after.startswith(b"HTTP/1."[: len(after)]):
        return ""
    segments = target.decode("ascii", "replace").split("/")[1:]
    if found[3] is None:
        segments[-1] = "…"  # it goes on beyond what is looked at
    folded = [fold_segment(one) for one in segments[:_MOST_SEGMENTS]]
    return cut_text(f"{method.decode()} /{'/'.join(folded)}")


def fold_segment(segment: str) -> str:
    """Return a segment of a path, ``:id`` for one that is no word."""
    if segment in {"", "…"} or _has_words(segment):
        return segment
    name, dot, ending = segment.rpartition(".")
    if dot and ending in _FILES:
        return f"{name if _has_words(name) else _FOLDED}.{ending}"
    return _FOLDED


def _has_words(segment: str) -> bool:
    """Tell whether a segment is words, which no token is: of one case each, none of them long."""
    return len(segment) <= _LONGEST and all(map(_is_word, _BETWEEN.split(segment)))


def _is_word(text: str) -> bool:
    if not text or _WORD.fullmatch(text):
        return True
    words = _CAMEL.findall(text)
    return (
        1 < len(words) <= _MOST_WORDS
        and "".join(words) == text
        and all(len(of) > 2 or of.lower() in _LITTLE for of in words)
        and all(map(_SAYABLE.match, words))
    )


def _label_command(data: bytes) -> str:
    found = _COMMAND.match(data)
    if found is None or int(found[1]) != len(found[2]):
        return ""
    name = found[2].decode().upper()
    module, dot, _ = name.partition(".")
    return name if name in _COMMANDS or (dot and module in _MODULES) else ""


def label_sql(data: bytes, *, quotes: str = "", cut: bool = False, room: int = _SQL_LENGTH) -> str:
    """Return the first words of a statement, up to quoted text; `room` of one that is `cut`."""
    text = data.decode("utf-8", "replace")
    while comment := _SQL_COMMENT.match(text):
        text = text[comment.end() :]
    first = _SQL_FIRST.match(text)
    if first is None or first[1].upper() not in _STATEMENTS:
        return ""
    text = text[first.start(1) :]
    ends = [at for at in (text.find(quote) for quote in quotes) if at >= 0]
    if quoted := _SQL_QUOTED.search(text):
        ends.append(quoted.start())
    end = min(ends, default=len(text))
    value = end < len(text) and text[end] not in "/-#\0"
    text = _SQL_VALUE.sub("?", text[:end])
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    text = _hide_unquoted(text, first[1].upper())
    if value and not text.endswith("?"):
        text += "?" if text.endswith(("(", "=")) else " ?"
    elif cut and len(text) > room:
        text = text[:room].rpartition(" ")[0] + " …"
    return cut_text(_SQL_VALUES.sub("?", text).rstrip(" ;"))


def _hide_unquoted(text: str, verb: str) -> str:
    """Return the words of a statement without names of users, and values that nobody quoted."""
    if verb in {"GRANT", "REVOKE"}:
        return _SQL_GRANT.sub(
            lambda of: f"{of[1]}{of[2] or ''} {f'{of[3]} ' if of[3] else ''}?", text
        )
    if verb in _USERS:
        text = _SQL_SECRET.sub(r"\1 ?", _SQL_USER.sub(r"\1 \2?", text))
    if verb == "SET":
        return _SQL_SET.sub(r"\1\2?", text)

    def hide(of: re.Match[str]) -> str:
        word = of[2].strip('"`')
        before = text[: of.start(2)]
        known = re.search(rf"(?<![\w$]){re.escape(word.partition('.')[0])}(?![\w$])", before)
        return of[0] if known or word.upper() in _SQL_OWN else f"{of[1]}?"

    text = _SQL_LISTED.sub(lambda of: f"{of[1]}{'?' if of[2].strip() else ''}", text)
    return _SQL_EQUAL.sub(hide, text)


def cut_text(text: str) -> str:
    """Return a text of at most `LABEL` bytes of UTF-8."""
    return text.encode()[:LABEL].decode("utf-8", "ignore")


def find_trace_id(data: bytes) -> bytes:
    """Return the trace id of a ``traceparent`` among a request's headers, zeros for none.

    Or in a comment of SQL.
    """
    if (data[:1] in {b"Q", b"P"} and data[1:2] == b"\0") or data[2:5] == b"\0\0\3":
        found = _COMMENTED.search(data)
    else:
        found = _TRACEPARENT.search(data.partition(b"\r\n\r\n")[0] + b"\r\n")
    return bytes.fromhex(found[1].decode()) if found else bytes(16)
