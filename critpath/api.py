"""The Python API: recordings to sets of paths, two sets to a comparison.

`critpath` itself offers what is here; every other module may change between any two
versions.  Settings mean what they mean on the command line, and are checked by its rules.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
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
    get_args,
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
from critpath.documents.look import (
    LookDocument,
    LookProcess,
    LookRow,
    LookThread,
    SortKey,
    flatten_rows,
)
from critpath.errors import CritpathError, InconclusiveError, UnreadableError, UsageError
from critpath.model import CompareSettings, PathSet
from critpath.model.paths import WRITERS
from critpath.model.table import Column, Records, column_of, html_table, prose
from critpath.progress import Stage
from critpath.stores import open_place
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    import pyarrow as pa

    from critpath import model
    from critpath.documents import AbDocument, Document, ExplorationDocument
    from critpath.documents.exploration import ConditionEntry
    from critpath.documents.requests import RequestsDocument, ServiceEntry
    from critpath.model.requests import Sketches


def _save(paths: PathSet, file: Path) -> None:
    from critpath.store import save_paths  # noqa: PLC0415 - pyarrow

    save_paths(paths, file)


WRITERS[:] = [_save]
Source = str | os.PathLike[str]
Progress = Callable[[str], None]
Entry = TypeVar("Entry")
LookEntry = TypeVar("LookEntry", bound=LookRow)

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


def look(
    source: Source,
    *,
    sort: SortKey = "cpu",
    top: int | None = None,
    reader: str = "auto",
    max_memory: int | str = 0,
    progress: Progress | None = None,
) -> Look:
    """Look at what is in a recording or a trace, whatever a request or run of it is.

    Parameters
    ----------
    source : str or path
    sort : str
        What comes first: cpu, wait, worst, blocked, wakes or migrations.
    top : int or None
        Threads and processes to tell of; None for all.
    reader, max_memory
        As `extract`.
    progress : callable or None
        Called with a line for each step.

    Raises
    ------
    UnreadableError
        If it cannot be read.
    UsageError
        If an argument is wrong.
    """
    from critpath import glance  # noqa: PLC0415 - the stages

    if sort not in get_args(SortKey) or not (top is None or _is_count(top)):
        raise UsageError(
            f"sort={sort!r:.40}, top={top!r:.40}: no key, or no count above 0",
            f"choose sort of {', '.join(get_args(SortKey))}",
        )
    path = _path(source)
    if not path.exists():
        raise UnreadableError(f"{path}: no such file or directory", "check the path")
    return Look(
        glance.look(
            path,
            sort=sort,
            most=top or 0,
            reader=_setting("reader", reader),
            max_memory=_setting("max-memory", max_memory),
            begin=lambda: Stage(progress, f"reading {path}"),
        )
    )


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


def explore(
    sources: PathSet | Source | Iterable[Source],
    sample: PathSet | Source | Iterable[Source] | None = None,
    *,
    given: Sequence[str] = (),
    what: str | None = None,
    depth: int = 1,
    execution: str | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """Tell what some executions have in common: the slowest tenth, unless others are asked for.

    Parameters
    ----------
    sources : PathSet, or sources
        Where executions are looked for; with a ``sample``, the normal set.
    sample : PathSet, or sources, optional
        Of two sets, what is compared with the normal one.
    given : sequence of str
        Conditions: look only at executions that meet all.
    what : str or None
        The condition that selects some of them; None for ``latency >= p90``.
    depth : int
        2 for any two of the best conditions together, too.
    execution, progress
        As `compare`.

    Raises
    ------
    UnreadableError, UsageError
        As `extract`; also if a condition is none.
    """
    from critpath.explore import explore as ask  # noqa: PLC0415 - the stages
    from critpath.explore import facts_of  # noqa: PLC0415 - as above
    from critpath.model import joining  # noqa: PLC0415 - as above
    from critpath.report.document import exploration_document  # noqa: PLC0415 - start-up time

    if isinstance(given, str) or depth not in {1, 2}:
        raise UsageError(
            f"given={given!r:.60}, depth={depth!r:.20} cannot be asked",
            "give conditions in a list, and depth=1 or depth=2",
        )
    chosen = CompareSettings()
    of = [one for one in (sources, sample) if one is not None]
    sets = [_extracted(one, execution, chosen, progress) for one in of]
    paths = joining.join_sets(sets)
    facts = facts_of(paths, normal=None if sample is None else len(sets[0].sources))
    found = ask(paths, given=list(given), what=what, depth=depth, facts=facts)
    return Exploration(exploration_document(found, paths.specification), found, paths)


def requests(
    sources: Source | Iterable[Source],
    *,
    execution: str | None = None,
    reader: str = "auto",
    max_memory: int | str = 0,
    progress: Progress | None = None,
) -> Services:
    """Find the requests of servers, and what was done for each of them.

    Parameters
    ----------
    sources : str, path, or iterable of them
        Recordings with sockets (``record(..., profile="requests")``).
    execution : str or None
        ``requests:`` and which of them; None for all.
    reader, max_memory, progress
        As `extract`.

    Raises
    ------
    UnreadableError, UsageError
        As `extract`; also of a recording without sockets.
    """
    from critpath import __version__, flow, model  # noqa: PLC0415 - the stages
    from critpath.requests import sum_services  # noqa: PLC0415 - as above

    reading = model.ExtractSettings(
        _setting("execution", execution) or "requests",
        _setting("reader", reader),
        max_memory=_setting("max-memory", max_memory),
    )
    sketches = flow.read_sketches(_paths(sources), reading, progress)
    return Services(sum_services(sketches, __version__), sketches)


def query(
    sources: Source | Iterable[Source],
    sql: str,
    *,
    execution: str | None = None,
    reader: str = "auto",
    max_memory: int | str = 0,
    progress: Progress | None = None,
) -> pa.Table:
    """Ask in SQL; ``critpath query --tables`` shows what can be asked.

    Parameters
    ----------
    sources, execution, reader, max_memory, progress
        As `extract`.
    sql : str
        A query of DuckDB, which cannot reach anything but these tables.

    Returns
    -------
    pyarrow.Table
        It has no rows if a statement has none.

    Raises
    ------
    UnreadableError, UsageError
        As `extract`; also without DuckDB, or if it refuses the query.
    """
    from critpath.commands import Database  # noqa: PLC0415 - start-up time
    from critpath.model import ExtractSettings  # noqa: PLC0415 - the stages

    if not isinstance(sql, str) or not sql.strip():
        raise UsageError(f"{_named(sql)} is no query", 'give SQL: "select * from facts limit 5"')
    places = _paths(sources)
    reading = ExtractSettings(
        _setting("execution", execution),
        _setting("reader", reader),
        max_memory=_setting("max-memory", max_memory),
    )
    paths = None
    if not Database.is_of_events(sql):
        paths = extract(
            places,
            execution=execution,
            reader=reader,
            max_memory=max_memory,
            progress=progress,
        )
    found = Database.of(paths, places, sql, reading, progress).ask(sql)
    if found is None:
        raise UsageError("the statement has no rows", "give a query: select ... from ...")
    return found


def view(
    trace: Source,
    path: Source,
    *,
    around: str | None = None,
    begin: int | None = None,
    end: int | None = None,
    tid: int | None = None,
    execution: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a page with a window of a recording: threads and cpus over time.

    Parameters
    ----------
    trace : str or path
        A recording, or what another tool recorded.
    path : str or path
        Of the page.
    around : str or None
        An execution's id: its window and a tenth more.
    begin, end : int or None
        The window (ns of the trace's clock); None for the recording's begin and end.
    tid : int or None
        Light this thread's critical path.
    execution : str or None
        What an execution is.
    progress : callable or None
        Called with a line for each step.

    Raises
    ------
    UnreadableError, UsageError
        As ``critpath view``.
    """
    options = {"around": around, "from": begin, "to": end, "tid": tid, "execution": execution}
    _run_verb("view", options, [str(_path(trace)), "-o", str(_path(path))], progress)


def record(
    command: Sequence[str],
    output: Source,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Record a command, or with ``all=True`` and no command the whole machine.

    The recorder is a process of its own: ``critpath record``.

    Parameters
    ----------
    command : sequence of str
        The command and its arguments; empty for the machine.
    output : str or path
        Directory of the recording, which is made.
    progress : callable or None
        Called with each line that the recorder prints.
    **options
        Those of the command line, with ``_`` for ``-``: ``duration=60``, ``profile="requests"``,
        ``all=True``.

    Returns
    -------
    Path
        The recording's directory.

    Raises
    ------
    CritpathError
        As ``critpath record``: if this user may not record, for instance.
    """
    place = _path(output)
    words = ["-o", str(place), *(["--", *_words(command)] if command else [])]
    _run_verb("record", options, words, progress)
    return place


def ab(
    a: Sequence[str],
    b: Sequence[str],
    *,
    progress: Progress | None = None,
    **options: Any,
) -> AbAnswer:
    """Run two commands in random blocks until it is clear whether the second is slower.

    They run as children of a process of its own: ``critpath ab``.

    Parameters
    ----------
    a, b : sequence of str
        What is known to be good, and what is judged: commands and their arguments.
    progress : callable or None
        Called with each line that ``critpath ab`` prints.
    **options
        Those of the command line, with ``_`` for ``-``: ``until="5%"``, ``time="2m"``.

    Raises
    ------
    CritpathError
        As ``critpath ab``: if a command fails, for instance.
    """
    from critpath.documents import AbDocument  # noqa: PLC0415 - start-up time
    from critpath.report.document import load_document  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="critpath-ab-") as made:
        answer = Path(made) / "ab.json"
        words = ["--json", str(answer), "--", *_words(a), "--", *_words(b)]
        _run_verb("ab", options, words, progress, answer)
        document = load_document(answer.read_bytes())
    if not isinstance(document, AbDocument):
        raise TypeError("critpath ab wrote no answer of its own")
    return AbAnswer(document)


def _words(command: object) -> list[str]:
    if isinstance(command, str | bytes) or not isinstance(command, Sequence) or not command:
        raise UsageError(f"{_named(command)} is no command", 'give a list: ["sleep", "1"]')
    return [str(word) for word in command]


def _run_verb(
    verb: str,
    options: Mapping[str, Any],
    words: Sequence[str],
    progress: Progress | None,
    answer: Path | None = None,
) -> None:
    """Run a verb of the command line in a process of its own; raise the error that it prints."""
    given = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is True:
                given.append(option)
            elif one is not None and one is not False:
                given += [option, str(one)]
    line = [sys.executable, "-P", "-m", "critpath", verb, *given, *words]
    said: list[str] = []
    with subprocess.Popen(  # noqa: S603 - ourselves
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        for text in child.stderr or ():
            said = [*said[-1:], text.rstrip()]
            if progress is not None:
                progress(text.rstrip())
    if child.returncode and not (answer is not None and answer.exists()):
        what, do = [*said, "", ""][:2]
        kinds = {kind.exit_code: kind for kind in (UsageError, InconclusiveError, UnreadableError)}
        raise kinds.get(child.returncode, CritpathError)(
            what.removeprefix("critpath: ") or f"critpath {verb} ended with {child.returncode}",
            do.strip() or f"try it in a terminal: critpath {verb}",
        )


# ---------------------------------------------------------------------------- the answer


class Answer:
    """What a verb answers, as its JSON has it."""

    def __init__(self, document: Document) -> None:
        self._answer = document

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as its JSON has it, in dicts and lists."""
        from critpath.report.document import to_plain  # noqa: PLC0415 - start-up time

        return cast("dict[str, Any]", to_plain(self._answer))

    @overload
    def to_json(self, path: None = None) -> str: ...
    @overload
    def to_json(self, path: Source) -> None: ...
    def to_json(self, path: Source | None = None) -> str | None:
        """Return the answer as JSON, or write it."""
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        return _deliver(to_json(self._answer), path)

    def _sentences(self) -> Sequence[str]:
        return ()

    def __repr__(self) -> str:
        return "\n".join(map(safe_text, self._sentences()))

    def _repr_html_(self) -> str:
        return "".join(f"<p>{prose(line)}</p>" for line in self._sentences())


class Exploration(Answer):
    """What executions of a selection have in common; `explore` makes it."""

    def __init__(
        self, document: ExplorationDocument, found: model.Exploration, paths: PathSet
    ) -> None:
        super().__init__(document)
        self._document, self._found, self._paths = document, found, paths

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answers in words: a headline and figures for each question."""
        return tuple(line for one in self._document.questions for line in one.sentences)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know about the input."""
        return tuple(self._document.notes)

    @cached_property
    def conditions(self) -> Records[ConditionEntry]:
        """Every condition that was looked at, those that tell most first."""
        entries = [one for question in self._document.questions for one in question.conditions]

        def columns() -> dict[str, Column]:
            plain = dict.fromkeys(("condition", "words"), str)
            kinds = {**plain, "known": bool, "difference": float, "ratio": float, "z": float}
            found = {
                name: column_of([getattr(one, name) for one in entries], kind)
                for name, kind in kinds.items()
            }
            for name in ("having", "without"):
                shares = [getattr(one, name) for one in entries]
                found[f"{name}_selected"] = column_of([one.count for one in shares], int)
                found[f"{name}_executions"] = column_of([one.of for one in shares], int)
            found["p"] = column_of([one.p for one in entries], float | None)
            return found

        line = ("difference", "having_selected", "having_executions", "p", "words")
        return Records("Conditions", entries, columns, line)

    def _sentences(self) -> Sequence[str]:
        return self.sentences

    @overload
    def to_html(self, path: None = None) -> str: ...
    @overload
    def to_html(self, path: Source) -> None: ...
    def to_html(self, path: Source | None = None) -> str | None:
        """Render a page to explore further, which needs no network."""
        from critpath.report.explore import render_page  # noqa: PLC0415 - start-up time

        sources = [str(source) for source in self._paths.sources]
        return _deliver(render_page(self._found, self._paths, command=sources), path)


class Services(Answer):
    """The requests of servers, by service; `requests` makes it."""

    def __init__(self, document: RequestsDocument, sketches: Sequence[Sketches]) -> None:
        super().__init__(document)
        self._document, self._sketches = document, sketches

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know about the input."""
        return tuple(self._document.notes)

    @cached_property
    def services(self) -> Records[ServiceEntry]:
        """A record per service: how many requests, what each asks of whom, how that is known."""
        entries = self._document.services

        def columns() -> dict[str, Column]:
            return {
                "service": column_of([one.service for one in entries], str),
                "requests": column_of([one.requests for one in entries], int),
                "calls": column_of([sum(one.calls.values()) for one in entries], float),
                "callers": column_of([len(one.callers) for one in entries], int),
                "sure": column_of([one.sure for one in entries], float | None),
            }

        return Records("Services", entries, columns, ("requests", "calls", "sure", "service"))

    @cached_property
    def tables(self) -> Mapping[str, pa.Table]:
        """All that is known: requests, subrequests, slices, links, passed, endpoints."""
        from critpath.report.exports import sketch_tables  # noqa: PLC0415 - start-up time

        return sketch_tables(self._sketches)

    def __repr__(self) -> str:
        return repr(self.services)

    def _repr_html_(self) -> str:
        return self.services._repr_html_()


class AbAnswer(Answer):
    """Whether the second of two commands is slower; `ab` makes it."""

    def __init__(self, document: AbDocument) -> None:
        super().__init__(document)
        self._document = document

    @property
    def verdict(self) -> str:
        """The verdict, as the JSON has it."""
        return self._document.verdict

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words, the verdict first."""
        return tuple(self._document.sentences)

    @property
    def ratio(self) -> float | None:
        """How many times as long the second takes; None where nothing says it."""
        return self._document.ratio

    @property
    def interval(self) -> tuple[float | None, ...] | None:
        """Interval of `ratio`; None for an end that nothing bounds."""
        return None if self._document.interval is None else tuple(self._document.interval)

    def _sentences(self) -> Sequence[str]:
        return self.sentences


class Look(Answer):
    """What is in a trace: `document` has all of it, `threads` and `processes` are tables."""

    def __init__(self, document: LookDocument) -> None:
        super().__init__(document)
        self.document = document

    @property
    def threads(self) -> Records[LookThread]:
        """What each thread did, one life of a thread id each."""
        return _look_records("Threads", self.document.threads)

    @property
    def processes(self) -> Records[LookProcess]:
        """What the threads of each process did together."""
        return _look_records("Processes", self.document.processes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know."""
        return tuple(self.document.warnings)

    def _sentences(self) -> Sequence[str]:
        from critpath.text import look as words  # noqa: PLC0415 - start-up time

        of = self.document
        lines = [words.headline(of), *words.losses(of), *words.load(of), words.worst_wait(of)]
        return [line for line in lines if line]


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
        from critpath.text.page import noun_of  # noqa: PLC0415 - start-up time
        from critpath.text.verdict import headline  # noqa: PLC0415 - as above

        sets = self._document.sets
        normal, sample = sets.normal.executions, sets.sample.executions
        flagged = sum(state.flagged for state in self.states if state.state != "total")
        counts = (
            f"{plural(sample, noun_of(self._document, 1))} after, {normal:,} before",
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
        from critpath.text.page import noun_of  # noqa: PLC0415 - as above

        document = self._document
        causes = [cause_line(document, cause) for cause in document.causes if not cause.minor]
        if len(causes) < len(self.causes):
            causes.append(plural(len(self.causes) - len(causes), "smaller cause"))
        return (
            f"<p><strong>{prose(verdict.headline(document))}</strong></p>"
            f"<p>{prose(describe_why(document))}</p>"
            + _html_list("Causes", causes)
            + _html_list("Warnings", self.warnings)
            + html_table(f"States, mean per {noun_of(document, 1)}", self._readable_states())
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
        return open_place(given if isinstance(given, Path) else text)
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


# What a line of a table says of an entry in a terminal; times are in ns.
_LINES: Final[Mapping[type, tuple[str, ...]]] = {
    CauseEntry: ("contribution", "share", "executions", "sentence"),
    FindingEntry: ("contribution", "state", "role", "kind", "execution"),
    StateEntry: ("state", "normal_mean", "sample_mean", "effect", "p_value", "flagged"),
    ExecutionEntry: ("set", "duration_ns", "excess", "label", "execution"),
}


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


def _look_records(title: str, rows: Sequence[LookEntry]) -> Records[LookEntry]:
    """Return rows of a look as records, and as a table of what its CSV has."""

    def columns() -> dict[str, Column]:
        cells = list(flatten_rows(rows))
        found: dict[str, Column] = {}
        for name in cells[0] if cells else ():
            values = [row[name] for row in cells]
            some = next((value for value in values if value is not None), 0)
            kind = bool if isinstance(some, bool) else type(some)
            found[name] = column_of(values, kind | None if None in values else kind)
        return found

    line = ("comm", "cpu_ns", "wait_ns", "wait_p99_ns", "worst_rival")
    return Records(title, rows, columns, line)


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

    return Records(title, entries, columns, _LINES.get(kind, ()))
