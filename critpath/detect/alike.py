"""Like is compared with like: what only one of two sets has is left out, or joined, and said."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.cluster import labels_are_usable
from critpath.errors import UsageError
from critpath.model.containers import strip_places
from critpath.model.recording import is_interpreter
from critpath.model.requests import ASKS, service_of
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.ab import ALIKE
from critpath.schema.parameters.cluster import TYPES
from critpath.units import escape_name, plural, safe_text, shorten

if TYPE_CHECKING:
    from critpath.model import Bool, PathSet

    _Alike = tuple[PathSet, PathSet, tuple[Note, ...]]  # both sets, and what was done to them

_NAMED: Final = 3  # technical


def make_alike(
    normal: PathSet, sample: PathSet
) -> tuple[PathSet, PathSet, tuple[Note, ...], tuple[Note, ...]]:
    """Return sets whose clients, labels and programs can be compared; what was done to each.

    Raises
    ------
    UsageError
        If they are processes of several programs, and not the same ones.
    """
    normal, sample, newcomers = with_like_clients(normal, sample)
    normal, sample, relabelled = with_like_labels(normal, sample)
    require_alike_processes(normal, sample)
    return normal, sample, newcomers, relabelled


def _note_interpreters(normal: PathSet, sample: PathSet) -> list[Note]:
    if sample.kind != "process":
        return []
    labels = {*normal.executions.label} & {*sample.executions.label}
    found = {label.removesuffix(" -") for label in labels}
    found = {label for label in found if is_interpreter(label)}
    return [notes.UnknownArguments(tuple(sorted(found)))] if found else []


def with_like_labels(normal: PathSet, sample: PathSet) -> _Alike:
    """Drop from labels what only one of the sets knows, or what the comparison is to find.

    That is what interpreters ran; and whom requests of a service ask, where many of them ask
    others than before: a cache that was turned off is no other kind of request.
    """
    if sample.kind == "requests":
        return _with_like_services(normal, sample)
    labels = [{*path_set.executions.label} for path_set in (normal, sample)]
    bare = {label for of in labels for label in of if is_interpreter(label)}

    def relabel(of: PathSet) -> PathSet:
        firsts = [label.partition(" ")[0] for label in of.executions.label]
        pairs = zip(of.executions.label, firsts, strict=True)
        chosen = tuple(first if first in bare else label for label, first in pairs)
        return replace(of, executions=replace(of.executions, label=chosen))

    if sample.kind == "process" and bare:
        normal, sample = relabel(normal), relabel(sample)
    return normal, sample, tuple(_note_interpreters(normal, sample))


def _with_like_services(normal: PathSet, sample: PathSet) -> _Alike:
    """Drop whom requests ask from labels of services of which a kind came, or went."""
    normal, sample = _with_like_places(normal, sample)
    sides = [Counter(path_set.executions.label) for path_set in (normal, sample)]
    of = [Counter[str]() for _ in sides]
    for whole, counts in zip(of, sides, strict=True):
        for label, count in counts.items():
            whole[service_of(label)] += count
    moved = set()
    for label in {*sides[0], *sides[1]}:
        base = service_of(label)
        if all(whole[base] >= ALIKE.too_few for whole in of):
            shares = sorted(c[label] / whole[base] for c, whole in zip(sides, of, strict=True))
            if shares[0] <= ALIKE.nearly_none and shares[1] - shares[0] >= ALIKE.ask_others:
                moved.add(base)
    if moved:
        names = {base: base for base in moved}
        joined = {label: names.get(service_of(label), label) for c in sides for label in c}
        normal, sample = _rename(normal, joined), _rename(sample, joined)
    normal, sample, rare = _with_known_kinds(normal, sample)
    return normal, sample, ((notes.JoinedKinds(tuple(sorted(moved))), *rare) if moved else rare)


_PARTS: Final = re.compile(f"({ASKS}|, )")  # between the services that a label names


def _with_like_places(normal: PathSet, sample: PathSet) -> tuple[PathSet, PathSet]:
    """Drop the containers from services that are in other ones now, each in one, or in none.

    A container that was made anew under another name is the same service, and so is one whose
    recording does not name it.
    """
    labels = {label for of in (normal, sample) for label in of.executions.label}
    if not any(strip_places(label) != label for label in labels):
        return normal, sample
    where: list[dict[str, set[str]]] = [{}, {}]
    for known, of in zip(where, (normal, sample), strict=True):
        for service in {part for label in {*of.executions.label} for part in _PARTS.split(label)}:
            known.setdefault(strip_places(service), set()).add(service)
    moved = {
        base
        for base in where[0].keys() & where[1].keys()
        if (before := where[0][base]) != (after := where[1][base])
        and (len(before) == len(after) == 1 or base in before or base in after)
    }

    def rename(label: str) -> str:
        pairs = ((part, strip_places(part)) for part in _PARTS.split(label))
        return "".join(base if base in moved else part for part, base in pairs)

    names = {label: rename(label) for label in labels}
    return _rename(normal, names), _rename(sample, names)


def _with_known_kinds(normal: PathSet, sample: PathSet) -> _Alike:
    """Leave out requests of services that hardly any before were of; join kinds that are rare.

    A kind that hardly any before were of is compared with the commonest of its service.
    """
    counts = Counter(normal.executions.label)
    services, usual = Counter[str](), dict[str, str]()
    for label, count in counts.most_common():
        services[service_of(label)] += count
        usual.setdefault(service_of(label), label)
    rare = {label for label in sample.executions.label if counts[label] < TYPES.least_labelled}
    new = {label for label in rare if services[service_of(label)] < TYPES.least_labelled}
    stay = np.array([label not in new for label in sample.executions.label], np.bool_)
    if not rare or stay.sum() <= max(ALIKE.stayed * len(stay), ALIKE.too_few):
        return normal, sample, ()
    said: list[Note] = []
    if new:
        time = (sample.executions.end - sample.executions.begin)[~stay]
        unknown = sorted({service_of(label) for label in new})
        requests = int((~stay).sum()), len(stay)
        said.append(notes.NewServices(tuple(unknown), requests, float(time.mean())))
        sample = sample.take(np.flatnonzero(stay))
    names = {label: usual[service_of(label)] for label in rare - new}
    if joined := sum(label in names for label in sample.executions.label):
        said.append(notes.RareKinds(joined))
    return _rename(normal, names), _rename(sample, names), tuple(said)


def _rename(of: PathSet, names: dict[str, str]) -> PathSet:
    """Return a set with other labels."""
    chosen = tuple(names.get(label, label) for label in of.executions.label)
    return replace(of, executions=replace(of.executions, label=chosen))


_ADDRESSED: Final = re.compile(r".*:[0-9]+>[0-9]+#")  # as the ids of requests begin


def with_like_clients(normal: PathSet, sample: PathSet) -> _Alike:
    """Leave out requests of clients that only asked after, if theirs are of another kind.

    A client is a connection where most requests before came over connections that stayed, else
    a process, or an address.  What a new client asks is no slower request: it makes those of the
    others wait.

    Returns
    -------
    normal, sample : PathSet
        The same objects where nothing is left out.
    warnings : tuple of Note
        What was left out, if anything was.
    """
    asked = normal.executions.requests, sample.executions.requests
    if sample.kind != "requests" or None in asked:
        return normal, sample, ()
    ids = normal.executions.id, sample.executions.id
    what, clients = "connection", [[name.rpartition("#")[0] for name in of] for of in ids]
    stayed = _stay(clients)
    if stayed[0].sum() < ALIKE.stayed * len(normal) or not all(
        _ADDRESSED.match(name) for of in ids for name in of
    ):
        what, clients = "client", [[*known.client] for known in asked if known]
        stayed = _stay(clients)
    new = ~stayed[1]
    if stayed[0].sum() < max(ALIKE.stayed * len(normal), ALIKE.too_few):
        return normal, sample, ()
    if (
        new.sum() < ALIKE.came * len(new)
        or stayed[1].sum() < ALIKE.too_few
        or not _differ(sample, new)
    ):
        return normal, sample, ()
    time = (sample.executions.end - sample.executions.begin)[new]
    who = sorted({one for one, came in zip(clients[1], new.tolist(), strict=True) if came})
    note = notes.NewClients(what, tuple(who), (int(new.sum()), len(new)), float(time.mean()))
    gone = int((~stayed[0]).sum())
    return (
        normal.take(np.flatnonzero(stayed[0])) if gone else normal,
        sample.take(np.flatnonzero(stayed[1])),
        (note, *([notes.GoneClients(what, gone, len(normal))] if gone else [])),
    )


def _stay(clients: Sequence[Sequence[str]]) -> list[Bool]:
    """Tell which requests of two sets are of clients of both."""
    both = {*clients[0]} & {*clients[1]}
    return [np.array([client in both for client in of], np.bool_) for of in clients]


def _differ(sample: PathSet, new: Bool) -> bool:
    """Tell whether some requests of a set are of another kind than the rest: by bytes, by time."""
    of, facts = sample.executions, sample.executions.requests
    columns = [of.end - of.begin] + ([facts.bytes_in, facts.bytes_out] if facts else [])
    for column in columns:
        low, high = sorted(float(np.median(column[rows])) + 1 for rows in (new, ~new))
        if high >= ALIKE.another_kind * low:
            return True
    return False


def require_alike_processes(normal: PathSet, sample: PathSet) -> None:
    """Refuse processes of several programs that cannot be compared program by program.

    Raises
    ------
    UsageError
        With the specifications that choose one program.
    """
    specification = sample.specification
    # With a name the user has chosen; a recorded command's runs have no label.
    if sample.kind != "process" or "comm=" in specification:
        return
    kept = normal.specification
    if kept and normal.kind != "process":
        raise UsageError(
            f"runs before are {safe_text(kept)}, those after are processes",
            f"--execution {safe_text(shlex.quote(kept))} chooses the same of both",
        )
    sets = normal.executions, sample.executions
    programs = {*sets[0].label, *sets[1].label} - {""}
    if len(programs) < 2 or labels_are_usable(sets[0].label, sets[1].label):
        return
    time = dict.fromkeys(programs, 0)
    for executions in sets:
        for label, length in zip(
            executions.label, (executions.end - executions.begin).tolist(), strict=True
        ):
            time[label] = time.get(label, 0) + length
    both = {*sets[0].label} & {*sets[1].label} & programs
    # Where an interpreter ran nothing in both sets, it may be meant whatever it ran.
    first, second = ({label.partition(" ")[0] for label in of.label} for of in sets)
    both |= {p for p in first & second if is_interpreter(p)} - {n.partition(" ")[0] for n in both}
    ranked = sorted(both or programs, key=lambda name: (-time.get(name, 0), name))
    choices = " | ".join(
        f"--execution {shlex.quote(f'{specification},comm={escape_name(name)}')}"
        for name in ranked[:_NAMED]
    )
    raise UsageError(
        f"the sets have processes of {plural(len(programs), 'program')}, and not the same ones: "
        f"{safe_text(shorten(', '.join(ranked[:10])))}" + ", ..." * (len(programs) > 10),
        f"choose one: {safe_text(choices)}",
    )


# From the vectors of two sets to types, outliers and the coarse detection.
