"""A comparison without the names that it should not tell others: hosts, users, paths, commands.

What is replaced is replaced everywhere in the document, sentences and settings included, by one
stand-in each; so any page can be made of it.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from critpath.documents import CauseEntry, ComparisonDocument, Pictures, RequestEntry
from critpath.errors import CritpathError
from critpath.model.containers import places_in
from critpath.report.document.as_json import to_json
from critpath.schema.notes import NamesReplaced
from critpath.text import notes
from critpath.text.phrases import location
from critpath.units import safe_text

_PIECE: Final = r"[\w.@+%~-]+"
# Also behind a colon, and in an option (-I/a/b); a blank within it has a further / behind it.
_PATH: Final = re.compile(
    rf"(?:(?<![\w/.])|(?<=\s-[A-Za-z])|(?<=^-[A-Za-z]))(?:~[\w.-]*|\.{{1,2}})?/(?:{_PIECE}/)*{_PIECE}/?"
    rf"(?: {_PIECE}(?:/{_PIECE})+/?)*"
    r"|\b[A-Za-z]:\\[^\s`\"'<>|]+"
)
_URL: Final = re.compile(r"\b(?:file:/|[a-z][a-z0-9+.-]{1,15}://)[^\s`\"'<>]+", re.IGNORECASE)
# What looks like the path of a file, and like no kind of request.
_OF_FILES: Final = re.compile(
    r"(?<![\w.])(?:file:|[a-z][a-z0-9+.-]{1,15}://|~[\w.-]*/|/(?:home|Users|root|tmp|var|opt|srv|etc|usr|mnt)/)|\w:/\w|[A-Za-z]:\\"
)
_HOME: Final = re.compile(r"/(?:home|Users)/([\w.-]+)")
_HOME_OF_SOURCE: Final = re.compile(r"/(?:home|Users)/([^/]+)/")
_ADDRESS: Final = re.compile(r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b")
_IP: Final = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|(?<![\w:.])(?:(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?"
    r"|::(?:[0-9a-f]{1,4}:)*[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4})(?![\w:])",
    re.IGNORECASE,
)
# A function, and where it is.
_LOCATION: Final = re.compile(r"([\w.<>]{1,500}) (\([^()\s]{1,200}:\d{1,10}\))")
# As long as this a name is looked for between the letters of other words, too.
_LONG: Final = 4
_TELLING: Final = 6  # technical: letters of a name that is looked for in what was made
_LEAST: Final = 3  # shorter ones are replaced where they stand alone only
# Where a host stands in our own words: nginx@db:80, to db:6379, on `db`.
_HOST_HERE: Final = r"(?:(?<=@)|(?<=to )|(?<=from )|(?<=on )|(?<=`)){}(?=[:`,)]|$)"
_LABEL: Final = 400  # characters of a label that are looked through
_SHOWN: Final = 160  # of a text that an error repeats
# Of a label as requests have it: SERVICE:PORT MESSAGE, and who is asked.
_MESSAGE: Final = re.compile(
    r"\S[^/→]*?:\S+ (?:\((?:multiplexed|(?:pod|container) [^()]*)\) )*"
    r"(?!→|\((?:multiplexed|pod |container ))(.+?)(?: → .*)?$"
)
# Users that are everywhere.
_OURS: Final = frozenset({"root"})


@dataclass
class _Names:
    """What stands for what, and which of it was there."""

    kept: frozenset[str] = frozenset()  # kinds of request, which may look like paths
    stand_ins: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # of stand-ins
    counts: Counter[str] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)

    def add(self, name: str, kind: str, stand_in: str = "") -> str:
        """Return what stands for a name from now on, as it is and as it is shown."""
        known = self.stand_ins.get(name)
        if known is None:
            self.counts[kind] += 1
            known = stand_in or f"{kind}-{self.counts[kind]}"
            self.kinds[known] = kind
            for text in (name, safe_text(name), name[:_SHOWN], *_encodings(name)):
                self.stand_ins.setdefault(text, known)
        return known

    def add_messages(self, rows: Iterable[tuple[str, RequestEntry]]) -> None:
        """Add what requests asked for, where that was read from their first bytes."""
        labels = set()
        for label, known in rows:
            labels.add(label.partition("\n")[0][:_LABEL])
            for text, kind in ((known.message, "message"), (known.trace_id, "trace id")):
                if text:
                    self.add(text, kind)
        for message in filter(None, map(_MESSAGE.match, sorted(labels))):
            self.add(message[1], "message")

    def add_functions(self, text: str, symbols: Iterable[str]) -> None:
        """Add functions with their files, as they stand in details, in sentences, in symbols."""
        for place in filter(None, symbols):
            self.add(place, "function")
        for name, place in sorted({*_LOCATION.findall(text)}):
            stand_in = self.add(f"{name} {place}", "function")
            self.stand_ins.setdefault(f"`{name}` {place}", stand_in)

    def add_locations(self, causes: Iterable[CauseEntry]) -> None:
        """Add places in the code, as they stand in facts and in sentences."""
        for facts in (cause.facts for cause in causes if cause.facts):
            places = [place.location for place in facts.locations]
            for place in filter(None, (*places, facts.waits_at, facts.waker_location)):
                stand_in = self.add(place, "function")
                self.stand_ins.setdefault(location(place), stand_in)
                self.stand_ins.setdefault(safe_text(location(place)), stand_in)

    def add_places(self, document: ComparisonDocument) -> None:
        """Add containers, pods and units, as they stand in facts, kinds and sentences."""
        found = {place for row in document.executions for place in places_in(row.label)}
        for facts in (cause.facts for cause in document.causes if cause.facts):
            found |= {facts.place, *(rival.place for rival in facts.rivals)}
        weather = document.detection.weather
        found |= {rival.place for rival in weather.rivals} if weather else set()
        for place in sorted(filter(None, found)):
            self.add(place, place.partition(" ")[0])

    def add_frames(self, pictures: Pictures | None) -> None:
        """Add the functions of a flame graph."""
        for node in pictures.flame if pictures else ():
            if node.kind == "frame":
                self.add(node.name, "function")

    def used_of(self) -> dict[str, int]:
        """Return how many names of each kind were replaced."""
        return dict(Counter(self.kinds[known] for known in sorted(self.used)))

    def replace(self, text: str) -> str:
        """Return a text with all that is known, or looks like a path or an address, replaced."""
        if text in self.stand_ins:
            return self._use(self.stand_ins[text])
        text = self._known.sub(lambda found: self._use(self.stand_ins[found[0]]), text)
        pieces = self._kept.split(text)
        for number in range(0, len(pieces), 2):
            for pattern, kind in _LOOKS:
                pieces[number] = pattern.sub(
                    lambda found, kind=kind: self._use(self.add(found[0], kind)),
                    pieces[number],
                )
        return "".join(pieces)

    def _use(self, stand_in: str) -> str:
        self.used.add(stand_in)
        return stand_in

    @cached_property
    def _known(self) -> re.Pattern[str]:
        """All names at once: what stands for one is not looked into for another."""
        names = sorted(self.stand_ins, key=len, reverse=True)
        found = [_anywhere(name) for name in names if len(name) >= _LEAST]
        found += [
            _HOST_HERE.format(re.escape(name))
            for name in names
            if len(name) < _LEAST and self.kinds[self.stand_ins[name]] == "host"
        ]
        return re.compile("|".join(found) or "(?!)")

    @cached_property
    def _kept(self) -> re.Pattern[str]:
        labels = sorted((label for label in self.kept if "/" in label), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, labels)) or '(?!)'})")


_LOOKS: Final = ((_URL, "address"), (_ADDRESS, "address"), (_IP, "address"), (_PATH, "path"))


def _encodings(name: str) -> list[str]:
    """Return other encodings of a name that is long enough to be distinct."""
    if len(name) < _LONG:
        return []
    content = name.encode("utf-8", "replace")
    # Of base64 what is the same whatever stands before and behind, in the three ways to begin.
    coded = [
        b64encode(bytes(before) + content)[-(-before * 4 // 3) :].rstrip(b"=")[:-1].decode()
        for before in range(3)
        if len(content) > _LEAST * 2
    ]
    written = [escape(name), quote(name, safe=""), quote(name), quote_plus(name)]
    written += [json.dumps(name)[1:-1], name.encode("unicode_escape").decode(), content.hex()]
    return [text for text in dict.fromkeys((*written, *coded)) if text != name]


def _find_secrets(document: ComparisonDocument, users: Iterable[str]) -> frozenset[str]:
    """Return the names that a comparison was made with and that no redacted page may have.

    Of those of which a page of ours may have the letters, as words of its own, none.
    """
    found = {*users}
    for one in (document.sets["normal"], document.sets["sample"]):
        found |= {*one.sources, *one.hosts, *one.machines, *one.commands}
        found |= {text for command in one.commands for text in _find_arguments(command)}
    # Programs' names are threads' names, too, and those stay unless --redact-threads asks for them.
    found -= _threads(document)
    return frozenset(name for name in found if not _is_plain(name) and _is_telling(name))


def _check_page(page: str, secrets: Iterable[str]) -> None:
    """Refuse a page that has a name which it was to have no more, however that is written."""
    for name in sorted(secrets):
        if any(text in page for text in (name, *_encodings(name))):
            raise CritpathError(
                f"the page would still have {safe_text(name)!r:.80}: it is not written",
                "this is a fault of critpath: report it, without the name",
            )


def _find_arguments(command: str) -> list[str]:
    """Return what a command was given, and the values of its options, that are no plain words."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without an end: not as a shell has it
        words = command.split()
    found = [part for word in words for part in (word, *word.partition("=")[2:])]
    return [word for word in found if len(word) >= _LONG and not _is_plain(word)]


def _is_plain(word: str) -> bool:
    """Tell whether something is a word, or an option's name, which anybody may have written."""
    return re.fullmatch(r"-{0,2}[a-z]+(?:-[a-z]+)*|[\d.]+[a-zA-Z%]{0,2}", word) is not None


def _is_telling(name: str) -> bool:
    """Tell whether a name has so many letters and digits that a page has them by no accident."""
    return sum(map(str.isalnum, name)) >= _TELLING


def _anywhere(name: str) -> str:
    """Return where a name is looked for: a short one, or a plain word, not within others."""
    if len(name) >= _LONG and name not in _PLAIN:
        return re.escape(name)
    return rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"


# Names of recordings that are parts of words of ours, and tell nothing.
_PLAIN: Final = frozenset({"normal", "sample", "before", "after", "test", "base", "other"})


def redact(
    document: ComparisonDocument,
    *,
    threads: bool = False,
    users: Collection[str] = (),
    render: Callable[[ComparisonDocument], str] = to_json,
) -> ComparisonDocument:
    """Return a comparison without names of hosts, users, paths and commands.

    Parameters
    ----------
    document : ComparisonDocument
        It stays as it is.
    threads : bool
        Names of threads and programs, too: what is left tells who waited for whom, not their
        names.
    users : collection of str
        Names to look for besides those in paths: who runs critpath.
    render : callable
        What is made of it for others: that is searched for the names, too.

    Returns
    -------
    ComparisonDocument
        Its last warning says what was replaced, and how often.

    Raises
    ------
    CritpathError
        If a name is left, however it is written.
    """
    secrets = _find_secrets(document, users)
    labels = {row.label for row in document.executions}
    names = _Names(frozenset(label for label in labels if not _OF_FILES.search(label)))
    names.add_messages([(r.label, r.request) for r in document.executions if r.request])
    # A store's labels, notes and links are the team's own.
    document = msgspec.structs.replace(document, known=None)
    names.add_places(document)
    names.add_locations(document.causes)
    names.add_frames(document.pictures)
    plain = msgspec.to_builtins(document)
    found = {*users, *_HOME.findall(str(plain))}
    for side, word in (("normal", "before"), ("sample", "after")):
        one = document.sets[side]
        several = len(one.sources) > 1
        for number, source in enumerate(one.sources, 1):
            names.add(source, "recording", f"{word}-{number}" if several else word)
            found |= {*_HOME_OF_SOURCE.findall(source)}
        for host in (*one.hosts, *one.machines):
            names.add(host, "host")
            first, _, domain = host.partition(".")
            if domain and len(first) >= _LEAST and not first.isdecimal():
                names.add(first, "host", names.stand_ins[host])
        for command in one.commands:
            names.add(command, "command")
            for argument in sorted({*_find_arguments(command)} - _threads(document)):
                names.add(argument, "path" if "/" in argument else "argument")
    names.add_functions(str(plain), {symbol.place for symbol in document.symbols})
    for user in sorted(found - _OURS):
        if len(user) >= _LEAST:
            names.add(user, "user")
    if threads:
        for comm in sorted(_threads(document)):
            names.add(comm, "thread")
    shared: ComparisonDocument = msgspec.convert(_walk(plain, names), ComparisonDocument)
    replaced = NamesReplaced(tuple(names.used_of().items()), threads)
    if len(shared.warning_ids) == len(shared.warnings):  # files of earlier versions have none
        shared.warning_ids.append(replaced.id)
    shared.warnings.append(notes.word(replaced))
    for page in {to_json(shared), render(shared)}:
        _check_page(page, secrets)
    return shared


def _threads(document: ComparisonDocument) -> set[str]:
    found = {row.comm for row in document.executions}
    found |= {row.request.client for row in document.executions if row.request}
    found |= {one.comm for one in document.findings}
    found |= {segment.comm for one in document.aligned for segment in one.segments}
    if document.pictures:
        found |= {one.name for one in document.pictures.threads}
    for cause in document.causes:
        if cause.facts:
            found |= {cause.facts.comm, cause.facts.peer}
    for by in (document.detection.weather, document.detection.came):
        found |= {one.name for one in by.rivals} if by else set()
    found |= {symbol.role for symbol in document.symbols}
    return {name for name in found if len(name) >= _LEAST}


def _walk(value: Any, names: _Names) -> Any:
    """Replace in every text of a document; its own words (states, kinds) have no such name."""
    if isinstance(value, str):
        return names.replace(value)
    if isinstance(value, list):
        return [_walk(item, names) for item in value]
    if isinstance(value, dict):
        return {key: item if key in _WORDS else _walk(item, names) for key, item in value.items()}
    return value


# Keys whose values are words of ours, of which a name may be one by accident.
_WORDS: Final = frozenset(
    {"format", "version", "verdict", "set", "kind", "level", "doing", "doings", "rule", "group"}
    | {
        "reason_ids",
        "warning_ids",
        "note_ids",
        "cause_id",
        "change",
        "counted",
        "certainty",
        "method",
        "boundary",
        "attribution",
    }
)
