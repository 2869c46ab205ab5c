"""Ways to change a file: as bytes, as text, as JSON or lines of it, as columns of Parquet."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from mutating import change as change_tree
from mutating import places

LONG: Final = "x" * 100_000
_ODD_BYTES: Final = (
    b"\xff",
    b"\x80",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\0",
    b"\n",
    b"\xef\xbb\xbf",
    b'"',
)
_ODD_TEXTS: Final = (
    LONG, "\ud800", "\udfff\ud800", "\u202eevil", "\x1b]0;x\x07", "::error::x", "=cmd()", "a\nb",
    "\0", "../" * 40 + "etc/passwd", "/" * 5000, "\u2028", "{0.__class__}", "%s%n",
)  # fmt: skip
_ODD_NUMBERS: Final = (
    1 << 63, 1 << 64, -(1 << 63) - 1, 10**30, 10**4000, 1e308, float("nan"), float("inf"), -0.0,
)  # fmt: skip
_TYPES: Final = (
    pa.string(), pa.int8(), pa.uint64(), pa.float64(), pa.bool_(), pa.binary(), pa.date32(),
    pa.timestamp("ns"), pa.list_(pa.int64()), pa.dictionary(pa.int32(), pa.string()), pa.null(),
    pa.decimal128(38, 3), pa.large_string(), pa.struct([("a", pa.int64())]),
)  # fmt: skip


def change(content: bytes, kind: str, rng: Random) -> tuple[str, bytes | None]:
    """Return what was done, and the changed file; None where it is gone.

    Parameters
    ----------
    kind : str
        "json", "lines" of it, "parquet", "text" or "bytes".
    """
    chance = rng.random()
    if chance < 0.01:
        return "gone", None
    ways = {"json": _change_json, "lines": _change_line, "parquet": _change_table}
    if kind in ways and chance < 0.7:
        try:
            return ways[kind](content, rng)
        except (ValueError, RecursionError, TypeError, OverflowError, KeyError, pa.ArrowException):
            pass
    if kind not in {"bytes", "parquet"} and chance < 0.85:
        return _change_text(content, rng)
    return _change_bytes(content, rng)


def _change_json(content: bytes, rng: Random) -> tuple[str, bytes]:
    return "JSON", _changed(content, rng)


def _changed(content: bytes, rng: Random) -> bytes:
    tree: Any = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = places(tree) if isinstance(tree, dict | list) else []
        if at and rng.random() < 0.4:
            inside, key = rng.choice(at)
            inside[key] = rng.choice((*_ODD_TEXTS, *_ODD_NUMBERS))
            if isinstance(inside, dict) and rng.random() < 0.2:
                inside[rng.choice(_ODD_TEXTS)] = inside.pop(key)
        elif at and rng.random() < 0.1:
            inside, key = rng.choice(at)
            for _ in range(rng.choice((30, 3000))):
                inside[key] = [inside[key]] if rng.random() < 0.5 else {"a": inside[key]}
        else:
            tree = change_tree(tree, rng)
    escaped = rng.random() < 0.7
    return json.dumps(tree, ensure_ascii=escaped).encode("utf-8", "surrogatepass")


def _change_line(content: bytes, rng: Random) -> tuple[str, bytes]:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    how = rng.random()
    if how < 0.1:
        del lines[at]
        return f"line {at} gone", b"".join(lines)
    if how < 0.2:
        lines.insert(rng.randrange(len(lines)), lines[at])
        return f"line {at} again", b"".join(lines)
    lines[at] = _changed(lines[at], rng) + b"\n"
    return f"line {at}", b"".join(lines)


def _change_table(content: bytes, rng: Random) -> tuple[str, bytes]:
    table = pq.read_table(io.BytesIO(content))
    at = rng.randrange(table.num_columns)
    field = table.schema.field(at)
    column = table.column(at)
    how = rng.choice(("type", "type", "gone", "null", "value", "rows", "metadata", "name", "twice"))
    if how == "type":
        kind = rng.choice(_TYPES)
        try:
            made = column.cast(kind)
        except pa.ArrowException:
            made = pa.nulls(len(table), kind)
        table = table.set_column(at, pa.field(field.name, kind), made)
        how = f"{field.name} is {kind}"
    elif how == "gone":
        table = table.remove_column(at)
    elif how == "null":
        made = pa.nulls(len(table), field.type)
        table = table.set_column(at, pa.field(field.name, field.type), made)
    elif how == "value":
        values = column.to_pylist()
        odd = rng.choice((*_ODD_TEXTS, *_ODD_NUMBERS, -1, 0, 1 << 31, (1 << 63) - 1, True, None))
        values[rng.randrange(max(len(values), 1))] = odd
        table = table.set_column(at, field, pa.array(values, field.type))
    elif how == "rows":
        first = rng.randrange(max(len(table), 1))
        table = pa.concat_tables([table.slice(first), table.slice(0, first // 2)])
    elif how == "metadata":
        known = dict(table.schema.metadata or {})
        key = rng.choice(list(known) or [b"critpath"])
        known[key] = _changed(known.get(key, b"{}"), rng)
        table = table.replace_schema_metadata(known)
    elif how == "name":
        names = list(table.column_names)
        names[at] = rng.choice((LONG, "", "a\nb", names[at].upper(), names[at - 1]))
        table = table.rename_columns(names)
    else:
        table = table.append_column(field, column)
    out = io.BytesIO()
    pq.write_table(table, out, compression=rng.choice(("NONE", "SNAPPY", "ZSTD", "GZIP")))
    return f"Parquet: {how[:60]}", out.getvalue()


def _change_text(content: bytes, rng: Random) -> tuple[str, bytes]:
    """Change words or numbers, lines, or the way that letters are written."""
    made = bytearray(content)
    at = rng.randrange(len(made) + 1)
    how = rng.choice(("number", "word", "line", "letters", "bytes", "key"))
    begin, end = at, at
    digits = b"0123456789"
    inside = digits if how == "number" else b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    if how in {"number", "word"}:
        begin = next((i for i in range(at, len(made)) if made[i] in inside), at)
        end = next((i for i in range(begin, len(made)) if made[i] not in inside), len(made))
        odd = rng.choice((b"99999999999999999999999", b"-1", b"1e999", b"0x10", b"9" * 5000, b""))
        words = (LONG.encode(), b"NaN", b"null", b"\\ud800", "\u202e".encode(), b"::stop::", b"")
        made[begin:end] = odd if how == "number" else rng.choice(words)
    elif how == "line":
        begin = made.rfind(b"\n", 0, at) + 1
        end = made.find(b"\n", at) + 1 or len(made)
        made[begin:end] = rng.choice((b"", made[begin:end] * 2, made[begin:end] * 300, b"\xff\n"))
    elif how == "letters":
        code = rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7"))
        return code, content.decode("utf-8", "replace").encode(code, "replace")
    elif how == "key":
        made[at:at] = rng.choice((b"[[", b"{", b'"', b"'", b"=", b"\\", b"/*", b"#", b","))
    else:
        made[at:at] = rng.choice(_ODD_BYTES)
    return f"text: {how} at {begin}", bytes(made)


def _change_bytes(content: bytes, rng: Random) -> tuple[str, bytes]:
    made = bytearray(content)
    how = rng.choice(("flip", "set", "cut", "gone", "again", "words", "grown", "empty"))
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(made)) if made else 0
        size = rng.choice((1, 2, 4, 8, 64, 1000))
        if not made:
            made += rng.randbytes(8)
        elif how == "flip":
            made[at] ^= 1 << rng.randrange(8)
        elif how == "set":
            odd = rng.choice((0, 255, 127, 128, rng.randrange(256)))
            made[at : at + size] = bytes([odd]) * min(size, len(made) - at)
        elif how == "cut":
            del made[at:]
        elif how == "gone":
            del made[at : at + size]
        elif how == "again":
            made[at:at] = made[at : at + size]
        elif how == "words":
            width = rng.choice((2, 4, 8))
            odd = rng.choice((0, 1, (1 << 8 * width) - 1, (1 << (8 * width - 1)) - 1, 1 << 15))
            made[at : at + width] = (odd % (1 << 8 * width)).to_bytes(
                width, rng.choice(("little", "big"))
            )
        elif how == "grown":
            made += rng.randbytes(size)
        else:
            made = bytearray(rng.choice((b"", b"\n", b"{}", b"[]", b"null", b"0", b"PAR1PAR1")))
            break
    return f"bytes: {how}", bytes(made)
