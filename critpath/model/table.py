"""What every table of the model offers to other programs, and to a notebook.

A table declares each column once, beside its field, or says it where it is computed of other
tables (`Table.table_columns`); from that come the Arrow PyCapsule interface, through which pyarrow,
polars, pandas, DuckDB and nanoarrow take it, the HTML that a notebook shows, and the docs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import fields, replace
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    overload,
)

import numpy as np
import numpy.typing as npt

from critpath.extras import require
from critpath.model.texts import join_texts
from critpath.records import dataclass
from critpath.units import plural, safe_text, utf8

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T_co = TypeVar("T_co", covariant=True)

# technical: what a notebook shows of a table; the rest is counted.
SHOWN_ROWS: Final = 20
SHOWN_COLUMNS: Final = 24  # technical
SHOWN_RECORDS: Final = 10  # technical: in a terminal
# Escaping adds no backtick; one in a name moves the ends of the code, and does nothing else.
_QUOTED: Final = re.compile("`([^`]+)`")
_WHOLE: Final = 1000  # technical: from here on a number is shown without a fraction


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Attributes
    ----------
    values : numpy array, or sequence of str
        With ``words`` the codes.
    words : sequence of str
        What the codes mean; none if empty.
    valid : bool array or None
        Where there is a value at all; None for everywhere.
    """

    values: Any
    words: Sequence[str] = ()
    valid: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def shown(self, row: int) -> str:
        """Return one value as text, "" where there is none."""
        if self.valid is not None and not self.valid[row]:
            return ""
        value = self.values[row]
        if self.words:
            return self.words[int(value)]
        if isinstance(value, np.floating):
            # As many digits as mean something; the stream has them all.
            return f"{value:.0f}" if abs(value) >= _WHOLE else f"{value:.4g}"
        return str(value)

    @property
    def numeric(self) -> bool:
        """Whether the column has numbers, to be shown one below the other."""
        return not self.words and isinstance(self.values, np.ndarray)

    def to_arrow(self) -> pa.Array:
        """Return the column; numbers are not copied, codes become a dictionary."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        missing = None if self.valid is None else ~np.asarray(self.valid, np.bool_)
        if self.words:
            codes, words = _distinct(self.values, [utf8(word) for word in self.words])
            # pandas reads no unsigned ones from older versions of pyarrow.
            signed = np.dtype(f"i{codes.itemsize}")
            few = len(words) <= np.iinfo(signed).max
            indices = pa.array(codes.view(signed) if few else codes.astype(np.int64), mask=missing)
            return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))
        if isinstance(self.values, np.ndarray):
            return pa.array(self.values, mask=missing)
        return pa.array([utf8(value) for value in self.values], pa.string(), mask=missing)


@dataclass(frozen=True, eq=False)
class Lists(Column):
    """A column of which a row may have several values, or none.

    Attributes
    ----------
    rows : int64 array
        The row of every value.
    length : int
        Rows.
    """

    rows: Any = None
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def shown(self, row: int) -> str:
        """Return the values of a row, one after the other."""
        places = np.flatnonzero(self.rows == row).tolist()
        return ", ".join(super(Lists, self).shown(at) for at in places)

    def to_arrow(self) -> pa.Array:
        """Return the column as lists."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        order = np.argsort(self.rows, kind="stable")
        offsets = np.searchsorted(self.rows[order], np.arange(self.length + 1))
        values = Column(self.values[order], self.words).to_arrow()
        if self.words and not len(order):  # DuckDB reads no empty lists of codes
            values = values.dictionary_decode()
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


class Table:
    """Columns of equal length that other programs take as they are."""

    COUNTED: ClassVar[str] = ""  # what the number of a row is called, where that is a column
    COMPUTED: ClassVar[Mapping[str, Declared]] = {}  # properties that are columns, too
    ORDER: ClassVar[tuple[str, ...]] = ()  # of fields and properties; () as they are declared

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            # A dataclass would write one that shows every column: 100 kB in a terminal.
            cls.__repr__ = Table.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        size = f" of {len(self):,}" if isinstance(self, Sized) else ""
        return f"<{type(self).__name__}{size}>"

    def table_columns(self) -> Mapping[str, Column]:
        """Return every column by its name, in the order to show them.

        Names are words that SQL takes without quotes, so no ``end`` and no ``column``.
        """
        found: dict[str, Column] = {}
        if self.COUNTED:
            found[self.COUNTED] = Column(np.arange(len(cast("Sized", self))))
        for name, of in self.described().items():
            values = getattr(self, name)
            words = (getattr(self, of.words) or ("",)) if isinstance(of.words, str) else of.words
            found[of.name or name] = Column(
                values, words, None if of.least is None else values >= of.least
            )
        return found

    @classmethod
    def declared(cls) -> dict[str, tuple[Declared, str]]:
        """Return by its field what each declared column is, and its annotation."""
        kept: dict[str, tuple[Declared, str]] | None = vars(cls).get("_declared")
        if kept is None:
            of = [f for f in fields(cast("Any", cls)) if "column" in f.metadata]
            kept = {f.name: (f.metadata["column"], str(f.type)) for f in of}
            cls._declared = kept  # type: ignore[attr-defined]
        return kept

    @classmethod
    def described(cls) -> dict[str, Declared]:
        """Return what each column is, in the order to show them, by its field or property."""
        known = {field: of for field, (of, _) in cls.declared().items()} | {**cls.COMPUTED}
        return {name: known[name] for name in cls.ORDER or known}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return what each column means, by the name that other programs know it by."""
        return {of.name or name: of.meaning for name, of in cls.described().items()}

    def to_arrow(self) -> pa.Table:
        """Return the table as pyarrow has it."""
        require("a table for other programs", "parquet")
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        columns = self.table_columns()
        return pa.table({name: column.to_arrow() for name, column in columns.items()})

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as pandas has it."""
        try:
            import pandas as pd  # noqa: PLC0415 - slow to import, and optional
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        arrow = self.to_arrow()
        frame = arrow.to_pandas()
        for name in arrow.column_names:
            column = arrow[name]
            if column.null_count and pa.types.is_int64(column.type):
                frame[name] = column.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return frame

    def __arrow_c_schema__(self) -> object:
        return self.to_arrow().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first rows, and how many there are."""
        return html_table(type(self).__name__, self.table_columns())


class Rows(Table):
    """A table that is made of other things than columns.

    Parameters
    ----------
    title : str
    columns : mapping of str to Column
    """

    def __init__(self, title: str, columns: Mapping[str, Column]) -> None:
        self.title = title
        self._columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def table_columns(self) -> Mapping[str, Column]:
        """Return every column by its name."""
        return self._columns

    def _repr_html_(self) -> str:
        return html_table(self.title, self._columns)


class Records(Table, Generic[T_co]):
    """Records of one type: as a sequence, and as a table with a column per field.

    No `Sequence` by inheritance, which polars would take for a list of objects.

    Parameters
    ----------
    title : str
    records : sequence
    columns : callable
        Returns the columns; called when they are asked for.
    line : sequence of str
        The columns that a terminal shows, the last as long as it is; none for the records.
    """

    def __init__(
        self,
        title: str,
        records: Sequence[T_co],
        columns: Callable[[], Mapping[str, Column]],
        line: Sequence[str] = (),
    ) -> None:
        self.title = title
        self._records = tuple(records)
        self._columns = columns
        self._line = line

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self._records[index]

    def __repr__(self) -> str:
        some = self._records[:SHOWN_RECORDS]
        shown = self._lines(len(some)) if self._line else [f"  {record!r}" for record in some]
        left_out = len(self) - len(some)
        return "\n".join(
            [
                f"{self.title}: {plural(len(self), 'row')}",
                *shown,
                *([f"  and {left_out:,} more"] if left_out else []),
            ]
        )

    def _lines(self, count: int) -> list[str]:
        """Return a head and so many rows, each a line."""
        if not count:
            return []
        columns = self.table_columns()
        cells = [
            [name, *(safe_text(columns[name].shown(row)) for row in range(count))]
            for name in self._line
        ]
        widths = [max(map(len, column)) for column in cells]
        numeric = [columns[name].numeric for name in self._line]
        return [
            "  "
            + "  ".join(
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in zip(*cells, strict=True)
        ]

    def table_columns(self) -> Mapping[str, Column]:
        """Return the columns by their names."""
        return self._columns()

    def _repr_html_(self) -> str:
        return html_table(self.title, self.table_columns())


def column_of(values: Sequence[Any], kind: Any) -> Column:
    """Return a column of values annotated as ``kind``: a text, number or truth, or None."""
    kinds = {str} if get_origin(kind) is Literal else {*(get_args(kind) or (kind,))}
    may_be_none = type(None) in kinds
    if str in kinds:
        valid = np.array([value is not None for value in values], np.bool_)
        return Column([value or "" for value in values], valid=valid if may_be_none else None)
    dtype = np.float64 if float in kinds else np.bool_ if bool in kinds else np.int64
    return optional(values, dtype) if may_be_none else Column(np.array(values, dtype))


def html_table(title: str, columns: Mapping[str, Column]) -> str:
    """Return the first rows and columns of a table as HTML; it says what is left out.

    Parameters
    ----------
    title : str
    columns : mapping of str to Column
    """
    names = list(columns)
    length = len(columns[names[0]]) if names else 0
    shown, rows = names[:SHOWN_COLUMNS], min(length, SHOWN_ROWS)
    left_out = [
        *([plural(length - rows, "more row")] if length > rows else []),
        *([plural(len(names) - len(shown), "more column")] if len(names) > len(shown) else []),
    ]
    side = [' style="text-align:right"' if columns[name].numeric else "" for name in shown]
    head = "".join(f"<th>{escaped(name)}</th>" for name in shown)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{to}>{escaped(columns[name].shown(row))}</td>"
            for name, to in zip(shown, side, strict=True)
        )
        + "</tr>"
        for row in range(rows)
    )
    return (
        f"<p>{escaped(title)}: {plural(length, 'row')}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<p>{' and '.join(left_out)}</p>" if left_out else "")
    )


def escaped(text: str) -> str:
    """Return text, of a trace or not, for HTML."""
    import html  # noqa: PLC0415 - start-up time

    return html.escape(safe_text(text))


def prose(text: str) -> str:
    """Return a sentence for HTML: names between backticks as code, everything escaped."""
    return _QUOTED.sub(r"<code>\1</code>", escaped(text))


def optional(values: Sequence[Any], dtype: type[np.generic]) -> Column:
    """Return a column of numbers where None stands for none."""
    valid = np.array([value is not None for value in values], np.bool_)
    filled = np.array([0 if value is None else value for value in values], dtype)
    return Column(filled, valid=valid)


def _distinct(codes: Any, words: list[str]) -> tuple[Any, list[str]]:
    """Return codes into distinct words, as a dictionary must have them."""
    places: dict[str, int] = {}
    table = [places.setdefault(word, len(places)) for word in words]
    if len(places) == len(words):
        return codes, words
    # No code is larger than before, so the type of the codes is large enough.
    return np.array(table, np.asarray(codes).dtype)[codes], list(places)


# Columns of tables: their types, and how a table declares, checks and freezes them.


I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
# Whole numbers of any width.
Whole = npt.NDArray[np.signedinteger[Any]]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


_TYPES: Final = {
    "I64": np.int64, "I32": np.int32, "U8": np.uint8, "F64": np.float64, "Bool": np.bool_,
    "Whole": np.int32,
}  # fmt: skip


@cache
def column_types(table: type) -> dict[str, Any]:
    """Return the columns that a dataclass declares, with their dtypes; None may stand for some."""
    kinds = {each.name: str(each.type).removesuffix(" | None") for each in fields(table)}
    return {name: _TYPES[kind] for name, kind in kinds.items() if kind in _TYPES}


def freeze_columns(table: Any, length: int, *names: str, but: Collection[str] = ()) -> None:
    """Check that columns have one length and their dtype; replace them by read-only views.

    Parameters
    ----------
    table : dataclass
        Frozen, under construction.
    length : int
        Rows every column must have; -1 leaves the length free.
    *names : str
        Of columns; none for all that the dataclass declares.
    but : collection of str
        Without these.

    Raises
    ------
    ValueError
        If a column has another length or cannot be cast without loss of kind.
    """
    types = column_types(table.__class__)
    for name in names or types.keys() - {*but}:
        if getattr(table, name) is None:
            continue
        column, dtype = np.asarray(getattr(table, name)), types[name]
        if column.dtype != dtype:
            column = column.astype(dtype, casting="same_kind")
        # Native code, and Arrow, take columns as they lie in memory.
        column = np.ascontiguousarray(column)
        if length >= 0 and len(column) != length:
            raise ValueError(f"{type(table).__name__}.{name}: {len(column)} rows, not {length}")
        column = column.view()
        column.flags.writeable = False
        object.__setattr__(table, name, column)


TEXTS: Final = "Sequence[str]"


@dataclass(frozen=True)
class Declared:
    """What a column is, beside the field that has it.

    Attributes
    ----------
    meaning : str
    name : str
        What other programs know it by; the field's name if empty.
    words : str or tuple of str
        What its codes mean, or the field that has that.
    least : int or None
        Below it there is no value; None where there always is one.
    of : str
        Which table's rows it counts; "" for none's.
    """

    meaning: str
    name: str = ""
    words: str | tuple[str, ...] = ()
    least: int | None = None
    of: str = ""


def col(meaning: str, name: str = "", **of: Any) -> dict[str, Declared]:
    """Declare a column, as metadata of its field: ``tid: I32 = field(metadata=col("who"))``."""
    return {"column": Declared(meaning, name, **of)}


class FlatTable(Table):
    """A dataclass whose columns are declared, each beside its field, by `col`.

    From the declarations come the check of lengths and dtypes, and `table_columns`.
    """

    def __post_init__(self) -> None:
        texts = [name for name, (_, kind) in self.declared().items() if kind == TEXTS]
        freeze_columns(self, len(self), *(name for name in self.declared() if name not in texts))
        if any(len(getattr(self, name)) != len(self) for name in texts):
            raise ValueError(f"{type(self).__name__}: text columns of unequal length")

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.declared()))))

    def take(self, rows: Any) -> Self:
        """Return some rows: those at positions, of a slice, or where it is true."""
        return cast("Self", replace(cast("Any", self), **self.take_columns(rows)))

    @classmethod
    def join_columns(cls, parts: Sequence[Self]) -> dict[str, Any]:
        """Return every declared column of one or more tables, one behind the other."""
        return {
            name: join_texts([getattr(part, name) for part in parts])
            if kind == TEXTS
            else np.concatenate([getattr(part, name) for part in parts])
            for name, (_, kind) in cls.declared().items()
        }

    def take_columns(self, rows: Any) -> dict[str, Any]:
        """Return some rows of every declared column, by its field."""
        taken: dict[str, Any] = {}
        for name, (_, annotation) in self.declared().items():
            values = getattr(self, name)
            if annotation == TEXTS and not isinstance(rows, slice) and isinstance(values, tuple):
                at = np.arange(len(self))[rows].tolist()
                taken[name] = tuple(map(values.__getitem__, at))
            else:
                taken[name] = values[rows]
        return taken
