"""A comparison without the names that it should not tell others: hosts, users, paths, commands.

What is replaced is replaced everywhere in the document, sentences and settings included, by one
stand-in each; so any page can be made of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from critpath.documents import ComparisonDocument
from critpath.text.notes import redacted

_PATH: Final = re.compile(r"(?<![\w/.:])(?:~|\.{1,2})?/(?:[\w.@+%~-]+/)*[\w.@+%~-]+/?")
_HOME: Final = re.compile(r"/(?:home|Users)/([\w.-]+)")
_ADDRESS: Final = re.compile(r"\b([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b")
_IP: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
# As long as this a name can be looked for within words of other texts.
_LEAST: Final = 3
# Users that are everywhere.
_OURS: Final = frozenset({"root"})


@dataclass
class _Names:
    """What was replaced by what."""

    stand_ins: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, kind: str, stand_in: str = "") -> str:
        """Return what stands for a name from now on."""
        known = self.stand_ins.get(name)
        if known is None:
            self.counts[kind] += 1
            known = self.stand_ins[name] = stand_in or f"{kind}-{self.counts[kind]}"
        return known

    def replace(self, text: str) -> str:
        """Return a text with all that is known, or looks like a path or an address, replaced."""
        if text in self.stand_ins:
            return self.stand_ins[text]
        for name in sorted(self.stand_ins, key=len, reverse=True):
            if name in text:
                stand_in = self.stand_ins[name].replace("\\", r"\\")
                text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", stand_in, text)
        text = _ADDRESS.sub(lambda found: self.add(found[0], "address"), text)
        text = _IP.sub(lambda found: self.add(found[0], "address"), text)
        return _PATH.sub(lambda found: self.add(found[0], "path"), text)


def redact(
    document: ComparisonDocument, *, threads: bool = False, users: Iterable[str] = ()
) -> ComparisonDocument:
    """Return a comparison without names of hosts, users, paths and commands.

    Parameters
    ----------
    document : ComparisonDocument
        It stays as it is.
    threads : bool
        Names of threads and programs, too: what is left tells who waited for whom, not their
        names.
    users : iterable of str
        Names to look for besides those in paths: who runs critpath.

    Returns
    -------
    ComparisonDocument
        Its last warning says what was replaced, and how often.
    """
    names = _Names()
    plain = msgspec.to_builtins(document)
    for side, word in (("normal", "before"), ("sample", "after")):
        one = document.sets[side]
        several = len(one.sources) > 1
        for number, source in enumerate(one.sources, 1):
            names.add(source, "recording", f"{word}-{number}" if several else word)
        for host in (*one.hosts, *one.machines):
            names.add(host, "host")
        for command in one.commands:
            names.add(command, "command")
    for user in {*users, *_HOME.findall(str(plain))} - _OURS:
        if len(user) >= _LEAST:
            names.add(user, "user")
    if threads:
        for comm in sorted(_threads(document)):
            names.add(comm, "thread")
    shared: ComparisonDocument = msgspec.convert(_walk(plain, names), ComparisonDocument)
    counts = {kind: number for kind, number in names.counts.items() if number}
    shared.warnings.append(redacted(counts, threads=threads))
    return shared


def _threads(document: ComparisonDocument) -> set[str]:
    found = {row.comm for row in document.executions}
    found |= {one.comm for one in document.findings}
    found |= {segment.comm for one in document.aligned for segment in one.segments}
    if document.pictures:
        found |= {one.name for one in document.pictures.threads}
    for cause in document.causes:
        if cause.facts:
            found |= {cause.facts.comm, cause.facts.peer}
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
    | {"change", "counted", "certainty", "method"}
)
