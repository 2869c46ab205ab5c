"""What a recording and its extraction say of the machine and of themselves, declared once.

A set of paths has an `Environment` for every trace that it is of (what the tracer wrote into its
``env`` block), for what the recorder's manifest adds, and for what each step of an extraction
counted.  In saved paths and baselines each is a mapping of keys to texts and whole numbers, as a
trace's own block is; only this module knows these keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from critpath.records import dataclass

Saved = str | int
_LARGEST: Final = 2**63
_MOST_LETTERS: Final = 10_000  # of what a recorder says of its overhead
_DEVICES_LETTERS: Final = 1000
_LONGEST_MOMENTS: Final = 90_000  # letters: a longer text is no part of a saved set


class _Form(NamedTuple):
    """How one value is saved."""

    read: Callable[[Saved], Any]  # None of what is not of its kind
    write: Callable[[Any], Saved]


class _Family(NamedTuple):
    """How values are saved that have a part of their key as a name."""

    pattern: re.Pattern[str]
    add: Callable[[dict[Any, Any], re.Match[str], Saved], None]
    write: Callable[[Mapping[Any, Any]], Iterable[tuple[str, Saved]]]


def _as_text(value: Saved) -> str | None:
    # A tracer may write its kernel's release as a number.
    return value if isinstance(value, str) else str(value) if type(value) is int else None


def _as_whole(value: Saved) -> int | None:
    return value if type(value) is int else None


def _as_moments(value: Saved) -> tuple[int, ...] | None:
    """Return moments of the first one and the steps to the others."""
    if not (isinstance(value, str) and re.fullmatch("[0-9]{1,18}( [0-9]{1,18})*", value)):
        return None
    found = tuple(accumulate(map(int, value.split())))
    return found if found[-1] < _LARGEST else None


def _as_steps(moments: tuple[int, ...]) -> str:
    return " ".join(map(str, [*moments[:1], *(b - a for a, b in pairwise(moments))]))


def _as_numbers(value: Saved) -> tuple[int, ...] | None:
    if not (isinstance(value, str) and re.fullmatch("[0-9]{1,9}( [0-9]{1,9}){0,999}", value)):
        return None
    return tuple(map(int, value.split()))


def _as_lines(value: Saved) -> frozenset[str] | None:
    return frozenset(filter(None, value.split("\n"))) if isinstance(value, str) else None


def _as_functions(value: Saved) -> dict[int, str]:
    found = {}
    for entry in str(value).split(","):
        address, _, name = entry.partition("=")
        if re.fullmatch("[0-9a-f]{1,16}", address) and re.fullmatch(r"\w{1,100}", name):
            number = int(address, 16)
            found[number - (number >> 63 << 64)] = name
    return found


def _from_functions(names: Mapping[int, str]) -> str:
    return ",".join(f"{address % 2**64:x}={name}" for address, name in names.items())


def _as_interrupts(value: Saved) -> dict[str, str]:
    pairs = (re.fullmatch(r"([^=]{1,100})=([^\s/]{1,15})", one) for one in str(value).split(","))
    return {pair[1]: pair[2] for pair in pairs if pair}


def _from_interrupts(devices: Mapping[str, str]) -> str:
    return ",".join(f"{name}={device}" for name, device in devices.items())


def _load(value: Saved) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None


def _as_object(value: Saved) -> dict[str, Any]:
    found = _load(value)
    return found if isinstance(found, dict) else {}


def _as_objects(value: Saved) -> tuple[dict[str, Any], ...]:
    found = _load(value)
    every = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    return tuple(found) if isinstance(found, list) and every else ()


def _as_pairs(value: Saved) -> tuple[tuple[int, int], ...]:
    found = _load(value)
    every = isinstance(found, list) and all(
        isinstance(one, list) and len(one) == 2 and all(type(n) is int for n in one)
        for one in found
    )
    return tuple((a, b) for a, b in found) if isinstance(found, list) and every else ()


def _sorted_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


_ANY: Final = _Form(lambda value: value, lambda value: value)
_TEXT: Final = _Form(_as_text, str)
_WHOLE: Final = _Form(_as_whole, int)
_MOMENTS: Final = _Form(_as_moments, _as_steps)
_NUMBERS: Final = _Form(_as_numbers, lambda numbers: " ".join(map(str, numbers)))
_LINES: Final = _Form(_as_lines, lambda names: "\n".join(sorted(names)))
_FUNCTIONS: Final = _Form(_as_functions, _from_functions)
_INTERRUPTS: Final = _Form(_as_interrupts, _from_interrupts)
_OBJECT: Final = _Form(_as_object, _sorted_json)
_CUT_OBJECT: Final = _Form(_as_object, lambda value: _sorted_json(value)[:_MOST_LETTERS])
_OBJECTS: Final = _Form(_as_objects, lambda value: json.dumps(list(value)))
_PAIRS: Final = _Form(_as_pairs, lambda value: json.dumps(list(map(list, value))))


def _number_family(prefix: str, names: str, kind: Callable[[str], Any] = str) -> _Family:
    def add(found: dict[Any, Any], match: re.Match[str], value: Saved) -> None:
        if type(value) is int:
            found[kind(match[1])] = value

    def write(value: Mapping[Any, int]) -> Iterable[tuple[str, Saved]]:
        return ((f"{prefix}{name}", number) for name, number in value.items())

    return _Family(re.compile(f"{prefix}({names})", re.DOTALL), add, write)


def _said(form: _Form | _Family, what: str, key: str = "", *, default: Any = None) -> Any:
    """Declare a value: how it is saved, what it is with its unit, its key if not its name."""
    about = {"form": form, "what": what, "key": key}
    if isinstance(form, _Family):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


def _always(form: _Form, what: str, key: str = "") -> Any:
    """Declare a value that a group always has; 0 or nothing where a file lacks it."""
    return field(metadata={"form": form, "what": what, "key": key})


@dataclass(frozen=True)
class Route:
    """Devices of one kind that packets were queued at while executions ran."""

    perhaps: int | None = None  # devices that may have been passed
    devices: int | None = None  # devices that surely were
    packets: int | None = None  # queued at these
    begun: int | None = None  # of these, that set out there and were not passed on
    names: tuple[str, ...] | None = None  # some of these; of the kind ``bridge``, of the bridges


_ROUTE: Final = re.compile("route_(packets|devices|perhaps|begun|names)_([a-z0-9_]{1,30})")


def _add_route(found: dict[str, Route], match: re.Match[str], value: Saved) -> None:
    part, kind = match[1], match[2]
    change: dict[str, Any] = {}
    if part != "names":
        change = {part: value} if type(value) is int else {}
    elif isinstance(value, str):
        change = {part: tuple(value[:_DEVICES_LETTERS].split("/"))}
    if change:
        found[kind] = replace(found.get(kind, Route()), **change)


def _write_routes(routes: Mapping[str, Route]) -> Iterable[tuple[str, Saved]]:
    for kind, route in routes.items():
        for part in ("perhaps", "devices", "packets", "begun"):
            number = getattr(route, part)
            if number is not None:
                yield f"route_{part}_{kind}", number
    for kind, route in routes.items():
        if route.names is not None:
            yield f"route_names_{kind}", "/".join(route.names)


@dataclass(frozen=True, kw_only=True)
class Routes:
    """Which network devices the packets of executions passed, by kind of device."""

    executions: int = _always(_WHOLE, "runs whose packets these are", "route_executions")
    kinds: Mapping[str, Route] = _said(
        _Family(_ROUTE, _add_route, _write_routes), "by kind of device, as veth or loopback"
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the machine was like while one recording was made."""

    probes: Mapping[str, int] = _said(
        _number_family("machine_probe_", ".*"), "median time of each kind of probe (ns)"
    )
    pressure: Mapping[str, int] = _said(
        _number_family("machine_pressure_", ".*"),
        "share of the time in which something waited for it, by resource (millionths)",
    )
    others_cpu: int | None = _said(
        _WHOLE, "cpu time that others had, share of all cpus (millionths)", "machine_others_cpu"
    )
    recorder_cpu: int | None = _said(
        _WHOLE, "what the recorder had (millionths)", "machine_recorder_cpu"
    )
    steal: int | None = _said(
        _WHOLE, "what the host gave to other guests (millionths)", "machine_steal"
    )


@dataclass(frozen=True, kw_only=True)
class RequestCounts:
    """What became of all that the servers of a recording were asked."""

    requests: int = _always(_WHOLE, "requests that are judged by themselves")
    doubtful: int = _always(_WHOLE, "of these, whose begin or end is in doubt", "requests_doubtful")
    incomplete: int = _said(
        _WHOLE,
        "without an answer, or cut by the recording's ends",
        "requests_incomplete",
        default=0,
    )
    unsolicited: int = _said(_WHOLE, "answers to nothing", "requests_unsolicited", default=0)
    skipped: int = _said(_WHOLE, "left out by skip=", "requests_skipped", default=0)
    busy_periods: int = _said(
        _WHOLE, "times in which several were under way at once", "requests_busy_periods", default=0
    )
    streams: int = _said(
        _WHOLE, "answered in pieces, with pauses between", "requests_streams", default=0
    )
    unattributed: int = _said(
        _WHOLE, "sub-requests that belong to no request", "requests_unattributed", default=0
    )
    untold: int = _said(
        _WHOLE, "sub-requests of one of several requests", "requests_untold", default=0
    )
    datagrams: int = _said(
        _WHOLE, "over UDP, whose answer may be another's", "requests_datagrams", default=0
    )
    unsure: int = _said(
        _WHOLE, "left out: not sure enough what they asked", "requests_unsure", default=0
    )
    unknown: int = _said(
        _WHOLE, "uses of descriptors that nobody knows", "requests_unknown", default=0
    )
    rings: int = _said(
        _WHOLE, "uses of io_uring, which hides what it does", "requests_rings", default=0
    )
    left_out: Mapping[str, Mapping[str, int]] | None = _said(
        _OBJECT,
        "by service, what touches a time that was not recorded, and for how many others stand",
        "requests_left_out",
    )
    shared: Mapping[int, int] = _said(
        _number_family("requests_shared_", "[0-9]{1,5}", int),
        "requests that shared a connection with others, by the server's port",
    )


@dataclass(frozen=True, kw_only=True)
class GapCounts:
    """Which executions of a recording with gaps are whole, and what the recorder paid."""

    gaps: int = _always(_WHOLE, "times in which nothing was recorded")
    gaps_ns: int = _always(_WHOLE, "how long these are together (ns)")
    recorded_ns: int = _always(_WHOLE, "from the recording's begin to its end (ns)")
    whole: int = _always(_WHOLE, "runs that overlap no gap", "executions_whole")
    partial: int = _always(_WHOLE, "runs that do", "executions_partial")
    by_label: Mapping[str, Mapping[str, int]] = _always(
        _OBJECT, "runs by what became of them, then by label", "executions_by_label"
    )
    strip: tuple[tuple[int, int], ...] = _always(
        _PAIRS, "begin and end of gaps, joined (millionths of the recording)", "gaps_strip"
    )
    bystander: int | None = _said(
        _WHOLE, "whole runs that were not chosen to be recorded", "executions_bystander"
    )
    cut: int | None = _said(_WHOLE, "runs that were chosen and are not whole", "executions_cut")
    overhead: Mapping[str, object] | None = _said(
        _CUT_OBJECT, "what the recording's budget was and took", "recording_overhead"
    )
    took: Mapping[str, object] | None = _said(
        _OBJECT, "how much longer runs took that were recorded than others", "recorded_took"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Environment:
    """What one trace, its manifest or one step of an extraction says; None of what it does not.

    Two are equal that are saved alike.
    """

    # What a tracer says of itself.
    hostname: str | None = _said(_TEXT, "name of the traced machine")
    domain: str | None = _said(_TEXT, "kernel, ust, or what else a tracer calls its domain")
    kernel_release: str | None = _said(_TEXT, "release of the traced kernel")
    tracer_name: str | None = _said(_TEXT, "what wrote the trace: lttng-modules, critpath-ftrace")
    tracer_major: str | int | None = _said(_ANY, "its version, the first number")
    tracer_minor: str | int | None = _said(_ANY, "the second")
    tracer_patchlevel: str | int | None = _said(_ANY, "the third")
    timer_functions: Mapping[int, str] | None = _said(
        _FUNCTIONS, "names of functions of timers by address, as 64 bits with a sign"
    )
    net_devices: Mapping[str, str] | None = _said(
        _INTERRUPTS, "the network device of each interrupt, by the interrupt's name"
    )
    # What a recorder's manifest says.
    recorded_on: str | None = _said(_TEXT, "name of the machine")
    recorded_cpu: str | None = _said(_TEXT, "model of its processor")
    recorded_cpus: int | None = _said(_WHOLE, "how many cpus it has")
    recorded_profile: str | None = _said(_TEXT, "which events were recorded")
    recorded_session: str | None = _said(_TEXT, "shared by recordings made together")
    recorded_beside: str | None = _said(_TEXT, "what it was interleaved with")
    recorded_command: str | None = _said(_TEXT, "the command with its arguments")
    recorded_program: str | None = _said(_TEXT, "the command's program")
    recorded_blocks: tuple[int, ...] | None = _said(
        _MOMENTS, "when each block of runs that were drawn together began (ns)"
    )
    recorded_turns: tuple[int, ...] | None = _said(_MOMENTS, "when each run began (ns)")
    recorded_kernel: int | None = _said(_WHOLE, "what the kernel ran for a run, mean (ns)")
    recorded_faults: int | None = _said(_WHOLE, "page faults of a run, mean")
    machine: Machine | None = field(
        default=None, metadata={"group": Machine, "what": "what the machine was like meanwhile"}
    )
    # What an extraction counts.
    load: tuple[int, ...] | None = _said(
        _NUMBERS, "cpus that threads had in each of some equal slots (hundredths)"
    )
    load_slot_ns: int | None = _said(_WHOLE, "how long such a slot is (ns)")
    switches_put_in: int | None = _said(_WHOLE, "switches that the kernel had left out, put in")
    switches_written: int | None = _said(_WHOLE, "switches that the trace has")
    holders_inferred: frozenset[str] | None = _said(
        _LINES, "threads that others waited for, by coincidence"
    )
    holders_recorded: frozenset[str] | None = _said(_LINES, "threads that others surely waited for")
    runs_recorded: int | None = _said(_WHOLE, "runs of the command that were recorded whole")
    runs_missing: int | None = _said(_WHOLE, "of these, that the trace lacks")
    clocks_sure_to_ns: int | None = _said(
        _WHOLE, "by how much times of several hosts may be wrong (ns)"
    )
    requests: RequestCounts | None = field(
        default=None, metadata={"group": RequestCounts, "what": "of servers, where asked for"}
    )
    gaps: GapCounts | None = field(
        default=None, metadata={"group": GapCounts, "what": "of a recording with gaps"}
    )
    routes: Routes | None = field(
        default=None, metadata={"group": Routes, "what": "of packets, where these were recorded"}
    )
    stacks: int | None = _said(_WHOLE, "stacks that were taken")
    # The last entry of a source.
    clock_epoch: int | None = _said(
        _WHOLE, "to add to the clock for ns since 1970; 0 where not known (ns)"
    )
    clocks: tuple[Mapping[str, object], ...] | None = _said(
        _OBJECTS, "how surely the clock of each of several hosts is known"
    )
    recording: str | None = _said(_TEXT, "name of the source")
    # Of a baseline that is not the whole recording.
    left_out: int | None = _said(_WHOLE, "runs that the baseline does not have")
    left_out_of: str | None = _said(_TEXT, "of which recordings")
    left_out_kept: int | None = _said(_WHOLE, "runs that it has")
    # As it was read: what is saved again to the letter, with what has no name here.
    said: Mapping[str, Saved] | None = None

    @cached_property
    def _saved(self) -> dict[str, Saved]:
        return dict(_write(self)) if self.said is None else dict(self.said)

    def saved(self) -> dict[str, Saved]:
        """Return what a file keeps of it."""
        return dict(self._saved)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Environment) and self._saved == other._saved

    def __hash__(self) -> int:
        return hash(frozenset(self._saved.items()))

    def __repr__(self) -> str:
        return f"Environment({self._saved})"

    @property
    def recorded(self) -> bool:
        """Whether it says anything besides its domain, as every recording does."""
        return not self._saved.keys() <= {"domain"}

    def map_texts(self, change: Callable[[str], str]) -> Environment:
        """Return the same with every text changed."""
        changed = (
            (key, change(value) if isinstance(value, str) else value)
            for key, value in self._saved.items()
        )
        return read_environment(dict(changed))

    def with_texts(self, **texts: str) -> Environment:
        """Return the same with some texts, by the names of their fields, instead of its own."""
        unknown = [name for name in texts if name not in _fixed(Environment)]
        if unknown:
            raise TypeError(f"no text is called {unknown}")
        return read_environment({**self._saved, **texts})


class _Place(NamedTuple):
    group: str  # "" of the environment itself
    name: str
    form: _Form


@cache
def _fixed(of: type) -> dict[str, _Place]:
    """Return where the value of each key belongs."""
    return {
        place.metadata["key"] or place.name: _Place(group, place.name, place.metadata["form"])
        for group, place in _walk(of)
        if isinstance(place.metadata["form"], _Form)
    }


@cache
def _families(of: type) -> list[tuple[str, str, _Family]]:
    return [
        (group, place.name, place.metadata["form"])
        for group, place in _walk(of)
        if isinstance(place.metadata["form"], _Family)
    ]


def _walk(of: type) -> Iterable[tuple[str, Any]]:
    """Yield every declared value with the name of its group."""
    for each in fields(of):
        if "group" in each.metadata:
            yield from ((each.name, inner) for _, inner in _walk(each.metadata["group"]))
        elif "form" in each.metadata:
            yield "", each


def _write(value: Any) -> Iterable[tuple[str, Saved]]:
    """Yield the keys and values of what differs from saying nothing."""
    for each in fields(value):
        one, form = getattr(value, each.name), each.metadata.get("form")
        if "group" in each.metadata:
            yield from _write(one) if one is not None else ()
        elif isinstance(form, _Family):
            yield from form.write(one)
        elif isinstance(form, _Form) and (each.default is MISSING or one != each.default):
            yield each.metadata["key"] or each.name, form.write(one)


_NOTHING: Final[Mapping[object, Any]] = {_OBJECT: {}, _PAIRS: ()}


@cache
def _defaults(of: type) -> dict[str, Any]:
    """Return what a group has of what it should have and a file lacks."""
    return {
        each.name: _NOTHING.get(each.metadata["form"], 0)
        for each in fields(of)
        if each.default is MISSING and each.default_factory is MISSING
    }


@cache
def _groups() -> dict[str, type]:
    return {f.name: f.metadata["group"] for f in fields(Environment) if "group" in f.metadata}


def read_environment(given: Mapping[str, Saved]) -> Environment:
    """Return what a trace's ``env`` block or a saved mapping says.

    Anybody may have written it: a value of another kind than its field's is not taken for it.
    It is saved again as it is.
    """
    fixed, families = _fixed(Environment), _families(Environment)
    found: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        place = fixed.get(key)
        if place is not None:
            known = place.form.read(value) if not isinstance(value, bool) else None
            if known is not None:
                found.setdefault(place.group, {})[place.name] = known
            continue
        for group, name, family in families:
            match = family.pattern.fullmatch(key)
            if match is None:
                continue
            items = found.get(group, {}).get(name, {})
            family.add(items, match, value)
            if items:
                found.setdefault(group, {})[name] = items
    groups = _groups()
    own: dict[str, Any] = found.pop("", {})
    for name, values in found.items():
        own[name] = groups[name](**{**_defaults(groups[name]), **values})
    return Environment(**own, said=dict(given))


def read_machine(summary: Mapping[str, int]) -> Environment:
    """Return what a manifest's summary of the machine says: `probe_l1`, `pressure_cpu`, ..."""
    return read_environment({f"machine_{name}": value for name, value in summary.items()})


def saved_keys() -> frozenset[str]:
    """Return the keys of all values that have one of their own."""
    return frozenset(_fixed(Environment))


def fit_moments(moments: Sequence[int]) -> bool:
    """Tell whether a saved set has room for moments, and reads them as they are."""
    text = _as_steps(tuple(moments))
    return len(text) <= _LONGEST_MOMENTS and _as_moments(text) is not None


def name_timers(environments: Iterable[Environment]) -> dict[int, str]:
    """Return the names of timers' functions by address, as far as recorders have noted them."""
    return {k: v for each in environments for k, v in (each.timer_functions or {}).items()}


def name_interrupts(environments: Iterable[Environment]) -> dict[str, str]:
    """Return whose network interrupts are, by their names, as far as recorders have noted them."""
    return {k: v for each in environments for k, v in (each.net_devices or {}).items()}


def list_values(
    environments: Iterable[Environment], of: Callable[[Environment], object]
) -> list[str]:
    """Return what some environments say of something, each text once and sorted."""
    return sorted({str(value) for each in environments if (value := of(each)) is not None})


def add_counts(environments: Iterable[Environment], of: Callable[[Environment], int | None]) -> int:
    """Return the sum of what environments count of something; nothing is counted below 0."""
    return sum(max(of(each) or 0, 0) for each in environments)
