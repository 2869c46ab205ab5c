"""A baseline as text: a line per execution, written and read, checked in every respect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from critpath.errors import TooMuchTimeError, UnreadableError
from critpath.files import write_text
from critpath.model import (
    I64,
    MOST_TIME,
    Certainty,
    CriticalPaths,
    Executions,
    Loss,
    PathSet,
    RequestFacts,
    State,
)
from critpath.model.details import (
    DETAIL_NUMBERS,
    DETAIL_TEXTS,
    NO_DETAIL,
    Detail,
    read_detail,
    word_detail,
)
from critpath.model.paths import find_crossings
from critpath.model.requests import FACT_NUMBERS, FACT_TEXTS
from critpath.model.stacks import read_stack, word_stack
from critpath.model.vectors import number_rows
from critpath.schema.environment import Environment, read_environment
from critpath.schema.kinds import STATES
from critpath.schema.notes import Remark
from critpath.store.columns import read_remarks, save_remarks
from critpath.store.sessions import Baseline, Session
from critpath.stores import open_file
from critpath.units import utf8
from critpath.untrusted import LARGEST, TooLargeError, load_json, refuse_damaged

FORMAT: Final = "critpath/baseline/2"
FIRST: Final = "critpath/baseline/1"  # whose kinds have a text for what qualifies a state
CERTAIN: Final = Certainty.CERTAIN.name.lower()  # as usual: a file leaves it out
STEP: Final = 4  # numbers per segment: kind, thread, cpu, duration
# A baseline's text, checked in every respect: it is the text of a repository.


_END: Final = 2**63
# Times are within this, so that no difference of two overflows; and so is which host.
_TIME: Final = 2**62
_HOSTS: Final = 2**31
_LONGEST: Final = 100_000  # letters of a text
_FEWER: Final = "save fewer executions: critpath baseline save --executions N"
_DO: Final = "restore the file, or make it again with critpath baseline save"


class _Wrong(Exception):  # noqa: N818 - never seen outside
    """Something in the file is not what it should be; says where and what."""


def load_baseline(file: Path) -> Baseline:
    """Load what `save_baseline` saved, checked in every respect.

    Raises
    ------
    UnreadableError
        If the file cannot be read, is not of this format or contradicts itself; the
        place is named.
    """
    try:
        with refuse_damaged(file, _DO), open_file(file) as stream:
            return _baseline(_document(stream.read(LARGEST + 1), file))
    except _Wrong as error:
        raise UnreadableError(f"{file}: {error}".splitlines()[0], _DO) from None


def _document(content: bytes, file: Path) -> Any:
    try:
        return load_json(content, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise UnreadableError(f"{file}: no text in UTF-8", _DO) from None
    except json.JSONDecodeError as error:
        what = f"{file}:{error.lineno}: no valid JSON: {error.msg}"
        raise UnreadableError(what, _DO) from None
    except TooLargeError as error:
        raise UnreadableError(f"{file}: {error}", _FEWER) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Wrong(f"a key is there twice among {', '.join(k for k, _ in pairs)[:80]}")
    return found


def _wrong(place: str, wanted: str) -> NoReturn:
    raise _Wrong(f"{place} lacks or is not {wanted}")


def _text(value: object, place: str) -> str:
    if type(value) is not str or len(value) > _LONGEST:
        _wrong(place, f"a text of at most {_LONGEST:,} letters")
    return utf8(str(value))


def _whole(value: object, place: str, low: int = 0, high: int = _END) -> int:
    if type(value) is not int or not low <= value < high:
        _wrong(place, f"a whole number from {low} to below {high}")
    return value


def _items(value: object, place: str, kind: type = dict) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, all of a kind, each with its place."""
    if type(value) is not list:
        _wrong(place, "a list")
    for i, item in enumerate(value):
        if type(item) is not kind:
            _wrong(f"{place}[{i}]", "an object" if kind is dict else f"a {kind.__name__}")
        yield f"{place}[{i}]", item


def _texts(of: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    return tuple(_text(v, p) for p, v in _items(of.get(key), f"{place}.{key}", str))


def _remarks(of: Mapping[str, Any], key: str, place: str) -> tuple[Remark, ...]:
    _texts(of, key, place)  # refuses what are none
    return read_remarks(key, of)


def _baseline(document: object) -> Baseline:
    if type(document) is not dict:
        raise _Wrong("no baseline: not a JSON object")
    found = document.get("format")
    if found not in {FORMAT, FIRST}:
        raise _Wrong(f"format {found!r:.60}, this critpath reads {FORMAT}")
    if type(document.get("interrupts")) is not bool:
        _wrong("interrupts", "true or false")
    sessions = [_session(s, place) for place, s in _items(document.get("sessions"), "sessions")]
    if sum(s.paths.executions.time for s in sessions) >= MOST_TIME:
        _wrong("sessions", "of runs whose times can be added up")
    if not sessions:
        raise _Wrong("a baseline without sessions")
    if "digest" in document and document["digest"] != digest_document(document):
        raise _Wrong("its digest is another one: the file was changed")
    version = _text(document.get("critpath"), "critpath")
    return Baseline(tuple(sessions), document["interrupts"], version)


def _session(given: Mapping[str, Any], place: str) -> Session:
    sources = _texts(given, "sources", place)
    recorded = _texts(given, "recorded", place)
    if not sources or len(recorded) != len(sources):
        _wrong(f"{place}.recorded", "a time for each of one or more sources")
    paths = _paths(given, place, len(sources))
    path_set = PathSet(
        executions=paths[0],
        paths=paths[1],
        session=paths[2],
        sources=sources,
        specification=_text(given.get("specification"), f"{place}.specification"),
        losses=tuple(_loss(v, p) for p, v in _items(given.get("losses"), f"{place}.losses")),
        lossy=paths[3],
        environment=tuple(
            _environment(v, p) for p, v in _items(given.get("environment"), f"{place}.environment")
        ),
        events=_whole(given.get("events"), f"{place}.events"),
        warnings=_remarks(given, "warnings", place),
    )
    if given.get("means") != [list(pair) for pair in path_set.mean_times()]:
        raise _Wrong(f"{place}.means are not those of its runs: the file was changed")
    return Session(path_set, recorded, _whole(given.get("left_out"), f"{place}.left_out"))


def _loss(given: Mapping[str, Any], place: str) -> Loss:
    if given.keys() != {field.name for field in fields(Loss)}:
        _wrong(place, "a loss")
    return Loss(
        reason=_text(given["reason"], f"{place}.reason"),
        **{
            field.name: _whole(given[field.name], f"{place}.{field.name}", -_TIME, _TIME)
            for field in fields(Loss)
            if field.name != "reason"
        },
    )


def _environment(given: Mapping[str, Any], place: str) -> Environment:
    told = read_environment(
        {
            _text(key, place): _text(value, f"{place}.{key:.40}")
            if type(value) is str
            else _whole(value, f"{place}.{key:.40}", -_END)
            for key, value in given.items()
        }
    )
    # What others rely on: where one of the two is, the other is, and of the right kind.
    if (told.clock_epoch is None) != (told.recording is None):
        _wrong(place, "both of recording and clock_epoch")
    return told


def _paths(
    given: Mapping[str, Any], place: str, sources: int
) -> tuple[Executions, CriticalPaths, Any, Any]:
    """Return the executions, their paths, sources and losses."""
    strings: dict[str, int] = {"": 0}
    details = {NO_DETAIL: 0}
    kinds, threads = _tables(given, place, strings, details)
    origin = _whole(given.get("origin"), f"{place}.origin", -_END)
    begins: list[int] = []
    ends: list[int] = []
    steps, lossy, elsewhere, rows = [], [], [], []
    columns: dict[str, list[Any]] = {name: [] for name in ("id", "label", "thread", "session")}
    affected = []
    spent = 0
    for where, row in _items(given.get("executions"), f"{place}.executions"):
        begin = origin + _whole(row.get("begin"), f"{where}.begin", -_END)
        path = _path(row.get("path"), f"{where}.path", len(kinds), len(threads))
        end = begin + sum(path[3::STEP])
        if not -_TIME <= begin <= end < _TIME:
            _wrong(f"{where}.begin", "within the range of times")
        begins.append(begin)
        ends.append(end)
        spent += end - begin
        steps.append(np.array(path, np.int64).reshape(-1, STEP))
        columns["id"].append(_text(row.get("id"), f"{where}.id"))
        columns["label"].append(_text(row.get("label", ""), f"{where}.label"))
        columns["session"].append(_whole(row.get("source", 0), f"{where}.source", 0, sources))
        columns["thread"].append(
            threads[_whole(row.get("thread"), f"{where}.thread", 0, len(threads))]
        )
        if type(row.get("lossy", False)) is not bool:
            _wrong(f"{where}.lossy", "true or false")
        affected.append(row.get("lossy", False))
        lossy.append(_marks(row.get("lossy_segments", []), f"{where}.lossy_segments", path))
        elsewhere.append(_idle(row, where, path))
        rows.append((where, row))
    if spent >= MOST_TIME:
        _wrong(f"{place}.executions", "runs whose times can be added up")
    start = np.concatenate([[0], np.cumsum([len(each) for each in steps])]).astype(np.int64)
    stacks = _read_stacks(given, place, rows, start)
    texts = tuple(strings)
    executions = Executions(
        id=tuple(columns["id"]),
        begin=np.array(begins, np.int64),
        end=np.array(ends, np.int64),
        tid=np.array([thread[0] for thread in columns["thread"]], np.int64),
        host=np.array([thread[1] for thread in columns["thread"]], np.int64),
        comm=tuple(texts[thread[2]] for thread in columns["thread"]),
        label=tuple(columns["label"]),
        incomplete=_whole(given.get("incomplete"), f"{place}.incomplete"),
        notes=_remarks(given, "notes", place),
        requests=_requests(given, place, [e - b for b, e in zip(begins, ends, strict=True)]),
    )
    table = np.concatenate([np.zeros((0, STEP), np.int64), *steps])
    durations = [np.cumsum(each[:, 3]) for each in steps]
    ended = np.concatenate(
        [np.zeros(0, np.int64), *(b + d for b, d in zip(begins, durations, strict=True))]
    ).astype(np.int64)
    kind_table = np.array(kinds, np.int64).reshape(-1, 2)[table[:, 0]]
    thread_table = np.array(threads, np.int64).reshape(-1, 3)[table[:, 1]]
    paths = CriticalPaths(
        start=start,
        begin=ended - table[:, 3],
        end=ended,
        state=kind_table[:, 0].astype(np.uint8),
        detail=kind_table[:, 1].astype(np.int32),
        comm=thread_table[:, 2].astype(np.int32),
        tid=thread_table[:, 0],
        host=thread_table[:, 1],
        cpu=table[:, 2].astype(np.int32),
        lossy=np.concatenate([np.zeros(0, np.bool_), *lossy]),
        strings=texts,
        details=tuple(details),
        elsewhere_idle=np.concatenate([np.zeros(0, np.int64), *elsewhere]),
        **stacks,
        **_read_certainty(rows, start, thread_table[:, 1], kind_table[:, 0].astype(np.uint8)),
    )
    return executions, paths, np.array(columns["session"], np.int64), np.array(affected, np.bool_)


_STACKS: Final = ("stack", "waker_stack")


def _read_stacks(
    given: Mapping[str, Any],
    place: str,
    rows: Sequence[tuple[str, dict[str, Any]]],
    start: I64,
) -> dict[str, Any]:
    """Return with which stacks threads slept, ran and were woken, and these."""
    known = [
        read_stack(_text(text, where))
        for where, text in _items(given.get("stacks", []), f"{place}.stacks", str)
    ]
    found: dict[str, Any] = {name: np.full(int(start[-1]), -1, np.int32) for name in _STACKS}
    for (where, row), low, high in zip(rows, start.tolist(), start[1:].tolist(), strict=False):
        for name, codes in found.items():
            for at, value in _pairs(row, name, where, high - low):
                codes[low + at] = _whole(value, f"{where}.{name}", 0, len(known))
    return {**found, "stacks": tuple(known)}


def _read_certainty(
    rows: Sequence[tuple[str, dict[str, Any]]], start: I64, host: I64, state: Any
) -> dict[str, Any]:
    """Return what a thread did beneath, how surely, and by how much times of hosts may be wrong."""
    beneath, others = np.zeros(len(host), np.uint8), np.zeros(len(host), np.bool_)
    uncertainty, confidence = _usual_uncertainty(start, host, state), np.ones(len(host))
    for (where, row), low, high in zip(rows, start.tolist(), start[1:].tolist(), strict=False):
        for name, places in _object_at(row, "beneath", where).items():
            if name not in STATES or type(places) is not list:
                _wrong(f"{where}.beneath", "places in the path, by names of states")
            for place in places:
                at = _whole(place, f"{where}.beneath", 0, high - low)
                beneath[low + at] = STATES.index(name)
        for at, value in _pairs(row, "uncertainty_ns", where, high - low):
            uncertainty[low + at] = _whole(value, f"{where}.uncertainty_ns", -1, _TIME)
        for at, value in _pairs(row, "confidence", where, high - low):
            if type(value) not in {int, float} or not 0 <= value <= 1:
                _wrong(f"{where}.confidence", "probabilities")
            confidence[low + at : high] = value
        steps = range((high - low) * STEP)
        others[low:high] = _marks(row.get("others", []), f"{where}.others", steps)
    certainty = {"beneath": beneath, "uncertainty": uncertainty, "confidence": confidence}
    return {**certainty, "others": others | (confidence == 0)}  # as older baselines say


def _usual_uncertainty(start: I64, host: I64, state: Any) -> I64:
    """Return what a file leaves out: of what comes from another host it is not known."""
    found: I64 = np.where(find_crossings(start, host, state)[0], -1, 0).astype(np.int64)
    return found


def _object_at(row: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    found = row.get(key, {})
    if type(found) is not dict:
        _wrong(f"{where}.{key}", "an object")
    return dict(found)


def _pairs(row: Mapping[str, Any], key: str, where: str, count: int) -> Iterator[tuple[int, Any]]:
    found = row.get(key, [])
    if type(found) is not list or len(found) % 2:
        _wrong(f"{where}.{key}", "a list of pairs: a place in the path, and a value")
    for at, value in zip(found[::2], found[1::2], strict=True):
        yield _whole(at, f"{where}.{key}", 0, count), value


def _requests(
    given: Mapping[str, Any], place: str, durations: Sequence[int]
) -> RequestFacts | None:
    """Return what is known of requests, None where it is not known of all."""
    rows = list(_items(given.get("executions"), f"{place}.executions"))
    if not rows or not all("request" in row for _, row in rows):
        return None
    texts: dict[str, list[str]] = {name: [] for name in FACT_TEXTS}
    numbers: dict[str, list[int]] = {name: [] for name in FACT_NUMBERS}
    for (where, row), duration in zip(rows, durations, strict=True):
        known = row["request"]
        if type(known) is not dict:
            _wrong(f"{where}.request", "an object")
        for name in set(FACT_TEXTS) - {"asks"}:
            default = CERTAIN if name in {"boundary", "attribution"} else ""
            texts[name].append(_text(known.get(name, default), f"{where}.request.{name}"))
        asks = known.get("asks", {})
        if type(asks) is not dict:
            _wrong(f"{where}.request.asks", "an object")
        asked = {
            _text(key, f"{where}.request.asks"): _whole(value, f"{where}.request.asks")
            for key, value in asks.items()
        }
        texts["asks"].append(json.dumps(asked, sort_keys=True))
        for name in FACT_NUMBERS:
            value = _whole(known.get(name, 0), f"{where}.request.{name}", -_TIME, _TIME)
            numbers[name].append(value)
        if numbers["true_ns"][-1] + numbers["asked_ns"][-1] != duration:
            _wrong(f"{where}.request", "of own time and that of sub-requests that are its duration")
    columns: dict[str, Any] = {name: tuple(of) for name, of in texts.items()}
    columns |= {name: np.array(of, np.int64) for name, of in numbers.items()}
    return RequestFacts(**columns)


def _tables(
    given: Mapping[str, Any], place: str, strings: dict[str, int], details: dict[Detail, int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Return kinds (state, detail) and threads (tid, host, name), with codes."""
    kinds, threads = [], []
    for where, kind in _items(given.get("kinds"), f"{place}.kinds", list):
        if len(kind) != 2 or kind[0] not in STATES:
            _wrong(where, "a state and its detail")
        state = State[kind[0]]
        detail = _detail(kind[1], where, state)
        kinds.append((int(state), details.setdefault(detail, len(details))))
    for where, thread in _items(given.get("threads"), f"{place}.threads", list):
        if len(thread) != 3:
            _wrong(where, "a thread's tid, host and name")
        tid, host = _whole(thread[0], where, -_END), _whole(thread[1], where, 0, _HOSTS)
        name = strings.setdefault(_text(thread[2], where), len(strings))
        threads.append((tid, host, name))
    return kinds, threads


def _detail(value: object, place: str, state: State) -> Detail:
    """Return what qualifies a state: an object of what applies; in the first format, a text."""
    if type(value) is not dict:
        return read_detail(state, _text(value, place))
    if not value.keys() <= {*DETAIL_TEXTS, *DETAIL_NUMBERS}:
        _wrong(place, "a state and its detail")
    known: dict[str, Any] = {n: _text(v, place) for n, v in value.items() if n in DETAIL_TEXTS}
    counts = {name: getattr(NO_DETAIL, name) for name in DETAIL_NUMBERS}
    for name, least in counts.items():
        counts[name] = _whole(value.get(name, least), place, least, _END)
    return Detail(**known, **counts)


def _path(value: object, place: str, kinds: int, threads: int) -> list[int]:
    if type(value) is not list or len(value) % STEP or not set(map(type, value)) <= {int}:
        _wrong(place, f"whole numbers, {STEP} for each segment")
    for column, low, high in ((0, 0, kinds), (1, 0, threads), (2, -1, 2**31), (3, 0, _END)):
        mine = value[column::STEP]
        if mine and not low <= min(mine) <= max(mine) < high:
            _wrong(place, "of known kinds and threads, cpus from -1 and durations from 0")
    return value


def _marks(value: object, place: str, path: Sequence[int]) -> Any:
    marks = np.zeros(len(path) // STEP, np.bool_)
    if type(value) is not list:
        _wrong(place, "a list")
    for each in value:
        marks[_whole(each, place, 0, len(marks))] = True
    return marks


def _idle(row: Mapping[str, Any], where: str, path: Sequence[int]) -> Any:
    """Return for how long other processors were idle during each segment of a path."""
    times = np.zeros(len(path) // STEP, np.int64)
    for at, time in _pairs(row, "elsewhere_idle", where, len(times)):
        times[at] = _whole(time, f"{where}.elsewhere_idle", 0, path[STEP * at + STEP - 1] + 1)
    return times


# A baseline as text: one line per execution, so that version control shows what changed.


def save_baseline(baseline: Baseline, file: Path) -> None:
    """Save a baseline atomically; equal input gives equal bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_text(file, baseline_text(baseline))


def baseline_text(baseline: Baseline) -> str:
    """Return a baseline as JSON of known line breaks, in ASCII."""
    if sum(session.paths.executions.time for session in baseline.sessions) >= MOST_TIME:
        raise TooMuchTimeError
    head = {"format": FORMAT, "critpath": baseline.version, "interrupts": baseline.interrupts}
    lines = [f"{_json(key)}: {_json(value)}," for key, value in head.items()]
    sessions = ["\n".join(_session_lines(session)) for session in baseline.sessions]
    lines = ["{", *lines, '"sessions": [', ",\n".join(sessions)]
    digest = digest_document(json.loads("\n".join([*lines, "]}"])))
    return "\n".join([*lines, "],", f'"digest": {_json(digest)}', "}", ""])


def digest_document(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a baseline says, however its lines are broken, but its digest."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _json(value: object) -> str:
    # Whatever could act on the terminal of someone who looks at a difference is escaped.
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f")


def _clean(value: Any) -> Any:
    """Return a value of texts and numbers with every text as UTF-8 holds it."""
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, dict):
        return {utf8(key): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list | tuple) else value


def _with_clean_names(paths: PathSet) -> PathSet:
    return replace(
        paths,
        executions=replace(paths.executions, comm=tuple(map(utf8, paths.executions.comm))),
        paths=replace(
            paths.paths.resident(),
            strings=tuple(map(utf8, paths.paths.strings)),
            details=tuple(each.with_texts(utf8) for each in paths.paths.details),
        ),
    )


def _session_lines(session: Session) -> Iterator[str]:
    paths = _with_clean_names(session.paths)
    executions = paths.executions
    origin = int(executions.begin[0]) if len(paths) else 0
    (kinds, kind), (threads, thread) = _kinds(paths), _threads(paths)
    texts, stacks = _stack_codes(paths.paths)
    single = {
        "sources": paths.sources,
        "recorded": session.recorded,
        "specification": paths.specification,
        "events": paths.events,
        "incomplete": executions.incomplete,
        "left_out": session.left_out,
        "origin": origin,
    }
    lists: dict[str, list[Any]] = {
        **_clean(save_remarks("notes", executions.notes)),
        **_clean(save_remarks("warnings", paths.warnings)),
        "losses": _clean([loss.saved() for loss in paths.losses]),
        "environment": _clean([e.saved() for e in paths.environment]),
        "means": [list(pair) for pair in paths.mean_times()],
        "kinds": list(map(list, kinds)),
        "threads": list(map(list, threads)),
        **({"stacks": texts} if texts else {}),
        "executions": list(_rows(paths, origin, kind, thread, threads, stacks)),
    }
    yield "{"
    for key, value in single.items():
        yield f"{_json(key)}: {_json(_clean(value))},"
    last = list(lists)[-1]
    for key, items in lists.items():
        end = "" if key == last else ","
        if not items:
            yield f"{_json(key)}: []{end}"
            continue
        yield f"{_json(key)}: ["
        yield ",\n".join(map(_json, items))
        yield f"]{end}"
    yield "}"


def _kinds(paths: PathSet) -> tuple[list[tuple[str, dict[str, str | int]]], I64]:
    """Return every state with its detail, sorted, and the place of each segment's."""
    of = paths.paths
    first, codes = number_rows((of.state, of.detail), len(of.state))
    rows = zip(of.state[first].tolist(), of.detail[first].tolist(), strict=True)
    named = [(STATES[state], of.details[detail]) for state, detail in rows]
    table = sorted(set(named), key=lambda kind: (kind[0], word_detail(kind[1]), kind[1]))
    place = {kind: code for code, kind in enumerate(table)}
    written = [
        (state, {k: v for k, v in detail._asdict().items() if v != getattr(NO_DETAIL, k)})
        for state, detail in table
    ]
    return written, np.array([place[kind] for kind in named], np.int64)[codes]


def _threads(paths: PathSet) -> tuple[list[tuple[int, int, str]], I64]:
    """Return every thread, sorted, and the place of each segment's."""
    of, executions = paths.paths, paths.executions
    columns = of.tid, of.host, of.comm
    first, codes = number_rows(columns, len(of.tid))
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    named = [(tid, host, of.strings[comm]) for tid, host, comm in rows]
    tids, hosts = executions.tid.tolist(), executions.host.tolist()
    table = sorted({*named, *zip(tids, hosts, executions.comm, strict=True)})
    place = {thread: code for code, thread in enumerate(table)}
    return table, np.array([place[thread] for thread in named], np.int64)[codes]


def _stack_codes(of: CriticalPaths) -> tuple[list[str], dict[int, int]]:
    """Return the text of every stack that a segment has, sorted, and its place by its code."""
    used = {code for name in _STACKS for code in np.unique(getattr(of, name)).tolist()} - {-1}
    text_of = {code: utf8(word_stack(of.stacks[code])) for code in used}
    texts = sorted({*text_of.values()})
    place = {text: at for at, text in enumerate(texts)}
    return texts, {code: place[text] for code, text in text_of.items()}


def _rows(
    paths: PathSet,
    origin: int,
    kinds: I64,
    threads: I64,
    table: Sequence[tuple[int, int, str]],
    stacks: Mapping[int, int],
) -> Iterator[dict[str, Any]]:
    """Yield what is on each execution's line; what is usual is left out."""
    thread_of = {thread: code for code, thread in enumerate(table)}
    of, executions = paths.paths, paths.executions
    steps = np.column_stack([kinds, threads, of.cpu, of.duration])
    usual = _usual_uncertainty(of.start, of.host, of.state)
    for i, name in enumerate(executions.id):
        mine = slice(int(of.start[i]), int(of.start[i + 1]))
        subject = int(executions.tid[i]), int(executions.host[i]), executions.comm[i]
        row: dict[str, Any] = {"id": utf8(name), "thread": thread_of[subject]}
        if executions.label[i]:
            row["label"] = utf8(executions.label[i])
        if paths.session[i]:
            row["source"] = int(paths.session[i])
        row["begin"] = int(executions.begin[i]) - origin
        if paths.lossy[i]:
            row["lossy"] = True
        if of.lossy[mine].any():
            row["lossy_segments"] = np.flatnonzero(of.lossy[mine]).tolist()
        # Of a normal execution nobody asks what is not known of it.
        if (of.elsewhere_idle[mine] > 0).any():
            idle = np.flatnonzero(of.elsewhere_idle[mine] > 0)
            pairs = np.column_stack([idle, of.elsewhere_idle[mine][idle]])
            row["elsewhere_idle"] = pairs.reshape(-1).tolist()
        row |= _write_certainty(of, mine, usual[mine])
        for column in _STACKS if stacks else ():
            codes = getattr(of, column)[mine]
            some = np.flatnonzero(codes >= 0).tolist()
            if some:
                row[column] = [n for at in some for n in (at, stacks[int(codes[at])])]
        if executions.requests is not None:
            row["request"] = _request(executions.requests, i)
        row["path"] = steps[mine].reshape(-1).tolist()
        yield row


def _write_certainty(of: CriticalPaths, mine: slice, usual: I64) -> dict[str, Any]:
    """Return of a path what `_read_certainty` reads, without what is usual."""
    found: dict[str, Any] = {}
    codes, wrong, sure = of.beneath[mine], of.uncertainty[mine], of.confidence[mine]
    if of.others[mine].any():
        found["others"] = np.flatnonzero(of.others[mine]).tolist()
    if codes.any():
        names = [int(code) for code in np.unique(codes[codes > 0])]
        found["beneath"] = {STATES[code]: np.flatnonzero(codes == code).tolist() for code in names}
    if len(other := np.flatnonzero(wrong != usual)):
        found["uncertainty_ns"] = np.column_stack([other, wrong[other]]).reshape(-1).tolist()
    changes = np.flatnonzero(sure != np.concatenate([[1.0], sure[:-1]]))
    if len(changes):  # from each of these places on
        found["confidence"] = [x for at in changes.tolist() for x in (at, float(sure[at]))]
    return found


def _request(known: RequestFacts, row: int) -> dict[str, Any]:
    """Return what is known of a request, without what is usual."""
    found: dict[str, Any] = {name: utf8(getattr(known, name)[row]) for name in FACT_TEXTS}
    found["asks"] = json.loads(found["asks"] or "{}")
    found |= {name: int(getattr(known, name)[row]) for name in FACT_NUMBERS}
    return {name: value for name, value in found.items() if value and value != CERTAIN}
