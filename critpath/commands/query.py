"""``critpath query``: executions and their paths in SQL."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import FORCE, TO, flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    check_terminal,
    make_console,
    warn,
    write_output,
    write_pieces,
    write_rows,
)
from critpath.commands.queried import TABLE as EVENTS
from critpath.commands.queried import parse_query, question_of, tables_of
from critpath.commands.settings import READING, RUNNING, Settings
from critpath.commands.sources import check_inputs, extract_sources, messages_of, words_of
from critpath.errors import UsageError
from critpath.extras import require

if TYPE_CHECKING:
    import pyarrow as pa

    from critpath.model import ExtractSettings, FactTable, PathSet, Table

SETTINGS = (*READING, *RUNNING)
FORMATS: Final = ("table", "csv", "json", "parquet")
_EVENT_TYPES: Final = dict.fromkeys(("recording", "host", "name"), "VARCHAR") | {"cpu": "INTEGER"}
_MEMORY: Final = 2 << 30  # technical: bytes that a query may take without --max-memory
_MOST_ROWS: Final = 1000  # on a terminal

# What each table has; `critpath query --tables` shows it.
MEANINGS: Final = {
    EVENTS: "an event of the recording, with its fields; of events alone a query needs no runs",
    "executions": "a run or request: its id, label, begin, end and thread",
    "segments": "a segment of a critical path: when, which state, on which thread and cpu",
    "facts": "a run or request, with everything that conditions of critpath explore speak of",
    "requests": "a request: whose sub-request it is, own time, what it asked, queued; in ns",
    "subrequests": "what was asked for a request: over which endpoint, by whom, how that is known",
    "slices": "a stretch of a thread for one request, or shared by several of a loop",
    "links": "what leads from a slice to another: a message, a wake",
    "passed": "a message that went through a broker: who put it there, the request that it became",
    "endpoints": "a life of a socket: its ends, who serves, its peer",
    "slow": "of facts the slowest tenth of each label",
    "tree": "of facts what is a sub-request of what: depth, and the root's execution",
}
# Nothing of the machine can be reached from here on, and nothing of this be undone.
_LOCKS: Final = (
    "SET python_enable_replacements=false",
    "SET temp_directory=''",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)
_VIEWS: Final = (
    (
        "CREATE MACRO p(c2, c1) AS count(*) FILTER (WHERE (c2) AND (c1)) "
        "/ nullif(count(*) FILTER (WHERE (c1)), 0)"
    ),
    (
        "CREATE VIEW slow AS WITH ranked AS (SELECT label, latency, "
        "row_number() OVER (PARTITION BY label ORDER BY latency) AS place, "
        "count(*) OVER (PARTITION BY label) AS n FROM facts), "
        "bounds AS (SELECT label, latency AS bound FROM ranked "
        "WHERE place = least(n, floor(0.9 * n) + 1)) "
        "SELECT facts.* FROM facts JOIN bounds USING (label) WHERE latency >= bound"
    ),
    (
        "CREATE VIEW tree AS WITH RECURSIVE below AS ("
        "SELECT position, position AS root, 0 AS depth FROM facts WHERE parent IS NULL UNION ALL "
        "SELECT facts.position, below.root, below.depth + 1 FROM facts "
        "JOIN below ON facts.parent = below.position WHERE below.depth < 64) "
        "SELECT below.depth, below.root, facts.* FROM below JOIN facts USING (position)"
    ),
)


class Database:
    """The tables of some executions.

    Parameters
    ----------
    paths : PathSet or None
    facts : FactTable or None
    sketches : mapping of str to pyarrow.Table
        What else is known, by the names of `MEANINGS`.
    max_memory : int
        Bytes that a query may take; 0 for `_MEMORY`.

    Raises
    ------
    UsageError
        Without DuckDB.
    """

    def __init__(
        self,
        paths: PathSet | None,
        facts: FactTable | None,
        sketches: Mapping[str, pa.Table] | None = None,
        *,
        max_memory: int = 0,
    ) -> None:
        from critpath.model import Column, Rows  # noqa: PLC0415 - start-up time

        require("SQL", "query")
        import duckdb  # noqa: PLC0415 - optional, and slow

        self._errors = duckdb.Error
        self._meanings = {} if facts is None else facts.meanings_of_facts()
        self._connection = duckdb.connect(":memory:")
        made: dict[str, Table] = {}
        if paths is not None and facts is not None:
            executions = paths.executions
            made = {"executions": executions, "segments": paths, "facts": facts}
            if executions.requests is not None:
                columns = {**executions.table_columns(), **executions.requests.table_columns()}
                columns["parent_execution"] = columns.pop("parent")
                made["requests"] = Rows("", columns)
                # A label is the same in every table; what explore calls so is the service.
                columns = dict(facts.table_columns())
                columns = {**columns, "service": columns["label"]}
                made["facts"] = Rows("", {**columns, "label": Column(executions.label)})
        tables = {name: table.to_arrow() for name, table in made.items()} | dict(sketches or {})
        views = [name for name in MEANINGS if f" VIEW {name} " in " ".join(_VIEWS)]
        views = views if made else []
        self._names = [name for name in MEANINGS if name in tables or name in views]
        for name, table in tables.items():
            self._connection.register(f"{name}_arrow", table)
            self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_arrow")  # noqa: S608 - a name of ours
        for statement in _VIEWS if made else ():
            self._connection.execute(statement)
        self._connection.execute(f"SET memory_limit='{max_memory or _MEMORY}B'")
        for statement in _LOCKS:
            self._connection.execute(statement)

    @classmethod
    def of(
        cls,
        paths: PathSet | None,
        sources: Sequence[Path],
        sql: str,
        reading: ExtractSettings,
        progress: Callable[[str], None] | None = None,
    ) -> Database:
        """Return the tables that a query of some sources needs; of no query all but events.

        `paths`: None where the query is of events alone.
        """
        from critpath.explore import facts_of  # noqa: PLC0415 - numpy and the stages

        tables = dict(_events(sources, sql, reading, progress))
        if paths is None:
            return cls(None, None, tables, max_memory=reading.max_memory)
        tables.update(_sketches(paths, sources, sql, reading, progress))
        return cls(paths, facts_of(paths), tables, max_memory=reading.max_memory)

    @staticmethod
    def is_of_events(sql: str) -> bool:
        """Return whether a query is of events alone, which need no executions."""
        require("SQL", "query")
        import duckdb  # noqa: PLC0415 - optional, and slow

        return bool(sql) and tables_of(parse_query(duckdb.connect(":memory:"), sql)) == {EVENTS}

    def ask(self, sql: str) -> pa.Table | None:
        """Return the rows of a query, None of a statement that has none.

        Raises
        ------
        UsageError
            If DuckDB refuses it.
        """
        try:
            found = self._connection.sql(sql)
            return None if found is None else found.to_arrow_table()
        except self._errors as error:
            first = str(error).strip().split("\n")[0]
            do = "critpath query --tables says what can be asked"
            if first.startswith("Out of Memory"):
                do = (
                    f"ask for fewer rows, or allow more: --max-memory 8G ({_MEMORY >> 30}G without)"
                )
            raise UsageError(f"DuckDB refuses it: {first}", do) from None

    def meanings(self) -> dict[str, dict[str, str]]:
        """Return what columns of tables mean, as far as it is known."""
        return {**_column_meanings(), **dict.fromkeys(("facts", "slow", "tree"), self._meanings)}

    def columns(self) -> dict[str, list[tuple[str, str]]]:
        """Return every table's columns and their types."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name in self._names:
            rows = self._connection.execute(f"DESCRIBE {name}").fetchall()
            found[name] = [(str(row[0]), str(row[1])) for row in rows]
        return found


OPTIONS: Final = (
    option("words", "TRACE... SQL", "recordings, CTF traces, saved paths; and what to ask of "
        'them, in one word: "select label, count(*), median(latency) from facts group by label"',
        nargs="+"),
    flag("--tables", "show what tables there are and their columns; takes no SQL"),
    option("--format", None, "csv, json (an object a line) or parquet for other programs (table)",
        default="table", choices=FORMATS),
    TO,
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Answer in the format asked for and return 0."""
    *traces, sql = arguments.words if not arguments.tables else [*arguments.words, ""]
    if not traces:
        raise UsageError(
            "a recording and a query are needed",
            'critpath query RECORDING "select * from facts limit 5"; --tables shows tables',
        )
    sources = [Path(one) for one in traces]
    check_inputs(sources)
    check_outputs([arguments.output], sources, force=arguments.force)
    check_terminal(arguments.output, "parquet", binary=arguments.format == "parquet")
    require("SQL", "query")

    from critpath.model import ExtractSettings  # noqa: PLC0415 - numpy

    with Progress(quiet=settings["quiet"]) as progress:
        alone = Database.is_of_events(sql)
        paths = None if alone else extract_sources(sources, settings, progress)
        progress("asking")
        reading = ExtractSettings(
            settings["execution"], settings["reader"], max_memory=settings["max-memory"]
        )
        database = Database.of(paths, sources, sql, reading, progress)
        found = None if arguments.tables else database.ask(sql)
    if paths is not None:
        warn(messages_of(paths), quiet=settings["quiet"], words=words_of(paths))
    if arguments.tables:
        from critpath.read import EVENT_COLUMNS  # noqa: PLC0415 - numpy

        of_events = [(name, _EVENT_TYPES.get(name, "BIGINT")) for name in EVENT_COLUMNS]
        tables = {**database.columns(), EVENTS: of_events}
        rows = [(table, name, kind) for table, columns in tables.items() for name, kind in columns]
        known = database.meanings()
        for name in dict.fromkeys(row[0] for row in rows):
            of = known.get(name, {})
            mine = [(*row, of.get(row[1], "")) for row in rows if row[0] == name]
            _show(["table", "column", "type", "what it is"], mine, f"{name}: {MEANINGS[name]}")
        return 0
    if found is not None:
        _write(found, arguments)
    return 0


def _column_meanings() -> dict[str, dict[str, str]]:
    """Return what the columns of tables mean, as they are declared."""
    from critpath.model import Executions, PathSet  # noqa: PLC0415 - numpy
    from critpath.model.requests import RequestFacts  # noqa: PLC0415 - as above
    from critpath.read import EVENT_COLUMNS  # noqa: PLC0415 - as above
    from critpath.report.exports import SKETCH_TABLES  # noqa: PLC0415 - as above

    found: dict[str, dict[str, str]] = {name: of.meanings() for name, of in SKETCH_TABLES.items()}
    found["requests"] = RequestFacts.meanings() | found["requests"]
    found[EVENTS] = EVENT_COLUMNS
    return {**found, "executions": Executions.meanings(), "segments": PathSet.meanings()}


def _events(
    sources: Sequence[Path],
    sql: str,
    reading: ExtractSettings,
    progress: Callable[[str], None] | None,
) -> Mapping[str, pa.Table]:
    """Return the events that a query can be about, if it names them."""
    import duckdb  # noqa: PLC0415 - optional, and slow

    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    tree = parse_query(duckdb.connect(":memory:"), sql) if sql else None
    if EVENTS not in tables_of(tree):
        return {}
    table = flow.read_event_table(sources, question_of(tree), reading, progress)
    if table is None:
        raise UsageError(
            "the events that it asks for need more memory than --max-memory allows (1 GiB without)",
            "ask for fewer: where name = 'sched_switch' and time_ns between ... and ..., "
            "and name the columns",
        )
    return {EVENTS: table.to_arrow()}


def _sketches(
    paths: PathSet,
    sources: Sequence[Path],
    sql: str,
    reading: ExtractSettings,
    progress: Callable[[str], None] | None,
) -> dict[str, pa.Table]:
    """Return what a query names of requests and what was done for them: recordings are read for it.

    With no query, all that there is.
    """
    from critpath import flow  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import SKETCHES, sketch_tables  # noqa: PLC0415 - as above
    from critpath.store import find_format  # noqa: PLC0415 - as above

    named = [name for name in SKETCHES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
    saved = [one for one in sources if find_format(one)]
    if paths.executions.requests is None or (sql and not named):
        return {}
    if saved:
        # Of requests themselves also a file knows something.
        if set(named) - {"requests"}:
            raise UsageError(
                f"{saved[0]} has paths alone, without {', '.join(set(named) - {'requests'})}",
                "name the recordings that it was extracted from",
            )
        return {}
    return sketch_tables(flow.read_sketches(sources, reading, progress))


def _write(found: pa.Table, arguments: argparse.Namespace) -> None:
    if arguments.format == "parquet":
        from critpath.report.exports import table_parquet  # noqa: PLC0415 - start-up time

        write_pieces(arguments.output, [table_parquet(found)])
        return
    names = list(found.column_names)
    rows = zip(*(found.column(at).to_pylist() for at in range(len(names))), strict=True)
    if arguments.format == "csv":
        text = write_rows([names, *(map(_cell, row) for row in rows)])
    elif arguments.format == "json":
        found_rows = (dict(zip(names, row, strict=True)) for row in rows)
        text = "".join(json.dumps(row, default=str) + "\n" for row in found_rows)
    elif arguments.output == STDOUT:
        listed = list(rows)
        _show(names, listed[:_MOST_ROWS])
        if len(listed) > _MOST_ROWS:
            print(f"... {len(listed) - _MOST_ROWS:,} more rows: --format csv has them all")
        return
    else:
        raise UsageError("a table is for the terminal", "choose --format csv, json or parquet")
    write_output(arguments.output, text)


def _show(names: list[str], rows: list[Any], title: str = "") -> None:
    from critpath.report.text import new_table, print_line, shown  # noqa: PLC0415 - start-up time

    console = make_console()
    if title:
        print_line(console, title, style="bold")
    kinds = [isinstance(value, int | float) for value in rows[0]] if rows else [False] * len(names)
    heads = [f">{name}" if kind else name for name, kind in zip(names, kinds, strict=True)]
    table = new_table(console, *heads, folding=tuple(names))
    for row in rows:
        table.add_row(*(shown(_cell(value), console) for value in row))
    console.print(table)


def _cell(value: Any) -> str:
    """Return a value as text, numbers with the digits that mean something."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:.6g}"
    return str(value)
