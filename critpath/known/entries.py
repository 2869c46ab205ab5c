"""A store on disk, made for version control: a file per session of a label.

    NAME.known/known.json
    NAME.known/entries/LABEL/2026-05-03T14-02-11Z-9f3c01.json

What others wrote is hostile: nothing is followed, executed or believed to be small.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.files import write_text
from critpath.known._pairs import read_pairs
from critpath.model import I64
from critpath.model.signatures import (
    LONGEST_TERM,
    MOST_COUNT,
    MOST_DOCUMENTS,
    MOST_TERMS,
    Counts,
    Entry,
)
from critpath.stores import remove_file
from critpath.units import safe_text
from critpath.untrusted import is_there, load_json, read_regular, refuse_damaged

STORE_FORMAT: Final = "critpath/known/1"
ENTRY_FORMAT: Final = "critpath/known-entry/1"
MOST_ENTRIES: Final = 100_000  # technical
_LARGEST: Final = 16 << 20  # technical: bytes of an entry
_LONGEST: Final = 4_096  # technical: letters of a note
_USUAL: Final = 1 << 50  # technical: above a count: of so many as an entry has the sum is a number
_LATEST: Final = 1 << 62  # technical
_LONGEST_NS: Final = 1 << 55  # technical: of a document: a year
_LABEL: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_NAME: Final = re.compile(r"[0-9TZ-]{20}-[0-9a-f]{6}\.json")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SIDES: Final = ("documents", "normal")
_NO_LINK: Final = "put the directory itself in its place"
_DO: Final = "take it back from version control, remove the file, or leave it out with --skip-bad"


@dataclass(frozen=True, eq=False)
class Store:
    """What is known: the entries of a store, in order of label and time.

    Attributes
    ----------
    path : Path
    entries : tuple of Entry
    notes : tuple of str
        What was left out, a line each.
    digest : str
        Of all entries: an answer rests on these.
    """

    path: Path
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hash of the entries' hashes."""
        return blake2b("".join(sorted(e.digest for e in self.entries)).encode()).hexdigest()[:16]

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove entries by file name, or all of a label; return what was removed."""
        gone = []
        for name in names:
            found = [
                e for e in self.entries if name in {e.label, e.name, e.name.removesuffix(".json")}
            ]
            if not found:
                raise UsageError(
                    f"{self.path}: no label and no entry {safe_text(name)!r:.120}",
                    f"see critpath known list {self.path}",
                )
            gone += [each.name for each in found if each.name not in gone]
        texts: dict[Path, str] = {}
        try:
            for name in gone:
                file = self.path / "entries" / name
                text = file.read_text(encoding="utf-8")
                remove_file(file)
                texts[file] = text
        except (OSError, CritpathError) as error:
            for file, text in texts.items():
                write_text(file, text)
            if isinstance(error, CritpathError):  # an object store's
                raise
            raise UsageError(
                f"cannot remove entries of {self.path}: {error.strerror}", "give access there"
            ) from error
        for directory in {file.parent for file in texts}:
            _remove_empty(directory)
        return gone

    def relabel(self, old: str, new: str) -> list[Entry]:
        """Give the sessions of a label another one."""
        check_label(new)
        found = [each for each in self.entries if old in {each.label, each.name}]
        if not found:
            raise UsageError(
                f"{self.path}: no label and no entry {safe_text(old)!r:.120}",
                f"see critpath known list {self.path}",
            )
        there = [each for each in self.entries if each.label == new]
        renamed = [replace(each, label=new, name="", digest="") for each in found]
        for each in renamed:  # all are looked at before one is written
            _check_alike(self.path, each, there)
        made: list[Entry] = []
        try:
            for each in renamed:
                made += [add_entry(self.path, each, self, force=True)]
            self.remove([each.name for each in found])
        except BaseException:
            for each in made:
                (self.path / "entries" / each.name).unlink(missing_ok=True)
                _remove_empty(self.path / "entries" / new)
            raise
        return made


def check_label(label: str) -> str:
    """Refuse what is no label: it becomes a directory's name."""
    if not _LABEL.fullmatch(label):
        raise UsageError(
            f"{safe_text(label)!r:.80} is no label",
            "letters, digits, . _ and -, at most 64, not beginning with a dot",
        )
    return label


def is_store(path: Path) -> bool:
    """Tell whether something is a store."""
    return (path / "known.json").is_file()


def open_store(path: Path, *, skip_bad: bool = False) -> Store:
    """Read a store whole.

    Parameters
    ----------
    path : Path
    skip_bad : bool
        Leave bad entries out, with a note for each, instead of refusing the store.

    Raises
    ------
    UnreadableError
        If it is no store, or an entry is bad: its file, and what is wrong with it.
    """
    about = _load(path / "known.json", path)
    if about.get("format") != STORE_FORMAT:
        raise UnreadableError(
            f"{path}: format {about.get('format')!r:.60}, this critpath reads {STORE_FORMAT}",
            "name a store: critpath known add NAME.known SOURCE --label LABEL makes one",
        )
    entries: list[Entry] = []
    notes: list[str] = []
    for label, name, file in _files(path, notes, skip_bad=skip_bad):
        if len(entries) >= MOST_ENTRIES:
            raise UnreadableError(f"{path}: more than {MOST_ENTRIES:,} entries", "split the store")
        try:
            entry = _read_entry(file, label)
        except UnreadableError as error:
            if not skip_bad:
                raise
            notes.append(f"left out: {error.what}")
            continue
        entries.append(replace(entry, name=f"{label}/{name}"))
    return Store(path, tuple(entries), tuple(notes))


def _files(path: Path, notes: list[str], *, skip_bad: bool) -> Iterator[tuple[str, str, Path]]:
    """Yield label, name and path of every entry; links are refused, nothing else is looked at."""
    top = path / "entries"

    def refuse(place: Path, what: str) -> None:
        error = UnreadableError(f"{place}: {what}", _DO)
        if not skip_bad:
            raise error
        notes.append(f"left out: {error.what}")

    if top.is_symlink():  # skipping what is bad would leave an empty store
        raise UnreadableError(f"{top}: a link, which a store's directories are not", _NO_LINK)
    for directory in _listed(top):
        if directory.is_symlink() or not directory.is_dir():
            refuse(directory, "no directory of a label")
        elif not _LABEL.fullmatch(directory.name):
            refuse(directory, "no label")
        else:
            for file in _listed(directory):
                if not _NAME.fullmatch(file.name):
                    refuse(file, "not named as an entry is")
                else:
                    yield directory.name, file.name, file


def _listed(directory: Path) -> list[Path]:
    """Return what is in a directory, in order; nothing where it is not there."""
    with refuse_damaged(directory, _DO):
        return sorted(directory.iterdir()) if is_there(directory) else []


def _load(file: Path, path: Path) -> Mapping[str, Any]:
    try:
        content = read_regular(file, _LARGEST)
    except OSError as error:
        if file.name == "known.json" and error.errno in {errno.ENOENT, errno.ENOTDIR}:
            raise UnreadableError(
                f"{path}: no store of known signatures",
                f"make one: critpath known add {path} SOURCE --label NAME",
            ) from error
        raise UnreadableError(f"{file}: {error.strerror or error}", _DO) from error
    with refuse_damaged(file, _DO, "no JSON of an entry"):
        parts = msgspec.structs.asdict(msgspec.json.decode(content, type=_File))
        found = {
            name: part
            if name in _SIDES
            else bytes(part)
            if name == "vocabulary"
            else load_json(bytes(part))
            for name, part in parts.items()
            if part is not None and part is not _NOTHING
        }
    return {**found, "": blake2b(content).hexdigest()}


_NOTHING: Final = msgspec.Raw()


class _Document(msgspec.Struct):
    """A document as its file has it; of counts, of which a store has millions, the text."""

    begin: int = 0
    end: int = 0
    counts: msgspec.Raw = msgspec.Raw(b"null")


class _File(msgspec.Struct):
    """An entry as its file has it, or what a store says of itself: parts, most as their text."""

    format: msgspec.Raw = _NOTHING
    label: msgspec.Raw = _NOTHING
    kind: msgspec.Raw = _NOTHING
    recorded: msgspec.Raw = _NOTHING
    note: msgspec.Raw = _NOTHING
    link: msgspec.Raw = _NOTHING
    host: msgspec.Raw = _NOTHING
    causes: msgspec.Raw = _NOTHING
    left_out: msgspec.Raw = _NOTHING
    scope: msgspec.Raw = _NOTHING
    interval: msgspec.Raw = _NOTHING
    source: msgspec.Raw = _NOTHING
    vocabulary: msgspec.Raw = msgspec.Raw(b"null")
    documents: list[_Document] = []
    normal: list[_Document] | None = None


@lru_cache(maxsize=64)
def _vocabulary(raw: bytes) -> tuple[str, ...]:
    """Return the terms, once for all entries that were counted in the same way."""
    found = load_json(raw)
    if not isinstance(found, list) or len(found) > MOST_TERMS:
        raise _WrongError(f"vocabulary: a list of at most {MOST_TERMS:,} terms was expected")
    if not all(map(_is_short, found)) or found != sorted(set(found)):
        raise _WrongError("vocabulary: terms in order, each once, were expected")
    return tuple(found)


class _WrongError(ValueError):
    """Something in an entry is not as it must be."""


def _read_entry(file: Path, label: str) -> Entry:
    found = _load(file, file)
    with refuse_damaged(file, _DO):
        try:
            return _entry(found, label)
        except _WrongError as error:
            raise UnreadableError(f"{file}: {error}", _DO) from error


def _entry(found: Mapping[str, Any], directory: str) -> Entry:
    if found.get("format") != ENTRY_FORMAT:
        raise _WrongError(f"format {found.get('format')!r:.60}, not {ENTRY_FORMAT}")
    label, kind = _text(found, "label", 64), _text(found, "kind", 16)
    recorded = _text(found, "recorded", 20)
    if label != directory:
        raise _WrongError(f"its label is {label!r:.80}")
    if kind not in {"state", "incident"}:
        raise _WrongError(f"kind {kind!r}")
    if not _is_time(recorded):
        raise _WrongError(f"recorded {recorded!r}: a time as 2026-05-03T14:02:11Z was expected")
    host, causes = _host(found.get("host", {})), _causes(found.get("causes", {}))
    about = (
        _vocabulary(found["vocabulary"]),
        _text(found, "scope", 512),
        _whole(found, "interval", _LATEST),
        _text(found, "source", 16),
    )
    normal = _counts(found["normal"], "normal", *about) if "normal" in found else None
    return Entry(
        label=label,
        kind="incident" if kind == "incident" else "state",
        recorded=recorded,
        counts=_counts(found["documents"], "documents", *about),
        note=_text(found, "note", _LONGEST),
        link=_text(found, "link", _LONGEST),
        left_out=_whole(found, "left_out", _LATEST),
        host=host,
        normal=normal,
        causes=causes,
        digest=str(found[""]),
    )


def _host(found: object) -> dict[str, str]:
    if isinstance(found, dict) and len(found) <= 16 and all(map(_is_short, found.values())):
        return found
    raise _WrongError("host: a few short texts were expected")


def _causes(found: object) -> dict[str, float]:
    if not isinstance(found, dict) or len(found) > MOST_TERMS:
        raise _WrongError(f"causes: at most {MOST_TERMS:,} terms were expected")
    for term, value in found.items():
        if not _is_short(term) or not _is_number(value):
            raise _WrongError("causes: terms with times were expected")
    return {term: float(value) for term, value in found.items()}


def _counts(
    found: list[_Document],
    side: str,
    vocabulary: tuple[str, ...],
    scope: str,
    interval: int,
    source: str,
) -> Counts:
    if not isinstance(found, list) or len(found) > MOST_DOCUMENTS:
        raise _WrongError(f"{side}: a list of at most {MOST_DOCUMENTS} was expected")
    for number, each in enumerate(found):
        if not (0 <= each.begin <= _LATEST and 0 <= each.end <= _LATEST):
            raise _WrongError(f"{side}: {number + 1}: whole numbers from 0 on were expected")
        if not 0 < each.end - each.begin <= _LONGEST_NS:
            raise _WrongError(f"{side}: {number + 1} ends before it begins, or too long after")
    begin, end = [each.begin for each in found], [each.end for each in found]
    texts = [bytes(each.counts) for each in found]
    rows, length = _flat_pairs(texts, len(vocabulary)) or _pairs(texts, len(vocabulary), side)
    term, count = rows.T
    return Counts(
        vocabulary=vocabulary,
        scopes=(scope,),
        begin=np.array(begin, np.int64),
        end=np.array(end, np.int64),
        scope=np.zeros(len(begin), np.int32),
        lossy=np.zeros(len(begin), np.bool_),
        document=np.repeat(np.arange(len(begin), dtype=np.int32), length),
        term=term.astype(np.int32),
        count=np.ascontiguousarray(count),
        interval=interval,
        source=source,
    )


def _flat_pairs(texts: Sequence[bytes], terms: int) -> tuple[I64, list[int]] | None:
    """Return documents' pairs of term and count, given as JSON, as rows, and how many each has.

    None where they are not as usual.
    """
    rows = np.empty((sum(text.count(b",") for text in texts) // 2 + len(texts), 2), np.int64)
    length: list[int] = []
    first = 0
    for text in texts:
        length.append(read_pairs(text, terms, _USUAL, rows[first:]))
        if length[-1] < 0:
            return None
        first += length[-1]
    return rows[:first], length


def _pairs(texts: Sequence[bytes], terms: int, side: str) -> tuple[I64, list[int]]:
    """Return the same one by one, or say what is wrong with them."""
    rows = [np.zeros((0, 2), np.int64)]
    for number, text in enumerate(texts):
        pairs = load_json(text)
        if wrong := _wrong_pair(pairs, terms):
            raise _WrongError(f"{side}: {number + 1}{wrong}")
        rows.append(np.array(pairs, np.int64).reshape(-1, 2))
    return np.concatenate(rows), [len(each) for each in rows[1:]]


def _wrong_pair(pairs: Any, terms: int) -> str:
    """Return what is wrong with pairs of term and count, "" if nothing is."""
    if not isinstance(pairs, list):
        return " has no counts"
    last = -1
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_whole, pair))):
            return ": pairs of term and count were expected"
        if not last < pair[0] < terms or not 0 < pair[1] <= MOST_COUNT:
            return f": {pair} is out of order or range"
        last = pair[0]
    return ": more hits than a number holds" if sum(p[1] for p in pairs) > MOST_COUNT else ""


def _is_time(text: str) -> bool:
    try:
        return bool(_TIME.fullmatch(text) and datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z"))
    except ValueError:
        return False


def _text(found: Mapping[str, Any], name: str, longest: int) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or len(value) > longest:
        raise _WrongError(f"{name}: a text of at most {longest:,} letters was expected")
    return value


def _whole(found: Mapping[str, Any], name: str, most: int) -> int:
    value = found.get(name, 0)
    if not _is_whole(value) or not 0 <= value <= most:
        raise _WrongError(f"{name}: a whole number from 0 on was expected")
    return int(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and abs(value) < _LATEST  # type: ignore[arg-type]


def _is_short(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TERM


# Writing


def make_entry_text(entry: Entry) -> str:
    """Return an entry as its file has it: keys in order, a document a line; same in, same out."""
    parts: dict[str, Any] = {
        "format": ENTRY_FORMAT,
        "label": entry.label,
        "kind": entry.kind,
        "recorded": entry.recorded,
        "note": entry.note,
        "link": entry.link,
        "host": dict(sorted(entry.host.items())),
        "left_out": entry.left_out,
        "scope": entry.counts.scopes[0] if entry.counts.scopes else "",
        "interval": entry.counts.interval,
        "source": entry.counts.source,
        "vocabulary": list(entry.counts.vocabulary),
        "documents": _documents(entry.counts),
    }
    if entry.normal is not None:
        parts["normal"] = _documents(entry.normal)
    if entry.causes:
        parts["causes"] = dict(sorted(entry.causes.items()))
    lines = []
    for name in sorted(parts):
        value = parts[name]
        if name in _SIDES:
            rows = ",\n".join(f"  {json.dumps(row, separators=(',', ':'))}" for row in value)
            lines.append(f' "{name}": [\n{rows}\n ]' if value else f' "{name}": []')
        else:
            lines.append(f' "{name}": {json.dumps(value, ensure_ascii=True)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _documents(counts: Counts) -> list[dict[str, Any]]:
    first = int(counts.begin[0]) if len(counts) else 0
    return [
        {
            "begin": int(counts.begin[at]) - first,
            "end": int(counts.end[at]) - first,
            "counts": [
                [int(term), int(count)]
                for term, count in zip(
                    counts.term[counts.start[at] : counts.start[at + 1]],
                    counts.count[counts.start[at] : counts.start[at + 1]],
                    strict=True,
                )
            ],
        }
        for at in range(len(counts))
    ]


def add_entry(path: Path, entry: Entry, known: Store | None, *, force: bool = False) -> Entry:
    """Write an entry into a store, which is made where there is none.

    Raises
    ------
    UsageError
        If the same is there already; or, unless ``force``, if the label's other sessions were
        counted in another way.
    """
    text = make_entry_text(entry)
    digest = blake2b(text.encode()).hexdigest()
    others = [each for each in (known.entries if known else ()) if each.label == entry.label]
    if any(each.digest == digest for each in others):
        raise UsageError(f"{path}: has this session of {entry.label} already", "record another one")
    if not force:
        _check_alike(path, entry, others)
    name = f"{entry.recorded.replace(':', '-')}-{digest[:6]}.json"
    place = path / "entries" / entry.label
    for directory in (path, path / "entries", place):
        if directory.is_symlink():
            raise UsageError(f"{directory} is a link", "a store's directories are none")
    with _undone_on_failure(path, place):
        if not (path / "known.json").exists():
            write_text(path / "known.json", json.dumps({"format": STORE_FORMAT}) + "\n")
        write_text(place / name, text)
    return replace(entry, name=f"{entry.label}/{name}", digest=digest)


@contextmanager
def _undone_on_failure(path: Path, place: Path) -> Iterator[None]:
    """Make a label's directory, and the store's; take both away again if what follows fails."""
    made: list[Path] = []
    about = path / "known.json"
    fresh = not about.exists()
    try:
        for directory in (*path.parents[::-1], path, path / "entries", place):
            if not directory.is_dir():
                directory.mkdir(exist_ok=True)
                made.append(directory)
        yield
    except BaseException as error:
        for directory in (place, path / "entries"):
            if directory in made:
                _remove_empty(directory)
        if fresh and not (path / "entries").exists():  # no other entry is there
            about.unlink(missing_ok=True)
        for directory in made[::-1]:
            _remove_empty(directory)
        if isinstance(error, OSError):
            raise UsageError(
                f"cannot write to {path}: {error.strerror}", "choose another"
            ) from error
        raise


def _check_alike(path: Path, entry: Entry, others: Sequence[Entry]) -> None:
    """Refuse a session that was counted in another way than the label's others."""
    for each in others:
        for what, old, new in (
            ("kind", each.kind, entry.kind),
            ("interval", each.counts.interval, entry.counts.interval),
            ("scope", _scope_kind(each.counts), _scope_kind(entry.counts)),
            ("source", each.counts.source, entry.counts.source),
        ):
            if old != new:
                raise UsageError(
                    f"{path}: other sessions of {entry.label} have {what} {old}, this one {new}",
                    "use another label, or --force",
                )


def _scope_kind(counts: Counts) -> str:
    scope = counts.scopes[0] if counts.scopes else ""
    return scope if scope in {"machine", "command"} else "control group"


def _remove_empty(directory: Path) -> None:
    """Remove a label's directory where nothing is in it; tried again once."""
    for _ in range(2):
        with suppress(OSError):  # others of the label are there
            directory.rmdir()
            return
