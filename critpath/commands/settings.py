"""Every setting in one table, and where its value comes from.

The command line wins over ``--config FILE``, or else over the nearest
``critpath.toml`` or ``pyproject.toml`` with ``[tool.critpath]``, from the current
directory upward; that wins over the default.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from critpath.errors import UsageError


class WrongValueError(ValueError):
    """A value is not what its message says it should be."""


@dataclass(frozen=True)
class Setting:
    """One setting: the option ``--NAME``, the key ``NAME``.

    Attributes
    ----------
    name : str
    parse : callable
        From text or a TOML value; raises WrongValueError with what it should be.
    default : object
    help : str
    metavar : str
    """

    name: str
    parse: Callable[[Any], Any]
    default: Any
    help: str
    metavar: str = ""

    @property
    def flag(self) -> bool:
        """Whether it is ``--NAME`` and ``--no-NAME`` without a value."""
        return self.parse is as_bool


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


def one_of(*choices: str) -> Callable[[Any], str]:
    """Accept one of some words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise WrongValueError(" or ".join(choices))
        return str(value)

    return parse


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


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Accept a whole number within ``[low, high]``."""

    def parse(value: Any) -> int:
        what = f"a whole number from {low:,} to {high:,}"
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise WrongValueError(what)
        text = str(value).strip()
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
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


def as_name(value: Any) -> str:
    """Accept a name of letters, digits, ``-`` and ``_``."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w-]{0,63}", value, re.ASCII):
        raise WrongValueError("a name of letters, digits, - and _")
    return value


_POSITIVE: Final = number(0, 1e9, "a number above 0")
# Zero is a floor that lets everything pass, so it must be expressible.
_FLOOR: Final = number(-1e-300, 10, "a share of the normal mean, such as 0.05 or 5%")

SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            "execution",
            as_text,
            None,
            "what an execution is: process | thread | marker | "
            "events:BEGIN,END[,key=FIELD][,label=FIELD] | windows:FILE.csv "
            "(default: what the recording says)",
            "SPEC",
        ),
        Setting(
            "reader",
            one_of("auto", "native", "babeltrace2"),
            "auto",
            "how traces are read: auto, native or babeltrace2",
            "NAME",
        ),
        Setting(
            "interrupts",
            as_bool,
            True,
            "show interrupt work that stole the cpu as IRQ and SOFTIRQ, not as running",
        ),
        Setting("rule", one_of("gate", "paper"), "gate", "what decides: gate or paper", "NAME"),
        Setting(
            "alpha",
            number(0, 0.5, "a level above 0 and at most 0.5"),
            0.01,
            "false-alarm level of the gate, over all states together",
            "LEVEL",
        ),
        Setting(
            "floor",
            _FLOOR,
            0.05,
            "smallest increase that counts, as a share of the normal mean duration",
            "SHARE",
        ),
        Setting("t1", _POSITIVE, 1.5, "paper's average rule: mean + T1 * std", "T1"),
        Setting(
            "t2",
            auto_or(_POSITIVE),
            None,
            "paper's probability rule: ratio of the shares above the normal mean, or auto",
            "T2",
        ),
        Setting(
            "y-reference",
            one_of("a1", "a2"),
            "a1",
            "mean that sample executions are counted above: a1 (normal) or a2 (sample)",
            "NAME",
        ),
        Setting("outlier-k", _POSITIVE, 1.5, "paper's outliers: above mean + K * std", "K"),
        Setting(
            "outlier-level",
            number(0, 0.5, "a level above 0 and at most 0.5"),
            0.05,
            "share of false outliers among the executions called anomalous",
            "LEVEL",
        ),
        Setting(
            "permutations",
            whole(99, 1_000_000),
            9999,
            "permutations of the gate, where not all can be enumerated",
            "N",
        ),
        Setting(
            "cluster-method",
            one_of("optics", "raw", "silcut", "linkage"),
            "optics",
            "how types of executions are found: optics, raw (on plain counts, as the paper), "
            "silcut or linkage",
            "NAME",
        ),
        Setting(
            "msa",
            one_of("add", "joint"),
            "add",
            "how an anomalous execution is aligned with its normal group: add (to the group, "
            "aligned once) or joint (all together, as the paper)",
            "NAME",
        ),
        Setting(
            "aligner",
            one_of("posteriors", "muscle"),
            "posteriors",
            "how paths are aligned: posteriors (pair-HMM with consistency; muscle where there "
            "is too much) or muscle (as the paper)",
            "NAME",
        ),
        Setting(
            "recorder",
            one_of("auto", "lttng", "ftrace"),
            "auto",
            "what records: lttng, ftrace, or auto for the first of them that can",
            "NAME",
        ),
        Setting(
            "profile",
            as_name,
            "minimal",
            "what is recorded: minimal, syscalls, network or full",
            "NAME",
        ),
        Setting(
            "buffer-size",
            as_size,
            0,
            "room for events per cpu, such as 8M; 0 for the recorder's choice",
            "SIZE",
        ),
        Setting(
            "trace-format",
            one_of("ctf-1.8", "ctf-2"),
            "ctf-1.8",
            "format of the trace: ctf-1.8 or ctf-2",
            "FORMAT",
        ),
        Setting("quiet", as_bool, False, "no warnings, no progress, no hints on stderr"),
    )
}

READING: Final = ("execution", "reader", "interrupts")
RECORDING: Final = ("recorder", "profile", "buffer-size", "trace-format")
COMPARING: Final = tuple(n for n in SETTINGS if n not in {*READING, *RECORDING, "quiet"})


@dataclass(frozen=True)
class Settings:
    """Effective values, and the origin of each.

    Attributes
    ----------
    values, origins : mapping of str
        By the settings' names.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def lines(self) -> list[str]:
        """Return one line per setting, as TOML with the origin as a comment."""
        shown = {
            name: "auto" if name == "t2" and value is None else value
            for name, value in self.values.items()
        }
        texts = {
            name: f"{name} = {json.dumps(value)}" if value is not None else f"# {name} is not set"
            for name, value in shown.items()
        }
        width = max(map(len, texts.values()))
        return [f"{text:<{width}}  # {self.origins[name]}" for name, text in texts.items()]


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
    file, section = (config, _section(config, asked=True)) if config else _nearest(start)
    for key, value in (section or {}).items():
        name = key.replace("_", "-")
        if name not in SETTINGS:
            import difflib  # noqa: PLC0415 - start-up time, and rarely needed

            near = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.4)
            known = near[0] if near else ", ".join(SETTINGS)
            raise UsageError(f"{file}: unknown setting {key}", f"did you mean {known}?")
        if origins[name] != "default":
            raise UsageError(f"{file}: {name} is set twice", "keep one of - and _ in its name")
        try:
            values[name] = SETTINGS[name].parse(value)
        except WrongValueError as error:
            raise UsageError(
                f"{file}: {key} = {json.dumps(value, default=str)} is not {error}", "correct it"
            ) from None
        origins[name] = str(file)
    for name, value in given.items():
        values[name] = value
        origins[name] = "command line"
    return Settings(values, origins)


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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}", "correct it") from None
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
