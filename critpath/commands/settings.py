"""Every setting in one table, and where its value comes from.

The command line wins over ``--config FILE``, or else over the nearest
``critpath.toml`` or ``pyproject.toml`` with ``[tool.critpath]``, from the current
directory upward; that wins over the default.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from critpath.commands.overview import QUIET
from critpath.errors import UsageError
from critpath.records import dataclass
from critpath.schema.parameters.shared import DEFAULTS
from critpath.units import TRACE_ID, safe_text, shorten

if TYPE_CHECKING:
    from critpath.model import CompareSettings

# What values settings take, from text or TOML: every parser says what it wants.


class WrongValueError(ValueError):
    """A value is not what its message says it should be."""


def as_bool(value: Any) -> bool:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise WrongValueError("true or false")
    return value


def as_text(value: Any) -> str:
    """Accept a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise WrongValueError("a text")
    return value


def as_recording(value: Any) -> str:
    """Accept a path that can stand in a specification of executions, or none."""
    if not isinstance(value, str) or any(letter in value for letter in ",[]\\"):
        raise WrongValueError("a path without comma, bracket and backslash")
    return value


def one_of(*choices: str) -> Callable[[Any], str]:
    """Accept one of some words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise WrongValueError(" or ".join(choices))
        return str(value)

    return parse


def as_rule(value: Any) -> str:
    """Accept the name of a rule for the verdict."""
    return one_of(*_rules())(value)


def _rules() -> tuple[str, ...]:
    # The analysis is no part of what `critpath record` imports as root.
    from critpath.detect import RULES  # noqa: PLC0415 - start-up time

    return tuple(RULES)


def number(low: float, high: float, what: str) -> Callable[[Any], float]:
    """Accept a finite number within ``(low, high]``, or a percentage of 1."""

    def parse(value: Any) -> float:
        text = "" if isinstance(value, bool) else str(value).strip()
        try:
            result = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise WrongValueError(what) from None
        if not (math.isfinite(result) and low < result <= high):
            raise WrongValueError(what)
        return result

    return parse


def share(most: float, what: str) -> Callable[[Any], float]:
    """Accept a share from 0 to below 1, or a percentage up to ``most`` wholes.

    A bare 10 could be meant as 10 % or as ten times: it is refused with the question.
    """
    parse = number(-1e-300, most, what)  # 0 is within

    def parse_share(value: Any) -> float:
        result = parse(value)
        if result >= 1 and not str(value).strip().endswith("%"):
            raise WrongValueError(f'a share below 1 or a percentage: did you mean "{result:g}%"?')
        return result

    return parse_share


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Accept a whole number within ``[low, high]``."""

    def parse(value: Any) -> int:
        what = f"a whole number from {low:,} to {high:,}"
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise WrongValueError(what)
        text = str(value).strip()
        digits = text.isascii() and text.isdigit() and len(text) < _DIGITS
        if not digits or not low <= int(text) <= high:
            raise WrongValueError(what)
        return int(text)

    return parse


def auto_or(parse: Callable[[Any], float]) -> Callable[[Any], float | None]:
    """Accept ``auto`` (None) besides."""

    def parse_auto(value: Any) -> float | None:
        if value is None or value == "auto":
            return None
        try:
            return parse(value)
        except WrongValueError as error:
            raise WrongValueError(f"auto or {error}") from None

    return parse_auto


_DIGITS: Final = 20  # technical: of a number; Python reads no more than 4,300
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def as_size(value: Any) -> int:
    """Accept bytes, or a whole number of KiB, MiB or GiB: ``512k``, ``8M``."""
    what = "a size such as 8M (k, M and G are powers of 1024)"
    found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(?:i?b)?", str(value).strip().lower(), re.ASCII)
    if isinstance(value, bool) or found is None:
        raise WrongValueError(what)
    size = int(found[1]) * _SIZES[found[2]]
    if size > 1 << 40:
        raise WrongValueError(what)
    return size


_BUDGET: Final = re.compile(r"([0-9.]+)\s*(%?)\s*(?:/\s*([0-9.]+)\s*(s|min|h))?", re.ASCII)
_SPANS: Final = {"s": 1, "min": 60, "h": 3600, None: 1}


def as_budget(value: Any) -> str:
    """Accept an overhead and a horizon: ``3%``, ``0.03``, ``3%/10s``; "" for none."""
    if value == "":
        return ""
    what = "an overhead above 0 and at most 1000 %, such as 3% or 0.03, or 3%/10s (1s to 1h)"
    found = _BUDGET.fullmatch(str(value).strip())
    if isinstance(value, bool) or found is None:
        raise WrongValueError(what)
    try:
        overhead, horizon = split_budget(str(value))
    except ValueError:
        raise WrongValueError(what) from None
    if not 0 < overhead <= 10 or (horizon is not None and not 1 <= horizon <= 3600):
        raise WrongValueError(what)
    return str(value).strip()


def split_budget(text: str) -> tuple[float, float | None]:
    """Return overhead and horizon (s) of an accepted text, None where none is named."""
    found = _BUDGET.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    overhead = float(found[1]) / (100 if found[2] else 1)
    return overhead, float(found[3]) * _SPANS[found[4]] if found[3] else None


_DURATION: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|min|h)?", re.ASCII)


def as_duration(value: Any) -> float:
    """Accept seconds, minutes or hours, from 1 s to a day: ``10min``."""
    what = "a time from 1s to 24h, such as 10min"
    found = _DURATION.fullmatch(str(value).strip())
    if isinstance(value, bool) or found is None:
        raise WrongValueError(what)
    seconds = float(found[1]) * _SPANS[found[2]]
    if not 1 <= seconds <= 86_400:
        raise WrongValueError(what)
    return seconds


def as_pause(value: Any) -> float:
    """Accept what `as_duration` does, or 0."""
    if str(value).strip() == "0" and not isinstance(value, bool):
        return 0.0
    try:
        return as_duration(value)
    except WrongValueError as error:
        raise WrongValueError(f"0 or {error}") from None


def as_hourly(value: Any) -> int:
    """Accept how often in an hour: ``6/h``, or the number alone."""
    try:
        return whole(1, 3600)(str(value).strip().removesuffix("/h"))
    except WrongValueError:
        raise WrongValueError("how often in an hour, from 1/h to 3600/h") from None


def as_condition(value: Any) -> tuple[str, str]:
    """Accept one condition of ``--when``, as text and word; raises UsageError."""
    from critpath_record import Condition  # noqa: PLC0415 - start-up time

    one = Condition.parse(str(value))
    return one.text, one.word


def as_conditions(value: Any) -> tuple[tuple[str, str], ...]:
    """Accept a list of what `as_condition` does."""
    if not isinstance(value, list):
        raise WrongValueError('a list such as ["loss", "latency checkout > 250ms"]')
    return tuple(as_condition(one) for one in value)


_MOST_URL: Final = 2_000


def as_trace_url(value: Any) -> str:
    """Accept the address of a tracing UI with a place for a trace's id; "" for none."""
    what = "an address such as https://jaeger.example/trace/{trace_id}"
    if value == "":
        return ""
    if not isinstance(value, str) or len(value) > _MOST_URL or not value.isascii():
        raise WrongValueError(what)
    if re.search(r"[\x00-\x20\"'<>`\\\x7f]", value) or value.count(TRACE_ID) != 1:
        raise WrongValueError(what)
    if re.search("[{}]", value.replace(TRACE_ID, "")):
        raise WrongValueError(f"{what}: other braces are written %7B and %7D")
    try:
        parts = urlsplit(value)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise WrongValueError(what) from None
    if parts.scheme not in {"http", "https"} or not host or TRACE_ID in parts.netloc:
        raise WrongValueError(what)
    if "@" in parts.netloc:
        raise WrongValueError("an address without a name or password in it: pages are passed on")
    return value


def as_name(value: Any) -> str:
    """Accept a name of letters, digits, ``-`` and ``_``."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w-]{0,63}", value, re.ASCII):
        raise WrongValueError("a name of letters, digits, - and _")
    return value


def as_profile(value: Any) -> str:
    """Accept the name of a profile, or the path of a session file."""
    if isinstance(value, str) and (os.sep in value or value.endswith(".lttng")):
        return value
    return as_name(value)


LEVELS: Final = ("off", "warn", "error")
TOTAL: Final = "total"


def as_level(value: Any) -> tuple[str, str]:
    """Accept ``PATTERN=LEVEL``: states (or the total), and how much they matter."""
    pattern, _, level = str(value).rpartition("=")
    if not pattern or level not in LEVELS:
        raise WrongValueError("STATE=LEVEL with a level of off, warn or error, as WAIT_CPU=warn")
    check_pattern(pattern)
    return pattern, level


def as_levels(value: Any) -> tuple[tuple[str, str], ...]:
    """Accept a table from patterns of states to levels."""
    if not isinstance(value, dict):
        raise WrongValueError('a table such as { WAIT_CPU = "warn" }')
    for pattern, level in value.items():
        if level not in LEVELS:
            raise WrongValueError(f"off, warn or error for {pattern}")
        check_pattern(pattern)
    return tuple(value.items())


def check_pattern(pattern: str) -> None:
    """Refuse a pattern of a state that there is not."""
    from fnmatch import fnmatchcase  # noqa: PLC0415 - start-up time, and rarely needed

    from critpath.model import State  # noqa: PLC0415 - numpy

    state, at, _ = pattern.partition("@")
    known = [s.name for s in State] if at else [*(s.name for s in State), TOTAL]
    if any(fnmatchcase(name, state) for name in known):
        return
    import difflib  # noqa: PLC0415 - as above

    near = difflib.get_close_matches(state.upper(), known, n=1, cutoff=0.5)
    listed = f"did you mean {near[0]}{at}?" if near else f"the states are {', '.join(known)}"
    raise WrongValueError(f"about a state: there is no state {state!r}, {listed}")


def as_gate(value: Any) -> tuple[str, str]:
    """Accept ``pNN``, a percentile that decides, or ``sessions=on`` or ``off``."""
    text = str(value)
    if text in {"sessions=on", "sessions=off"}:
        return "sessions", text.partition("=")[2]
    found = re.fullmatch(r"p(\d{1,2}(?:\.\d{1,3})?)", text, re.ASCII)
    if found is None or not 0 < float(found[1]) < 100:
        raise WrongValueError("a percentile such as p99, or sessions=off")
    return "percentile", text


def as_gates(value: Any) -> tuple[tuple[str, str], ...]:
    """Accept a list of what `as_gate` does."""
    if not isinstance(value, list):
        raise WrongValueError('a list such as ["p99"]')
    return tuple(dict(map(as_gate, value)).items())


@dataclass(frozen=True)
class Setting:
    """One setting: the option ``--NAME``, the key ``NAME``.

    Attributes
    ----------
    name : str
    parse : callable
        From text or a TOML value; raises WrongValueError with what it should be.
    default : object
    shown : str or callable
        What `--help` shows, or what returns it.
    metavar : str
    listed : callable, optional
        The option may be given several times, and its values add up to a tuple; this takes all
        of them from a file.
    options : mapping of str
        Values that are an option each, ``--NAME-VALUE``, and what `--help` shows of them.
    """

    name: str
    parse: Callable[[Any], Any]
    default: Any
    shown: str | Callable[[], str]
    metavar: str = ""
    listed: Callable[[Any], Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def help(self) -> str:
        """What ``--help`` shows."""
        return self.shown if isinstance(self.shown, str) else self.shown()

    def accept(self, value: Any) -> Any:
        """Return a value of a file or a program, checked."""
        return (self.listed or self.parse)(value)

    @property
    def flag(self) -> bool:
        """Whether it is ``--NAME`` and ``--no-NAME`` without a value."""
        return self.parse is as_bool


_POSITIVE: Final = number(0, 1e9, "a number above 0")
# Zero is a floor that lets everything pass, so it must be expressible.
_FLOOR: Final = share(10, "a share of the mean before, such as 0.05 or 5%")
_ALPHABETS: Final = ("thread", "state", "functions", "code")
_ALPHABET: Final = "alphabet of paths: thread, state (paper), functions (Python) or code (stacks)"
_OUTLIER_K: Final = "paper's outliers: above mean + K * std"
_T2: Final = "paper's probability rule: ratio of the shares above the normal mean, or auto"

_TABLE: Final[dict[str, tuple[Setting, ...]]] = {
    "reading": (
        Setting("execution", as_text, None, "what a run is: process | thread | marker | "
            "events:BEGIN,END[,key=FIELD][,label=FIELD] | windows:FILE.csv | "
            "requests[:port=N,comm=NAME,...] of servers, which requests:? lists | "
            "slices:MARKER[,comm=NAME][,min=DURATION][,root] of threads | slice:NAME that the "
            "program names, and slice:? lists (default: what the recording says)", "SPEC"),
        Setting("doubtful", one_of("leave", "include"), "leave", "where it is doubtful what a "
            "request asked of others: leave (its path stays on the thread that answered it) or "
            "include (as is likeliest)", "WHAT"),
        Setting("assign", one_of("queues", "gap", "delays", "thread"), "queues",
            "what decides who of several open requests asked, where no certain rule does: queues "
            "(order, and what requests usually ask), or for comparison one thing alone: gap "
            "(transitions, as PInfer), delays, or thread (who was received last)", "WHAT"),
        Setting("learn", as_recording, "", "a recording of the same servers, best with one request "
            "after the other, from which it is learned what requests ask: for short ones in which "
            "all are concurrent", "RECORDING"),
        Setting("reader", one_of("auto", "native", "babeltrace2"), "auto",
            "how traces are read: auto, native or babeltrace2", "NAME"),
        Setting("hosts", one_of("auto", "together", "apart"), "auto",
            "several recordings in a directory: of several hosts at one time (together), or "
            "repetitions (apart); auto: what they say of their machines, times and connections",
            options={
            "together": "recordings in one directory are of several hosts at one time",
            "apart": "recordings in one directory are repetitions, whatever their machines",
            "auto": "decided by what the recordings say of their machines, times and "
                "connections (the default)",
        }),
        Setting("interrupts", as_bool, True, "show interrupt work that stole the cpu as IRQ and "
            "SOFTIRQ, not as running"),
        Setting("max-memory", as_size, 0, "most memory for reading recordings, such as 512M: a "
            "temporary file has the rest; 0: no limit", "SIZE"),
    ),
    "running": (
        Setting("jobs", auto_or(whole(1, 1024)), None, "processors that reading may use: a number, "
            "or auto for as many as pay: a process for each recording, no more than one per 64 MB "
            "of trace and as memory allows, and where there are two processors for each, one of "
            "them decodes ahead (default: auto)", "N"),
    ),
    "comparing": (
        Setting("rule", as_rule, "gate", lambda: f"what decides: {' or '.join(_rules())}", "NAME"),
        Setting("alpha", number(0, 0.5, "a level above 0 and at most 0.5"), DEFAULTS.alpha,
            "false-alarm level of the gate, over all states together", "LEVEL"),
        Setting("floor", _FLOOR, DEFAULTS.floor, "smallest increase that counts, as a share of the "
            "mean before", "SHARE"),
        Setting("least", _FLOOR, DEFAULTS.least, "a slowdown so large has to show before the "
            "answer is OK, as a share of the mean before; else it is inconclusive",
            "SHARE"),
        Setting("minimum-executions", whole(0, 1_000_000_000), 0,
            "fewest runs of either set that a verdict may rest on; 0 for what the gate needs",
            "N"),
        Setting("strict-environment", as_bool, False, "sets of other kernels, machines, "
            "processors, tracers or programs are inconclusive"),
        Setting("fail-on-machine", as_bool, False, "what strangers made slower fails as well: exit "
            "code 1 instead of 3"),
        Setting("level", as_level, (), "how much a state matters, such as WAIT_CPU=warn or "
            "RUN@kworker/*=off: off, warn or error (repeatable; in a settings file: the table "
            "gate.states)", "STATE=LEVEL", listed=as_levels),
        Setting("gate", as_gate, (), "p99: that percentile decides, by an interval that assumes "
            "nothing; sessions=off: what a slow machine could have made is an anomaly, too "
            "(repeatable; in a settings file: the list on of the table gate)", "WHAT",
            listed=as_gates),
        Setting("session-spread", auto_or(share(10, "a share of the mean, such as 0.12 or 12%")),
            None, "standard deviation that recordings of the program are known to have, of eight "
            "or more (calibrate says it), or auto", "SHARE"),
        Setting("t1", _POSITIVE, DEFAULTS.t1, "paper's average rule: mean + T1 * std", "T1"),
        Setting("t2", auto_or(_POSITIVE), None, _T2, "T2"),
        Setting("y-reference", one_of("a1", "a2"), "a1",
            "mean above which the runs after are counted: a1 (before) or a2 (after)", "NAME"),
        Setting("outlier-k", _POSITIVE, DEFAULTS.outlier_k, _OUTLIER_K, "K"),
        Setting("outlier-level", number(0, 0.5, "a level above 0 and at most 0.5"),
            DEFAULTS.outlier_level, "share of false outliers among the runs called anomalous",
            "LEVEL"),
        Setting("permutations", whole(99, 1_000_000), DEFAULTS.permutations,
            "permutations of the gate, where not all can be enumerated", "N"),
        Setting("cluster-method", one_of("optics", "raw", "silcut", "linkage"), "optics",
            "how types of runs are found: optics, raw (on plain counts, as the paper), "
            "silcut or linkage", "NAME"),
        Setting("alphabet", one_of(*_ALPHABETS), "thread", _ALPHABET, "NAME"),
        Setting("msa", one_of("add", "joint"), "add", "aligning an anomaly with its normal group: "
            "add (aligned once) or joint (the paper)", "NAME"),
        Setting("aligner", one_of("posteriors", "muscle"), "posteriors",
            "how paths are aligned: posteriors (pair-HMM with consistency; muscle where there is "
            "too much) or muscle (as the paper)", "NAME"),
    ),
    "recording": (
        Setting("recorder", one_of("auto", "lttng", "ftrace", "counts"), "auto",
            "what records: lttng, ftrace, auto for the first of them that can, or counts: no "
            "trace, only how often each event happens", "NAME"),
        Setting("profile", as_profile, "minimal", "what is recorded: minimal, requests, syscalls, "
            "network, io, locks or full, or the path of a session file", "NAME"),
        Setting("buffer-size", as_size, 0, "room for events per cpu, such as 8M; 0 for the "
            "recorder's choice", "SIZE"),
        Setting("trace-format", one_of("ctf-1.8", "ctf-2"), "ctf-1.8",
            "format of the trace: ctf-1.8 or ctf-2", "FORMAT"),
        Setting("overhead", as_budget, "", "what recording may cost: 3%, 0.03, or 3%/10s with the "
            "time over which it holds (1s; 10s below 2 %); what is not recorded is a gap (default: "
            "all that it costs)", "P[/H]"),
        Setting("controller", one_of("fair", "global", "cascade"), "fair",
            "what decides when to record under --overhead: fair (an account), or for comparison "
            "global or cascade, as the paper has them", "NAME"),
        Setting("overhead-of", one_of("busiest", "machine", "command"), "busiest",
            "what --overhead is a share of: the busiest cpu, the machine, or the command", "WHAT"),
        Setting("calibrate", one_of("auto", "again", "off"), "auto", "under --overhead, what an "
            "event costs: auto (as measured here in the last 30 days, or now), again (now), or off "
            "(upper values of a table)", "WHEN"),
    ),
    "counting": (
        Setting("interval", number(0.05, 3600, "a number of seconds above 0.05"), 1.0,
            "seconds in which events are counted: how long a document of a signature is", "S"),
        Setting("scope", str, "", "whose events are counted, and stacks and files taken: command, "
            "machine, or a control group's path or name (by default the command, else the "
            "container, else the machine)", "NAME"),
    ),
    "signing": (
        Setting("weights", one_of("hellinger", "tf", "tfidf", "tfidf-smooth", "rate"), "hellinger",
            "what counts become in a signature: hellinger (square roots of shares), tf (shares), "
            "tfidf (as the paper), tfidf-smooth, or rate", "NAME"),
    ),
    "knowing": (
        Setting("known", str, "", "a store of what was seen before (critpath known): an anomaly is "
            "looked up there", "STORE"),
    ),
    "level of what is known": (
        Setting("known-level", number(0.0001, 0.5, "a number from 0.0001 to 0.5"), 0.01,
            "how often something known may be called unknown", "P"),
    ),
    "flying": (
        Setting("keep", as_duration, 600.0, "with --always: most history of a dump: 10min",
            "TIME"),
        Setting("memory", as_size, 256 << 20, "with --always: of all buffers of all cpus", "SIZE"),
        Setting("at-most", as_hourly, 6, "with --always: dumps an hour for conditions", "N/h"),
        Setting("dumps", whole(1, 10_000), 20, "with --always: dumps that are kept", "N"),
        Setting("when", as_condition, (), "with --always: save when this happens: latency [KIND] "
            "[p99] > 250ms [over 30s], rate KIND < 5/s over 30s, slower than usual, loss, signal "
            "USR1, exit != 0, pressure cpu|io|memory some 150ms/1s, overhead > 2x; may be repeated",
            "COND", listed=as_conditions),
        Setting("after", as_pause, 10.0, "with --always: how long a latency or pressure goes on to "
            "be recorded before it is saved; 0: not at all", "TIME"),
        Setting("usual", as_pause, 3600.0, "with --always: save what is usual every so often, for "
            "critpath incidents; 0: never", "TIME"),
    ),
    "coding": (
        Setting("own", str, "", "with stacks: functions or files of the program itself", "NAMES"),
        Setting("not-own", str, "", "with stacks: functions or files no cause names", "NAMES"),
    ),
    "linking": (
        Setting("trace-url", as_trace_url, "", "where a tracing UI shows a trace, such as "
            "https://jaeger.example/trace/{trace_id}: pages link to it from requests whose trace "
            "id was recorded", "URL"),
    ),
    "everywhere": (
        Setting("quiet", as_bool, False, QUIET),
    ),
}  # fmt: skip
SETTINGS: Final = {setting.name: setting for group in _TABLE.values() for setting in group}


def _names(group: str) -> tuple[str, ...]:
    return tuple(setting.name for setting in _TABLE[group])


READING: Final = _names("reading")
RUNNING: Final = _names("running")  # of commands that read several recordings
COMPARING: Final = _names("comparing")
RECORDING: Final = _names("recording")
COUNTING: Final = _names("counting")  # of commands that count, or read what was counted
SIGNING: Final = (*COUNTING, *_names("signing"))  # of commands that make signatures
KNOWING: Final = _names("knowing")  # of commands that look up what they find
FLYING: Final = _names("flying")  # of the flight recorder
CODING: Final = _names("coding")  # of commands that name places in the code
LINKING: Final = _names("linking")  # of commands that write pages
OF_REQUESTS: Final = ("doubtful", "assign", "learn")  # are part of the specification of executions
# What a table [gate] may hold, besides its states.
GATE: Final = (
    "alpha",
    "floor",
    "least",
    "minimum-executions",
    "strict-environment",
    "fail-on-machine",
)
_STATES: Final = "gate.states"
_ON: Final = "gate.on"


@dataclass(frozen=True)
class Settings:
    """Effective values, and the origin of each.

    Attributes
    ----------
    values, origins : mapping of str
        By the settings' names.
    left_out : str
        A line about settings that were not taken.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    left_out: str = ""  # what of a file that was found is not taken, as one line

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def for_reading(self) -> dict[str, Any]:
        """Return how sources are read, as `critpath.flow.extract` is called with it."""
        return {
            "specification": self["execution"],
            "reader": self["reader"],
            "interrupts": self["interrupts"],
            "max_memory": self["max-memory"],
        }

    def for_comparing(self) -> CompareSettings:
        """Return what `critpath.flow.compare` is called with."""
        from critpath.model import CompareSettings  # noqa: PLC0415 - numpy

        options = {name.replace("-", "_"): self[name] for name in (*COMPARING, "interrupts")}
        gates = dict(options.pop("gate"))
        percentile = gates.get("percentile")
        return CompareSettings(
            **options,
            percentile=None if percentile is None else float(percentile[1:]) / 100,
            sessions=gates.get("sessions") != "off",
        )

    def why_not_record(self, directory: Path) -> str:
        """Return why this machine may not record into a directory, "" if it may."""
        from critpath_record import doctor  # noqa: PLC0415 - start-up time

        return doctor(directory).why_not(str(self["recorder"]))

    def lines(self) -> list[str]:
        """Return one line per setting, as TOML with the origin as a comment."""
        texts = {name: _as_toml(name, value) for name, value in self.values.items()}
        width = max(map(len, texts.values()))
        return [f"{text:<{width}}  # {self.origins[name]}" for name, text in texts.items()]


def _as_toml(name: str, value: Any) -> str:
    if name == "level":
        pairs = ", ".join(f"{json.dumps(p)} = {json.dumps(level)}" for p, level in value)
        return f"{_STATES} = {{{f' {pairs} ' if pairs else ''}}}"
    if name == "gate":
        listed = [text if kind == "percentile" else f"{kind}={text}" for kind, text in value]
        return f"{_ON} = {json.dumps(listed)}"
    if name == "when":
        return f"{name} = {json.dumps([text for text, _ in value])}"
    if name in {"t2", "jobs", "session-spread"} and value is None:
        value = "auto"
    if name in {"floor", "session-spread"} and not isinstance(value, str) and value >= 1:
        value = f"{100 * value:g}%"  # as it can be read back
    return f"{name} = {json.dumps(value)}" if value is not None else f"# {name} is not set"


def effective(given: Mapping[str, Any], config: Path | None, start: Path) -> Settings:
    """Combine the command line, the settings file and the defaults.

    Parameters
    ----------
    given : mapping
        Values from the command line, by the settings' names, already parsed.
    config : Path or None
        ``--config``.
    start : Path
        Directory from which to look upward for a file, if ``config`` is None.

    Raises
    ------
    UsageError
        If a file cannot be read, or has an unknown key or a wrong value.
    """
    values = {name: setting.default for name, setting in SETTINGS.items()}
    origins = dict.fromkeys(SETTINGS, "default")
    places: dict[str, str] = {}
    file, section = (config, _section(config, asked=True)) if config else _nearest(start)
    refused = {*RECORDING, *COUNTING, *FLYING} if file and not config and _is_others(file) else {}
    left_out: list[str] = []
    for place, name, value in _entries(section or {}, file):
        if name in refused:
            left_out.append(name)
            origins[name] = f"default; that of {file} is not taken"
            continue
        if name in places:
            both = place if place == places[name] else f"{places[name]} and as {place}"
            do = "keep one of them" if place != places[name] else "keep one of - and _ in its name"
            raise UsageError(f"{file}: {name} is set twice, as {both}", do)
        try:
            values[name] = SETTINGS[name].accept(value)
        except WrongValueError as error:
            shown = json.dumps(value, default=str)
            raise UsageError(f"{file}: {place} = {shown} is not {error}", "correct it") from None
        places[name] = place
        origins[name] = str(file)
    for name, value in given.items():
        if SETTINGS[name].listed:
            # Both count, and what the command line says of a pattern comes last.
            kept = dict(values[name])
            for pattern, level in value:
                kept.pop(pattern, None)
                kept[pattern] = level
            values[name] = tuple(kept.items())
            origins[name] = ", ".join((*([str(file)] if name in places else []), "command line"))
            continue
        values[name] = value
        origins[name] = "command line"
    for name in OF_REQUESTS:
        values["execution"] = _with_requests(name, values, origins)
    said = f"{file}: {', '.join(left_out)}: not taken, as it is another user's and root records"
    return Settings(values, origins, said if left_out else "")


def _is_others(file: Path) -> bool:
    """Tell whether this is root, or began as root, and others may have written a file."""
    if os.geteuid() and "SUDO_UID" not in os.environ:
        return False
    if os.geteuid():
        from critpath_record import Helper  # noqa: PLC0415 - start-up time

        return Helper.is_there()
    about = file.stat()
    return about.st_uid != 0 or bool(about.st_mode & 0o022)


def _with_requests(name: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> str | None:
    """Return the specification of executions with a setting that is about requests."""
    specification: str | None = values["execution"]
    if values[name] == SETTINGS[name].default:
        return specification
    kind, colon, _ = (specification or "").partition(":")
    if kind == "requests":
        if f"{name}=" in str(specification):
            return specification
        return f"{specification}{',' if colon else ':'}{name}={values[name]}"
    if origins[name] == "command line":
        raise UsageError(
            f"--{name} is about requests, and --execution names none", "add --execution requests"
        )
    return specification


def _entries(section: Mapping[str, Any], file: Path | None) -> Iterator[tuple[str, str, Any]]:
    """Yield every entry of a file: where it stands, which setting it is, its value."""
    for key, value in section.items():
        if key == "gate":
            if not isinstance(value, Mapping):
                raise UsageError(f"{file}: gate is no table", "write [tool.critpath.gate]")
            for inner, given in value.items():
                name = inner.replace("_", "-")
                if name == "states":
                    yield _STATES, "level", given
                elif name == "on":
                    yield _ON, "gate", given
                elif name in GATE:
                    yield f"gate.{inner}", name, given
                elif name in SETTINGS and name not in {"level", "gate"}:
                    raise UsageError(
                        f"{file}: {inner} is no setting of the gate",
                        "write it above [tool.critpath.gate], in [tool.critpath]",
                    )
                else:
                    raise _unknown(
                        f"{file}: unknown setting gate.{inner}", name, (*GATE, "states", "on")
                    )
            continue
        name = key.replace("_", "-")
        if name not in SETTINGS or name == "level":
            known = (*(_STATES if each == "level" else each for each in SETTINGS), "gate")
            raise _unknown(
                f"{file}: unknown setting {key}", _STATES if name == "level" else name, known
            )
        yield key, name, value


def _unknown(what: str, name: str, known: tuple[str, ...]) -> UsageError:
    import difflib  # noqa: PLC0415 - start-up time, and rarely needed

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    return UsageError(what, f"did you mean {near[0] if near else ', '.join(known)}?")


def _nearest(start: Path) -> tuple[Path | None, Mapping[str, Any] | None]:
    for directory in (start, *start.parents):
        for name in ("critpath.toml", "pyproject.toml"):
            file = directory / name
            if file.is_file():
                section = _section(file, asked=False)
                if section is not None:
                    return file, section
    return None, None


def _section(file: Path, *, asked: bool) -> Mapping[str, Any] | None:
    """Return a file's settings; None if it is a pyproject.toml without any."""
    import tomllib  # noqa: PLC0415 - only if there is a file

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", "name a readable file with --config"
        ) from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or too many digits
        why = shorten(safe_text(f"{error}".partition("\n")[0]))
        raise UsageError(f"{file}: not valid TOML: {why}", "correct it") from None
    if file.name != "pyproject.toml":
        return content
    tool = content.get("tool", {})
    section = tool.get("critpath") if isinstance(tool, dict) else None
    if section is None:
        if asked:
            raise UsageError(f"{file} has no [tool.critpath]", "add it, or name another file")
        return None
    if not isinstance(section, dict):
        raise UsageError(f"{file}: tool.critpath is no table", "write [tool.critpath]")
    return section
