"""The Python API: recordings to sets of paths, two sets to a comparison.

`critpath` itself offers what is here; every other module may change between any two
versions.  Settings mean what they mean on the command line, and are checked by its rules.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
    overload,
)

from critpath.documents import (
    Because,
    CalibrationDocument,
    CauseEntry,
    CauseFacts,
    ComparisonDocument,
    ExecutionEntry,
    FindingEntry,
    StateEntry,
)
from critpath.errors import UnreadableError, UsageError
from critpath.model import CompareSettings, PathSet
from critpath.model.paths import WRITERS
from critpath.model.table import Column, Records, column_of, html_table, prose
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath import model


def _save(paths: PathSet, file: Path) -> None:
    from critpath.store import save_paths  # noqa: PLC0415 - pyarrow

    save_paths(paths, file)


WRITERS[:] = [_save]
Source = str | os.PathLike[str]
Progress = Callable[[str], None]
Entry = TypeVar("Entry")

_SOURCES: Final = "a recording, a directory of them, a CTF trace, saved paths or a baseline"


# --------------------------------------------------------------------------- functions


def extract(
    sources: Source | Iterable[Source],
    *,
    execution: str | None = None,
    reader: str = "auto",
    interrupts: bool = True,
    max_memory: int | str = 0,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> PathSet:
    """Extract the critical path of every execution of some recordings.

    Parameters
    ----------
    sources : str, path, or iterable of them
        Recordings, directories of recordings, CTF trace directories, files and datasets of
        saved paths, or baselines.
    execution : str or None
        What an execution is, as ``--execution`` of the command line; None for what the
        recordings say.
    reader : str
        ``auto``, ``native`` or ``babeltrace2``.
    interrupts : bool
        Take interrupt work out of running time.
    max_memory : int or str
        Bytes that reading may take, or a size such as ``"512M"``; 0 for no limit.
    jobs : int or None
        Processors that reading may use; None for as many as pay.  More than one starts
        processes, so a script needs ``if __name__ == "__main__":``.
    progress : callable or None
        Called with a line for each step.

    Returns
    -------
    PathSet
        Segments of large files and datasets stay there until they are needed.

    Raises
    ------
    UnreadableError
        If a source cannot be read.
    UsageError
        If an argument is wrong, or the recordings have no such executions.
    """
    from critpath import flow  # noqa: PLC0415 - the stages

    return flow.extract(
        _paths(sources),
        specification=_setting("execution", execution),
        reader=_setting("reader", reader),
        interrupts=_setting("interrupts", interrupts),
        max_memory=_setting("max-memory", max_memory),
        jobs=_setting("jobs", jobs),
        progress=progress,
    )


def compare(
    normal: PathSet | Source | Iterable[Source],
    sample: PathSet | Source | Iterable[Source],
    settings: CompareSettings | None = None,
    *,
    execution: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """Tell whether a sample is slower than what is normal, and why.

    Parameters
    ----------
    normal, sample : PathSet, or sources
        What is not yet a `PathSet` is extracted.
    settings : CompareSettings, optional
        The defaults if omitted.
    execution : str or None
        What an execution is, where sources are extracted.
    progress : callable or None
        Called with a line for each step.
    **options
        Fields of `CompareSettings` that replace those of ``settings``: ``alpha=0.001``.

    Raises
    ------
    InconclusiveError
        If a set has no execution.
    UnreadableError, UsageError
        As `extract`; also if a setting is unknown or has a wrong value.

    Notes
    -----
    After Janecek, Ezzati-Jivan and Hamou-Lhadj, "Performance Anomaly Detection through
    Sequence Alignment of System-Level Traces" (ICPC 2022); the verdict comes from a
    permutation test.
    """
    from critpath import flow  # noqa: PLC0415 - the stages

    chosen = _settings(settings, options)
    sets = (
        _extracted(normal, execution, chosen, progress),
        _extracted(sample, execution, chosen, progress),
    )
    return Comparison._of(flow.compare(*sets, chosen, progress=progress))  # noqa: SLF001 - ours


def calibrate(
    normal: PathSet | Source | Iterable[Source],
    settings: CompareSettings | None = None,
    *,
    splits: int = 200,
    sizes: Sequence[int] = (10, 30, 100),
    execution: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> CalibrationDocument:
    """Find the false-alarm rate, and the smallest effect that a comparison could show.

    Parameters
    ----------
    normal : PathSet, or sources
        Executions of a healthy program, of one or more recordings.
    settings : CompareSettings, optional
        What `compare` is going to be called with.
    splits : int
        Random splits into a normal and a sample set, for each size.
    sizes : sequence of int
        Executions in the sample.
    execution, progress, **options
        As `compare`.

    Raises
    ------
    InconclusiveError
        If there are too few executions for the smallest size.
    UnreadableError, UsageError
        As `compare`.
    """
    from critpath import detect  # noqa: PLC0415 - the stages

    if not (_is_count(splits) and sizes and all(map(_is_count, sizes))):
        raise UsageError(
            f"splits={splits!r:.60}, sizes={sizes!r:.60} are no counts",
            "give whole numbers above 0, such as splits=200, sizes=(10, 30)",
        )
    chosen = _settings(settings, options)
    paths = _extracted(normal, execution, chosen, progress)
    return detect.calibrate(paths, chosen, splits=splits, sizes=sizes, progress=progress)


def load(file: Source) -> PathSet:
    """Load saved paths."""
    from critpath import (  # noqa: PLC0415 - the stages
        flow,
        store,
    )

    path = _path(file)
    if not path.exists():
        raise UnreadableError(f"{path}: no such file or directory", "check the path")
    if not store.find_format(path):
        raise UnreadableError(
            f"{path} holds no saved paths",
            "extract() reads recordings, and load_comparison() what Comparison.save wrote",
        )
    return flow.load_saved_paths(path)


def load_comparison(file: Source) -> Comparison:
    """Load a saved comparison.

    Parameters
    ----------
    file : str or path
        What `Comparison.save` or ``critpath compare --json`` wrote.

    Raises
    ------
    UnreadableError
        If there is no comparison in it, or it is damaged.
    """
    from critpath.commands import load_comparison as load_document  # noqa: PLC0415 - only for saved ones

    name = str(_path(file))
    return Comparison(load_document("./-" if name == "-" else name))


# ---------------------------------------------------------------------------- the answer


class Comparison:
    """The answer: is the sample slower, and why.

    `compare` and `load_comparison` make it.  It shows itself in a notebook, and is as short
    as an answer can be elsewhere.
    """

    def __init__(
        self, document: ComparisonDocument, analysis: model.Analysis | None = None
    ) -> None:
        self._document = document
        self._analysis = analysis

    @classmethod
    def _of(cls, analysis: model.Analysis) -> Comparison:
        from critpath.report.document import comparison_document  # noqa: PLC0415 - start-up time

        return cls(comparison_document(analysis), analysis)

    @property
    def verdict(self) -> str:
        """``ok``, ``anomaly``, ``by_machine`` or ``inconclusive``."""
        return self._document.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this verdict: a sentence each."""
        return tuple(self._document.reasons)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know about the input: losses, differing kernels..."""
        return tuple(self._document.warnings)

    @cached_property
    def settings(self) -> CompareSettings:
        """Everything that could have changed the outcome."""
        known = {field.name for field in fields(CompareSettings)}
        found = {k: v for k, v in self._document.settings.items() if k in known}
        if "level" in found:
            found["level"] = tuple((pattern, level) for pattern, level in found["level"])
        return CompareSettings(**found)

    @cached_property
    def causes(self) -> Records[CauseEntry]:
        """Why it is slower, the largest cause first."""
        return _records("Causes", CauseEntry, self._document.causes)

    @cached_property
    def findings(self) -> Records[FindingEntry]:
        """Every difference of every execution that was examined."""
        return _records("Findings", FindingEntry, self._document.findings)

    @cached_property
    def states(self) -> Records[StateEntry]:
        """The test of every state, and last of the total."""
        return _records("States", StateEntry, self._document.states)

    @cached_property
    def executions(self) -> Records[ExecutionEntry]:
        """The executions of both sets: type, verdict, excess."""
        return _records("Executions", ExecutionEntry, self._document.executions)

    @property
    def normal(self) -> PathSet:
        """The normal set; not of a comparison that was loaded."""
        return self.analysis.normal

    @property
    def sample(self) -> PathSet:
        """The sample set; not of a comparison that was loaded."""
        return self.analysis.sample

    @property
    def analysis(self) -> model.Analysis:
        """Every stage's outcome, for experiments: its parts may change between versions.

        Raises
        ------
        UsageError
            If the comparison was loaded: a saved one has the answer, and no paths.
        """
        if self._analysis is None:
            raise UsageError(
                "a saved comparison has no paths", "compare again, or load() paths that were saved"
            )
        return self._analysis

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as its JSON has it, in dicts and lists."""
        from critpath.report.document import to_plain  # noqa: PLC0415 - start-up time

        return cast("dict[str, Any]", to_plain(self._document))

    @overload
    def to_html(self, path: None = None) -> str: ...
    @overload
    def to_html(self, path: Source) -> None: ...
    def to_html(self, path: Source | None = None) -> str | None:
        """Render the report as one HTML page that needs no network."""
        from critpath.report.html import render_html  # noqa: PLC0415 - start-up time

        return _deliver(render_html(self._document), path)

    @overload
    def to_json(self, path: None = None) -> str: ...
    @overload
    def to_json(self, path: Source) -> None: ...
    def to_json(self, path: Source | None = None) -> str | None:
        """Render as JSON of the format ``critpath/comparison/1``; see `to_html`."""
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        return _deliver(to_json(self._document), path)

    @overload
    def to_markdown(self, path: None = None) -> str: ...
    @overload
    def to_markdown(self, path: Source) -> None: ...
    def to_markdown(self, path: Source | None = None) -> str | None:
        """Render as GitHub-flavoured Markdown, at most 60 kB; see `to_html`."""
        from critpath.report.ci import render_markdown  # noqa: PLC0415 - start-up time

        return _deliver(render_markdown(self._document), path)

    def save(self, path: Source) -> None:
        """Save as JSON, for `load_comparison` and ``critpath report``."""
        self.to_json(path)

    def __repr__(self) -> str:
        from critpath.text.verdict import headline  # noqa: PLC0415 - start-up time

        sets = self._document.sets
        normal, sample = sets.normal.executions, sets.sample.executions
        flagged = sum(state.flagged for state in self.states if state.state != "total")
        counts = (
            f"{plural(sample, 'execution')} against {normal:,}",
            plural(len(self.causes), "cause"),
            plural(len(self.findings), "finding"),
            f"{flagged} of {plural(max(len(self.states) - 1, 0), 'state')} slower",
            *([plural(len(self.warnings), "warning")] if self.warnings else []),
        )
        return f"{safe_text(headline(self._document))}\n({', '.join(counts)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict in a sentence, why, the causes, the states."""
        from critpath.report.text import cause_line  # noqa: PLC0415 - start-up time
        from critpath.text import verdict  # noqa: PLC0415 - as above
        from critpath.text.answer import describe_why  # noqa: PLC0415 - as above

        document = self._document
        causes = [cause_line(document, cause) for cause in document.causes if not cause.minor]
        if len(causes) < len(self.causes):
            causes.append(plural(len(self.causes) - len(causes), "smaller cause"))
        return (
            f"<p><strong>{prose(verdict.headline(document))}</strong></p>"
            f"<p>{prose(describe_why(document))}</p>"
            + _html_list("Causes", causes)
            + _html_list("Warnings", self.warnings)
            + html_table("States, mean per execution", self._readable_states())
        )

    def _readable_states(self) -> dict[str, Column]:
        """Return the states as people read them: the total, then what is flagged, then most."""
        states = sorted(
            self.states, key=lambda s: (s.state != "total", not s.flagged, -abs(s.effect or 0.0))
        )
        return {
            "state": Column([s.state for s in states]),
            "normal": Column([_ns(s.normal_mean) for s in states]),
            "sample": Column([_ns(s.sample_mean) for s in states]),
            "effect": Column([_ns(s.effect, sign=True) for s in states]),
            "95 % interval": Column(
                [
                    f"{_ns(s.effect_low, sign=True)} to {_ns(s.effect_high, sign=True)}"
                    for s in states
                ]
            ),
            "p": column_of([s.p_value for s in states], float | None),
            "flagged": Column(["yes" if s.flagged else "" for s in states]),
        }


def _html_list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f"<p>{title}</p><ul>{items}</ul>" if lines else ""


def _ns(value: float | None, *, sign: bool = False) -> str:
    return "-" if value is None else format_ns(value, sign=sign)


# ------------------------------------------------------------------------- what is given


def _extracted(
    given: PathSet | Source | Iterable[Source],
    execution: str | None,
    settings: CompareSettings,
    progress: Progress | None,
) -> PathSet:
    if not isinstance(given, PathSet):
        return extract(
            given, execution=execution, interrupts=settings.interrupts, progress=progress
        )
    if execution is not None:
        raise UsageError(
            "execution says how recordings are read, and this PathSet was read before",
            "give execution to extract()",
        )
    return given


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _path(given: object) -> Path:
    if isinstance(given, str | os.PathLike) and given and isinstance(text := os.fspath(given), str):
        return Path(text)
    raise UsageError(f"{_named(given)} is no path", "give a str or a pathlib.Path")


def _paths(given: object) -> list[Path]:
    """Return the paths of sources; a single one need not be in a list."""
    if isinstance(given, PathSet):
        raise UsageError(
            "a PathSet was extracted before", "pass it to compare() or calibrate() as it is"
        )
    if isinstance(given, str | os.PathLike):
        return [_path(given)]
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise UsageError(f"{_named(given)} is no source", f"give the path of {_SOURCES}, or a list")
    paths = [_path(each) for each in given]
    if not paths:
        raise UsageError("the list of sources is empty", f"give the path of {_SOURCES}")
    return paths


def _named(given: object) -> str:
    """Return a wrong argument as an error shows it."""
    return f"{given!r:.60} ({type(given).__name__})"


def _setting(name: str, value: Any) -> Any:
    """Return the value of a setting, checked as on the command line."""
    from critpath.commands import SETTINGS, WrongValueError  # noqa: PLC0415 - as above

    setting = SETTINGS[name]
    if value == setting.default:
        return setting.default
    try:
        return setting.accept(dict(value) if name == "level" else value)
    except WrongValueError as error:
        what = f"{name.replace('-', '_')}={value!r:.60} is not {error}"
    except (TypeError, ValueError):
        what = f"{name.replace('-', '_')}={value!r:.60} is no {name}"
    raise UsageError(what, setting.help)


def _settings(settings: CompareSettings | None, options: Mapping[str, Any]) -> CompareSettings:
    """Return settings with some of them replaced, all checked."""
    from critpath.commands import SETTINGS  # noqa: PLC0415 - start-up time

    if settings is not None and not isinstance(settings, CompareSettings):
        raise UsageError(
            f"{_named(settings)} is no CompareSettings",
            "give critpath.CompareSettings(alpha=0.001), or alpha=0.001 alone",
        )
    known = [field.name for field in fields(CompareSettings)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"{name} is no setting of a comparison",
                f"did you mean {near[0]}?" if near else f"the settings are {', '.join(known)}",
            )
    given = asdict(replace(settings or CompareSettings(), **options))
    keys = {name: name.replace("_", "-") for name in known}
    checked = {n: _setting(keys[n], v) for n, v in given.items() if keys[n] in SETTINGS}
    return CompareSettings(**{**given, **checked})


def _deliver(text: str, path: Source | None) -> str | None:
    """Return a text, or write it: the file is whole or not there."""
    from critpath.files import write_text  # noqa: PLC0415 - start-up time

    if path is None:
        return text
    write_text(_path(path), text)
    return None


# What a column is called where the entry's word needs quotes in SQL.
_COLUMNS: Final = {"begin": "begin_ns", "end": "end_ns", "id": "execution", "offset": "offset_ns"}


def _plain(hint: Any) -> Any:
    return str if get_origin(hint) is Literal else hint


def _fact_columns(values: Sequence[CauseFacts | None]) -> dict[str, Column]:
    """Return a column ``facts_...`` of every fact that is no list, of `because` one for a part."""
    due = [one.because if one else None for one in values]
    parts = {
        f"facts_because_{name}": column_of([getattr(of, name, None) for of in due], hint | None)
        for name, hint in get_type_hints(Because).items()
    }
    return parts | {
        f"facts_{name}": column_of(
            [getattr(one, name, None) for one in values], _plain(hint) | None
        )
        for name, hint in get_type_hints(CauseFacts).items()
        if get_origin(hint) is not list and name != "because"
    }


def _records(title: str, kind: type[Entry], entries: Sequence[Entry]) -> Records[Entry]:
    """Return entries of a document as records, and as a table with a column per field.

    Ids in a list are counted; other lists are left to the records.
    """

    def columns() -> dict[str, Column]:
        result: dict[str, Column] = {}
        for name, hint in get_type_hints(kind).items():
            values = [getattr(entry, name) for entry in entries]
            if name == "tid":  # -1 where unknown
                found = column_of([None if tid < 0 else tid for tid in values], int | None)
            elif hint == list[str]:
                found = column_of([len(ids) for ids in values], int)
            elif get_origin(hint) is list:
                continue
            elif name == "facts":
                result |= _fact_columns(values)
                continue
            else:
                found = column_of(values, hint)
            result[_COLUMNS.get(name, name)] = found
        if kind is ExecutionEntry:
            result["duration_ns"] = Column(result["end_ns"].values - result["begin_ns"].values)
        return result

    return Records(title, entries, columns)
