"""The tree keeps its shape: who imports whom, how large, and what is not there at all."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from critpath.model import Kind, State
from critpath.schema.environment import saved_keys

PACKAGE: Final = Path(__file__).resolve().parents[2] / "critpath"
# The recorder, a house beside, which is small where it runs as root: its names begin so.
RECORDER: Final = "critpath_record"
MODULES: Final = sorted(
    p
    for house in (PACKAGE, PACKAGE.with_name(RECORDER))
    for p in house.rglob("*")
    if p.suffix in {".py", ".pyx", ".pxi"}
)
PYTHON: Final = [p for p in MODULES if p.suffix == ".py"]

LEAVES: Final = {
    *("schema", "model", "documents", "errors", "units", "untrusted", "processes", "text", "stats"),
    *("progress", "doors", "files", "extras", "stores", "confined", "steward", "records"),
}
# The stages, and the doors that each may go through: a stage asks those above it in this list.
STAGES: Final[dict[str, set[str]]] = {
    "store": set(),
    "known": set(),
    "engines": {"store"},
    # A file of another tool becomes a recording before it is read.
    "convert": set(),
    "read": {"convert"},
    "executions": {"read"},
    "requests": {"read", "executions"},
    # What hosts sent each other is found in what their threads did with sockets.
    "clocks": {"read", "requests"},
    # A recording is opened by the clocks of its hosts, and read only for what finders ask.
    "timeline": {"engines", "read", "executions", "requests", "clocks"},
    "graph": {"engines", "read", "executions", "timeline"},
    "glance": {"engines", "read", "executions", "timeline"},
    "vectors": set(),
    "cluster": set(),
    "align": set(),
    # Like is compared with like: by types, within labels, and as whoever asked.  Divisions of
    # healthy runs are judged in several processes.
    "detect": {"vectors", "cluster", "engines"},
    "localize": {"vectors", "cluster", "align", "detect"},
    "explore": {"vectors", "cluster"},
    "signatures": {"store", "known", "read", "timeline"},
    "ab": set(),
    # The rules of verdicts have names; exports are also of vectors, and of a window's graph.
    "report": {"detect", "vectors", "graph"},
}
# What each part of the tree may import of ours, besides its own siblings.
MAY_IMPORT: Final[dict[str, set[str]]] = {
    **{leaf: set[str]() for leaf in LEAVES},
    # A package whose name is a function's, too, is called as the API's.
    "doors": {"api"},
    # A table shows itself in a notebook: names of a trace are made safe there as everywhere.
    # What passes between stages ends in what a document says of it.
    "model": {"units", "schema", "documents", "errors", "extras", "records"},
    "schema": {"records"},
    # Statistics of tables; the numbers they decide by are declared.
    "stats": {"schema", "model", "records"},
    "progress": {"units"},
    # What cannot be written is said to who named the place.
    "files": {"errors", "steward", "stores"},
    # What a store does not give is said to who named the URL, and is a note of the answer.
    "stores": {"errors", "extras", "units", "schema"},
    # What is not installed is said to who asked for it.
    "extras": {"errors"},
    # What is wrong with a regular expression is said to who wrote it.
    "untrusted": {"errors", "units", "extras"},
    # A document names the states; one shows itself in a notebook.
    "documents": {"schema", "units"},
    # Sentences are made of what passes between stages.
    "text": {"schema", "model", "documents", "units", "records"},
    # A document says which version wrote it.
    **{stage: {*LEAVES, *above, "__init__"} for stage, above in STAGES.items()},
    # It is written as the recorder leaves one, and the recorder's converter makes a trace of it.
    "convert": {*LEAVES, RECORDER, "__init__"},
    # Declarations, and what a manifest is, with the version: nothing of the analysis.
    RECORDER: {
        *("schema", "model", "documents", "errors", "units", "untrusted"),
        *("processes", "doors", "stats", "confined", "__init__"),
    },
    # The whole of it: extract, compare, remember, watch.
    "flow": {*LEAVES, *STAGES, "__init__"},
    # Front ends: they ask for whole answers, and the doors for parts of them.
    "incidents": {*LEAVES, "flow", "read", "report", "store", "__init__"},
    "metrics": {*LEAVES},
    "commands": {*LEAVES, *STAGES, RECORDER, "flow", "incidents", "metrics", "__init__"},
    "pytest_gate": {*LEAVES, "commands", "flow", "read", "report", "store", "__init__"},
    "api": {
        *LEAVES,
        "__init__",
        "commands",
        "detect",
        "explore",
        "flow",
        "glance",
        "report",
        "requests",
        "store",
    },
    # Runs in the recorded program, whose interpreter may have nothing of critpath.
    "functions": set(),
    # The door: every name of the API, and what a program marks its executions with.
    "__init__": {"api", "errors", "model"},
    "__main__": {"commands"},
}
# Libraries, and the only places that may import them.
ONLY_IN: Final[dict[str, tuple[str, ...]]] = {
    # What marked programs and recorders agree on.
    "critpath_marks": (
        "__init__.py",
        "critpath_record/",
        "commands/mark.py",
        "commands/workload.py",
    ),
    "bt2": ("read/babeltrace_child.py",),
    "argparse": ("commands/",),
    # Of a bisection git and the user's own build line.
    "subprocess": (
        "critpath_record/",
        "read/babeltrace.py",
        *("commands/bisect.py", "commands/remote.py"),
        "pytest_gate/gate.py",
        "api.py",  # a recorder changes what its process is
    ),
    # Where it has what a stage needs; for the rest the tests compare with it.
    "sklearn": ("signatures/classifiers.py",),
    # Alignment.to_biopython: a method stands where its type does.
    "Bio": ("align/", "report/", "model/findings.py"),
    "networkx": ("graph/", "report/"),
    "rich": ("commands/", "report/"),
    "duckdb": ("commands/query.py",),
    "prometheus_client": ("metrics/open_metrics.py",),
    # Not where `critpath record` loads it as root; and stores have millions of counts.
    "msgspec": (
        *("align/", "cluster/", "detect/", "documents/", "engines/", "executions/", "flow.py"),
        *("graph/", "incidents/usual.py", "known/entries.py", "localize/", "report/"),
        *("requests/slices.py", "schema/notes.py", "schema/causes.py", "stats/", "store/"),
        *("text/", "timeline/", "vectors/", "commands/compare.py", "commands/path.py"),
        *("commands/export.py", "commands/report.py", "commands/reports.py", "model/comparison.py"),
        *("model/findings.py", "model/grounds.py", "model/judgement.py", "model/vectors.py"),
    ),
    # Table.to_arrow: a method stands where its type does; and Parquet is a format.
    # A regular expression of a user takes linear time there.
    "pyarrow": (
        *("store/", "model/table.py", "report/exports/as_parquet.py"),
        *("untrusted.py", "commands/query.py", "convert/"),  # and zstd
        "api.py",  # what a query returns
    ),
    # Recordings are read elsewhere only when that is asked for.
    **dict.fromkeys(("distributed", "dask"), ("engines/tasks.py",)),
    **dict.fromkeys(("fsspec", "s3fs", "gcsfs"), ("stores.py",)),
    # Never: nothing of a trace or a saved file is ever executed.
    **dict.fromkeys(("pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"), ()),
}
# What gives facts to `text`, where every sentence of an answer is made.
WORDLESS: Final = ("detect", "explore", "localize", "cluster", "align", "vectors", "ab", "flow")
# A text with so many words in small letters is prose, not a name or a key.
PROSE: Final = 3
WORD: Final = re.compile(r"[a-z]{2,}[,.;:]?")
# What judges: its numbers are declared in schema/parameters.  The recorder's are only where its
# budget decides; `read` and the recorder have limits, times and formats.
JUDGING: Final = {
    *("detect", "localize", "cluster", "align", "requests", "clocks", "signatures", "explore"),
    *(
        "text",
        "vectors",
        "ab",
        "known",
        "flow",
        "engines",
        "graph",
        "timeline",
        "executions",
        "model",
    ),
    "stats",
}
# Neither judges: halves, twos and ones of arithmetic; powers of ten from 10 on are units, from a
# millionth down what rounding leaves.
ARITHMETIC: Final = {0.0, 0.5, 1.0, 2.0}
HERE: Final = PACKAGE  # where doors stand, also for a test that has a tree of its own
# Rooms of a stage with doors of their own.
ROOMS: Final = {
    *(f"report.{room}" for room in ("ci", "document", "explore", "exports", "html", "text")),
    *("report.view", f"{RECORDER}.ftrace"),
}
# A door hands on so many verbs, beside types and declared data; those that hand on more still do,
# and the list may only shrink.
VERBS: Final = 4
WIDER: Final = {
    "cluster": 9,
    "detect": 14,
    "graph": 9,
    "report.document": 10,
    "report.exports": 6,
    "report.text": 13,
    "signatures": 8,
    "vectors": 9,
}
FORBIDDEN_NAMES: Final = {"util", "utils", "common", "helper", "helpers", "misc", "lib"}
SMALL: Final = 120  # lines of a module that one sibling alone should not need


def place(path: Path) -> str:
    """Return where it is below the house of the analysis, or beside it."""
    return path.relative_to(PACKAGE.parent).as_posix().removeprefix(f"{PACKAGE.name}/")


def part(path: Path) -> str:
    """Return the stage, or the top-level module."""
    return place(path).split("/", maxsplit=1)[0].removesuffix(".py")


def walk(path: Path) -> list[ast.AST]:
    """Return every node of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@dataclass(frozen=True)
class Seen:
    """What the tests ask of a Python file: a tree that is kept is looked at by the collector."""

    imports: tuple[tuple[int, str], ...]
    at_the_top: tuple[tuple[int, str], ...]  # modules imported there
    called: tuple[tuple[int, str], ...]  # functions called by their bare names


@cache
def look_at(path: Path) -> Seen:
    nodes = walk(path)
    tree = nodes[0]
    assert isinstance(tree, ast.Module)
    top: list[tuple[int, str]] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            top += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            top.append((node.lineno, node.module or ""))
    return Seen(
        tuple(find_imports(path, nodes)),
        tuple(top),
        tuple(
            (node.lineno, node.func.id)
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ),
    )


def find_imports(path: Path, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield every import in a file, wherever it stands, as (line, dotted name)."""
    parts = place(path).split("/")[:-1]
    package = parts if parts[:1] == [RECORDER] else ["critpath", *parts]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and called(node) in {"__import__", "import_module"}:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def called(node: ast.Call) -> str:
    function = node.func
    return (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )


def wrong_imports(path: Path) -> list[str]:
    mine = part(path)
    allowed = MAY_IMPORT[mine] | {mine}
    found = []
    for line, name in look_at(path).imports:
        top, *rest = name.split(".")
        if top == RECORDER and RECORDER not in allowed:
            found.append(f"{place(path)}:{line} imports {name}")
        if top != "critpath":
            continue
        # `from critpath import __version__` is an import of the package itself.
        target = rest[0] if rest and (rest[0] in MAY_IMPORT) else "__init__"
        if target == "__init__" and rest and rest[0] != "__version__":
            target = "api"
        if target not in allowed:
            found.append(f"{place(path)}:{line} imports {name}")
    return found


def past_doors(path: Path) -> list[str]:
    """Return the imports of another stage that go past what its `__init__` hands on."""
    mine, found = part(path), []
    for line, name in look_at(path).imports:
        whole = name if name.startswith("critpath.") else f"critpath.{name}"
        top, stage, *rest = [*whole.split("."), "", ""][: max(whole.count(".") + 1, 2)]
        if (
            top != "critpath"
            or stage == mine
            or stage not in {*STAGES, RECORDER, "commands"}
            or not rest
        ):
            continue
        door = f"{stage}.{rest.pop(0)}" if f"{stage}.{rest[0]}" in ROOMS else stage
        inside = house_of(door)
        if len(rest) > 1 or (rest and any(inside.glob(f"{rest[0]}.p*"))):
            found.append(f"{place(path)}:{line} imports {name}, past the door of {door}")
    return found


def house_of(door: str) -> Path:
    """Return the folder that a door opens."""
    place = HERE.with_name(RECORDER) if door.startswith(RECORDER) else HERE
    return place / door.removeprefix(RECORDER).removeprefix(".").replace(".", "/")


def handed_on(door: str) -> list[str]:
    """Return the names that a door lists; see `critpath.doors`."""
    tree = ast.parse((house_of(door) / "__init__.py").read_text(encoding="utf-8"))
    return [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.If)
        for of in node.body
        if isinstance(of, ast.ImportFrom)
        and (of.module or "").startswith(("critpath.", f"{RECORDER}."))
        for alias in of.names
    ]


def wrong_libraries(path: Path) -> list[str]:
    found = []
    for line, name in look_at(path).imports:
        top = name.split(".")[0]
        if top in ONLY_IN and not place(path).startswith(ONLY_IN[top] or ("//",)):
            found.append(f"{place(path)}:{line} imports {name}")
    return found


def test_the_tree_is_known():
    assert {part(p) for p in MODULES} <= set(MAY_IMPORT)
    assert PYTHON


def test_the_import_rule():
    assert [w for p in PYTHON for w in wrong_imports(p)] == []


def test_nobody_goes_past_a_door():
    assert [w for p in PYTHON for w in past_doors(p)] == []


def test_stages_ask_in_one_direction():
    """A stage is listed behind those whose doors it goes through, so there is no circle."""
    order = list(STAGES)
    asked = [(a, b) for a in order for b in STAGES[a]]
    assert [(a, b) for a, b in asked if order.index(b) >= order.index(a)] == []


def test_doors_hand_on_few_verbs():
    doors = {*STAGES, *ROOMS, RECORDER, "commands"}
    counts = {door: sum(name[0].islower() for name in handed_on(door)) for door in doors}
    wide = {door: count for door, count in counts.items() if count > VERBS}
    assert wide == WIDER, "the list may only shrink"


def test_doors_open():
    """What a door lists is there, and stands in no module's way."""
    for door in (*STAGES, *ROOMS, RECORDER, "commands"):
        module = import_module(door if door.startswith(RECORDER) else f"critpath.{door}")
        names = handed_on(door)
        assert len(set(names)) == len(names)
        for name in names:
            assert getattr(module, name) is not None
            assert not list(house_of(door).glob(f"{name}.p*")), f"{door}.{name}"


def test_libraries_stay_in_their_places():
    assert [w for p in PYTHON for w in wrong_libraries(p)] == []


def test_compiled_modules_keep_the_import_rule():
    for path in MODULES:
        if path.suffix not in {".pyx", ".pxi"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            words = line.split()
            if words[:1] in (["from"], ["import"], ["cimport"]) and words[1].startswith("critpath"):
                if words[1].startswith(RECORDER):
                    assert part(path) == RECORDER, f"{place(path)}:{number}: {line}"
                    continue
                target = words[1].split(".")[1:2] or words[3:4]
                assert target[0] in {*LEAVES, part(path)}, f"{place(path)}:{number}: {line}"


def test_kinds_and_states_stand_once():
    """The build writes the Cython enums: no native file types one of these numbers again."""
    names = [*Kind.__members__, *State.__members__]
    typed = re.compile(rf"^\s+(?:S_|KIND_|STATE_)?({'|'.join(names)}) = -?\d", re.MULTILINE)
    found = [
        f"{place(path)}: {match[0].strip()}"
        for path in MODULES
        if path.suffix in {".pyx", ".pxi"}
        for match in typed.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_only_commands_print():
    found = [
        f"{place(path)}:{line}"
        for path in PYTHON
        if part(path) != "commands"
        for line, name in look_at(path).called
        if name == "print"
    ]
    assert found == []


def sentences(path: Path) -> list[str]:
    """Return the texts of three or more words that are no docstring, error or progress.

    Errors are raised where they are found, or returned by a function that ends in `Error`;
    progress goes to `tell` or `progress`.
    """
    passed: set[ast.AST] = set()
    nodes = walk(path)
    for node in nodes:
        if isinstance(node, ast.Raise | ast.Expr) or (
            isinstance(node, ast.Call)
            and called(node).endswith(("Error", "tell", "progress", "Failure"))
        ):
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
                continue
            passed.update(ast.walk(node))
    found = []
    for node in nodes:
        if node in passed:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            passed.update(ast.walk(node))
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if sum(WORD.fullmatch(word) is not None for word in text.split()) >= PROSE:
            found.append(f"{place(path)}:{node.lineno}: {text}")
    return found


def test_sentences_are_made_in_text():
    assert [s for p in PYTHON if part(p) in WORDLESS for s in sentences(p)] == []


def is_number(node: ast.AST) -> bool:
    """Tell whether an expression is a number, or several, that is written out."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) or is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_number, node.elts))


def is_arithmetic(value: float) -> bool:
    """Tell whether a float is one that does not judge; see `ARITHMETIC`."""
    power = round(math.log10(value)) if value > 0 else 0
    return value in ARITHMETIC or (value == float(f"1e{power}") and not -6 < power < 1)


def undeclared_numbers(path: Path) -> list[str]:
    """Return the numbers that are neither declared in schema/parameters nor marked technical.

    Those are floats wherever they stand, and whatever a name of the module is given.  The mark
    stands on the line, or in the comment above it.
    """
    lines = path.read_text(encoding="utf-8").splitlines()

    def is_marked(node: ast.stmt | ast.expr) -> bool:
        last, first = node.end_lineno or node.lineno, node.lineno - 1
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        return "# technical" in "\n".join(lines[first:last])

    [module] = [node for node in walk(path) if isinstance(node, ast.Module)]
    named = [
        node
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value)
    ]
    within = {id(number) for node in named for number in ast.walk(node)}
    floats = [
        node
        for node in walk(path)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and not is_arithmetic(node.value)
        and id(node) not in within
    ]
    return [
        f"{place(path)}:{node.lineno}: {lines[node.lineno - 1].strip()}"
        for node in (*named, *floats)
        if not is_marked(node)
    ]


def test_numbers_that_judge_are_declared():
    found = [n for p in PYTHON if part(p) in JUDGING for n in undeclared_numbers(p)]
    assert found == [], "declare them in schema/parameters, or say `# technical: why`"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("_PACE: Final = 2", True),
        ("_LEVELS = (0.05, 0.1)", True),
        ("_ROWS = 4 * KIB", True),
        ("_ROWS = 1 << 16  # technical: of a block", False),
        ("# technical: rows of a block,\n# in a cache\n_ROWS = 1 << 16", False),
        ("# rows of a block\n_ROWS = 1 << 16", True),
        ("def f(x):\n    return x > 0.05", True),
        ("def f(x, level=0.05):\n    return x > level", True),
        ("def f(x):\n    return x * 0.5 + 1e9 * 2.0 - 1e-9", False),
        ("def f(x):\n    return x > 0.1", True),
        ("def f(x):\n    return x[3]", False),
        ("def f(x):\n    return x > 9.95  # technical: rounding", False),
        ("NAMES = (1, 'a')", False),
    ],
)
def test_a_number_is_recognized(tmp_path, monkeypatch, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / "stage.py"
    path.write_text(text, encoding="utf-8")
    assert bool(undeclared_numbers(path)) == wrong


# What alone knows how an `Environment` is saved; who records or converts writes what a trace has.
KEYS_OF_ENVIRONMENTS: Final = ("schema/environment.py", "critpath_record/", "convert/")


def taken_by_key(path: Path) -> list[str]:
    """Return where something is had from an environment by its saved key, not as an attribute."""
    keys = {key for key in saved_keys() if "_" in key} - {"left_out"}
    prefixes = ("requests_", "route_", "machine_probe_", "machine_pressure_")

    def is_environment(node: ast.expr) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Attribute) and node.attr == "environment"

    found = []
    for node in walk(path):
        asked: list[ast.expr] = []
        wrong = False
        if isinstance(node, ast.Subscript):
            asked = [node.slice]
            wrong = is_environment(node.value) and isinstance(node.slice, ast.Constant)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"get", "startswith", "removeprefix"}:
                asked = node.args[:1]
                wrong = is_environment(node.func.value)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            asked = [node.left]
        texts = [one.value for one in asked if isinstance(one, ast.Constant)]
        named = any(isinstance(x, str) and (x in keys or x.startswith(prefixes)) for x in texts)
        if named or (wrong and any(isinstance(text, str) for text in texts)):
            found.append(f"{place(path)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}")
    return found


def test_environments_have_attributes():
    stages = [p for p in PYTHON if not place(p).startswith(KEYS_OF_ENVIRONMENTS)]
    assert [f for p in stages for f in taken_by_key(p)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("x.environment[0]['hostname']", True),
        ("x.environment.get('domain')", True),
        ("[e.get('runs_missing') for e in x.environment]", True),
        ("[e for e in found if 'switches_put_in' in e]", True),
        ("[k for k in e if k.startswith('route_devices_')]", True),
        ("x.environment[0].hostname", False),
        ("document.get('hostname')", False),
    ],
)
def test_a_key_of_an_environment_is_recognized(tmp_path, monkeypatch, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / "stage.py"
    path.write_text(text, encoding="utf-8")
    assert bool(taken_by_key(path)) == wrong


# Who takes texts of others apart, by whose they are; of a file with a function behind it only
# that one.  Nothing else may: what we wrote is data until somebody reads it.
READERS: Final = {
    "what users write: specifications, conditions, patterns, addresses, names of files": (
        *("executions/specification.py", "executions/fields.py", "executions/find.py"),
        *("executions/windows.py", "explore/conditions.py", "detect/verdict.py:_fits"),
        *(
            "graph/stacks.py:mark_own",
            "signatures/library.py",
            "known/entries.py",
            "engines/tasks.py",
        ),
        *("flow.py:rebase_paths", "model/paths.py:kind_of"),
    ),
    "names that kernels and tracers give: events, system calls, devices, releases": (
        "model/task_states.py",
        *("timeline/contexts.py", "timeline/after_gaps.py:_call_name", "requests/slices.py"),
        *("detect/machine.py:is_helper", "graph/resources.py:_find_disk_parts", "clocks/align.py"),
        *("requests/find.py", "requests/calls.py", "requests/implicit.py"),
        *("signatures/terms.py", "model/details.py:disk_limit", "model/details.py:family_of"),
        *("model/paths.py:hosts", "model/vectors.py:", "model/vectors.py:may_hold_id"),
        "model/containers.py",  # control groups, and what runtimes call them
        *("model/vectors.py:show_family", "model/vectors.py:identifiers"),
    ),
    "what programs say: messages, markers, command lines, their own names": (
        *("executions/marker.py", "executions/named_slices.py", "executions/process.py"),
        "requests/turns.py",
        *("requests/statements.py", "requests/tasks.py"),
        *("detect/alike.py", "graph/walking.py", "model/recording.py:"),
        "vectors/table.py:functions_of",
    ),
    "functions, files and programs that a stack's frames are of": (
        *("model/stacks.py:", "model/stacks.py:is_own", "model/stacks.py:join_stacks"),
        *("model/stacks.py:frame_name", "model/stacks.py:mark_frames"),
        *("model/stacks.py:own_stack", "model/stacks.py:_short"),
    ),
    "saved files: stacks are texts there, and in those of the first format details, too": (
        *("model/stacks.py:read_stack", "model/stacks.py:_read_frame"),
        *("model/details.py:", "model/details.py:_read_text", "store/dataset.py:_part"),
        *("store/sessions.py:", "store/sessions.py:_rename_sources"),
    ),
    "two facts in one name: thread and host, service and whom it asks, call and file, free terms": (
        *("model/vectors.py:split_host", "model/requests.py:service_of"),
        *("model/stacks.py:is_call", "model/signatures.py:is_free"),
    ),
    "paths of control groups, files of /proc, errors of libraries": (
        *("executions/membership.py", "signatures/tally.py", "engines/limits.py"),
        *("store/baseline.py:load_baseline", "store/reading.py:wrong_file"),
        "store/reading.py:_is_of",  # paths of columns, as Parquet has them
    ),
    "labels of requests and threads and ids, which saved files have alone": (
        "explore/columns.py",
        "report/document/pictures.py:find_thread",
    ),
    "sentences of recorders and of files of before; words that are put together": ("text/",),
    "sinks, which escape and wrap what is read": (
        *("report/ci/", "report/html/", "report/text/", "report/explore/", "report/exports/"),
        *("report/document/redaction.py", "report/document/json_schema.py", "model/table.py"),
        *("report/document/as_json.py", "report/document/path.py:_write_documents"),
    ),
}
TAKE_APART: Final = frozenset(
    {"partition", "rpartition", "removeprefix", "removesuffix", "startswith", "endswith"}
    | {"split", "rsplit", "splitlines"}
)


def taken_apart(path: Path) -> list[tuple[str, str]]:
    """Return where a file takes a text apart (``file:function``), and how."""
    found = []

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            function = function or node.name
        on = node.func if isinstance(node, ast.Call) else None
        if isinstance(on, ast.Attribute):
            library = ast.unparse(on.value)
            if (on.attr in TAKE_APART and library != "np") or library == "re":
                found.append((f"{place(path)}:{function}", ast.unparse(node)))
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def test_what_we_wrote_is_not_taken_apart():
    stages = JUDGING | {"report", "store"}
    found = [f for p in PYTHON if part(p) in stages for f in taken_apart(p)]
    readers = {name for names in READERS.values() for name in names}
    known = {
        where: {n for n in readers if f"{where}:".startswith(n if n.endswith("/") else f"{n}:")}
        for where, _ in found
    }
    assert [f"{where}: {how}" for where, how in found if not known[where]] == []
    assert readers - set().union(*known.values()) == set()  # a row that nothing needs goes


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("def f(x): return x.partition(', ')", True),
        ("A = re.compile('a')", True),
        ("def f(x): return [y.removeprefix('a') for y in x]", True),
        ("np.split(x, 2)", False),
        ("def f(x): return x.replace('a', 'b')", False),
    ],
)
def test_a_text_that_is_taken_apart_is_recognized(tmp_path, monkeypatch, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / "stage.py"
    path.write_text(text, encoding="utf-8")
    assert bool(taken_apart(path)) == wrong


# Two types that have so many names of fields in common, and more than this part of the fewer
# fields, are one type, or one extends the other.
FIELDS: Final = 5
IN_COMMON: Final = 0.6
COLUMNS: Final = re.compile(r"\b(?:F64|I32|I64|U8|Bool|Whole)\b")
# Types that have more in common, and why they are two.
ALIKE: Final = {
    "StrangersHadCpus WeatherEntry": "a reason in a record of its own; the other is a fact",
    "AbDocument AbResult": "the first says by JSON keys of its own what the second says of a time",
    "AccountEntry RequestCounts": "a sum over recordings; the other says how a trace is saved",
    "Aligned AlignedEntry": "columns; the other's alignment is rows that a page draws",
    "Analysis Judgement": "what is decided before anything is aligned becomes part of the answer",
    "Because Parts": "whole nanoseconds of a document; statistics know no documents",
    "Counts Signatures": "columns: what was counted, and what was made of it",
    "CriticalPaths Segments": "columns: of paths, and what explaining asks of one of them",
    "DurationTest StateEntry": "the same figures of whole executions, with meanings of their own",
    "Entry _File": "parts as the text that others wrote, before they are believed",
    "EventChunk Events": "columns: a part of a stream, and all of it with what is known at its end",
    "HostClock HostClockEntry": "lines that are calculated with; the other has decimals of them",
    "HostClockEntry HostEntry": "two documents: all of a clock, and a comparison's line on it",
    "IntegerClass VarintClass": "CTF 2 has no size and order of a number of variable length",
    "LookLoss Loss": "as the next: what reads traces does without the documents",
    "LookLoss LossPlace": "sums of all that one reason lost of a processor; the other is one place",
    "Loss LossPlace": "what reads traces does without the documents and their library",
    "Machine MachineEntry": "a recording's, in millionths; the other's are medians of a set",
    "ProgramSign SignEntry": "the facts of a reason are declared below the documents",
    "Route _RouteSums": "of one kind of device in one recording; the other counts by kind",
    "SignedSource _File": "as `Entry`, of an interval's vectors",
    "Block Timelines": "columns: a part of a replay that is handed on, and all of a window",
}


def fields_of(node: ast.ClassDef) -> frozenset[str]:
    """Return the fields that a class declares; a column is not the number that one row has."""
    found = set()
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            of = ast.unparse(line.annotation)
            if not of.startswith(("ClassVar", "Final")):
                found.add(line.target.id + "[]" * bool(COLUMNS.search(of)))
    return frozenset(found)


def types_alike() -> dict[str, float]:
    """Return pairs of types by their names, with the part of the fewer fields that both have."""
    declared = [
        (node.name, fields)
        for path in PYTHON
        if part(path) != RECORDER  # a house of its own
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and (fields := fields_of(node))
    ]
    alike = {}
    for (one, mine), (other, theirs) in combinations(declared, 2):
        both, fewer = len(mine & theirs), min(len(mine), len(theirs))
        if both >= FIELDS and both > IN_COMMON * fewer:
            alike[" ".join(sorted((one, other)))] = both / fewer
    return alike


def test_a_type_is_declared_once():
    # A fact of a cause that a segment's detail has is called as there, and grows with it.
    assert sorted({*types_alike()} - {"CauseFacts Detail"}) == sorted(ALIKE)


def test_a_type_that_repeats_another_is_recognized(tmp_path, monkeypatch):
    path = tmp_path / "answer.py"
    lines = ["class {}:", *(f"    {letter}: int" for letter in "abcde")]
    both = "\n".join("\n".join(lines).format(name) for name in ("One", "Other"))
    path.write_text(both + "\nclass Columns:\n" + "\n".join(f"    {c}: I64" for c in "abcde"))
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    monkeypatch.setattr(f"{__name__}.PYTHON", [path])
    assert types_alike() == {"One Other": 1.0}


def test_nothing_is_evaluated():
    found = [
        f"{place(path)}:{line}: {name}"
        for path in PYTHON
        for line, name in look_at(path).called
        if name in {"eval", "exec", "compile"}
    ]
    assert found == []


def importers() -> dict[str, set[str]]:
    """Return who imports each Python module, by dotted names below the package."""
    names = {
        place(p).removesuffix(".py").replace("/", ".").removesuffix(".__init__") for p in PYTHON
    }
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in PYTHON:
        mine = place(path).removesuffix(".py").replace("/", ".")
        for _, name in look_at(path).imports:
            whole = name.removeprefix("critpath.")
            target = whole if whole in names else whole.rpartition(".")[0]
            if name.startswith(("critpath.", RECORDER)) and target in names:
                found[target].add(mine)
    return found


def test_a_module_has_a_subject_of_its_own():
    """Doubted: a small module that one sibling alone imports."""
    doubted = []
    for name, users in importers().items():
        folder = name.rpartition(".")[0]
        within = PACKAGE.parent if name.startswith(RECORDER) else PACKAGE
        path = within / f"{name.replace('.', '/')}.py"
        if len(users) != 1 or not path.is_file():
            continue
        [user] = users
        # A package's `__init__` hands names on to other packages.
        size = len(path.read_text(encoding="utf-8").splitlines())
        if size < SMALL and not user.endswith("__init__") and user.rpartition(".")[0] == folder:
            doubted.append(f"{name}: {size} lines, imported by {user} alone")
    assert doubted == []


def test_names_say_what_a_module_is_for():
    names = {name for p in MODULES for name in (*place(p).split("/")[:-1], p.stem)}
    assert names & FORBIDDEN_NAMES == set()
    assert [place(p) for p in MODULES if "-" in p.stem or p.stem != p.stem.lower()] == []


def test_stages_do_not_import_slow_libraries_at_the_top():
    slow = {"sklearn", "scipy", "networkx", "Bio", "pyarrow"}
    found = [
        f"{place(path)}:{line} {name}"
        for path in PYTHON
        for line, name in look_at(path).at_the_top
        if name.split(".")[0] in slow
    ]
    assert found == []


@pytest.mark.parametrize(
    ("where", "text", "wrong"),
    [
        ("graph/walk.py", "from critpath.model import State", False),
        ("graph/walk.py", "from critpath.graph.build import build", False),
        ("graph/walk.py", "from . import build", False),
        ("graph/walk.py", "from critpath.timeline import Replayer", False),
        ("timeline/replay.py", "from critpath.graph import extract_paths", True),
        ("timeline/replay.py", "from critpath import graph", True),
        ("timeline/replay.py", "from ..graph import extract_paths", True),
        ("timeline/replay.py", "def f():\n    import critpath.graph", True),
        ("graph/walk.py", "import importlib\nimportlib.import_module('critpath_record')", True),
        ("graph/walk.py", "from critpath import store", True),
        ("commands/settings.py", "from critpath.detect import RULES", False),
        ("align/dp.py", "from critpath.detect import RULES", True),
        ("detect/gate.py", "from critpath.text import notes", False),
        ("text/notes.py", "from critpath.report import palette", True),
        ("model/paths.py", "from critpath.units import plural", False),
        ("model/paths.py", "from critpath.graph import walk", True),
        ("model/findings.py", "from critpath.documents import CauseFacts", False),
        ("documents/causes.py", "from critpath.schema.kinds import State", False),
        ("documents/causes.py", "from critpath.model import State", True),
        ("schema/kinds.py", "from critpath.model import State", True),
        ("model/paths.py", "def f():\n    from critpath.store import save_paths", True),
        ("model/paths.py", "from critpath.store import load_paths", True),
        ("flow.py", "from critpath import api", True),
        ("flow.py", "from critpath import compare", True),
        ("units.py", "from critpath.model import State", True),
        ("store/dataset.py", "from critpath.graph import walk", True),
        ("flow.py", "from critpath.commands import main", True),
        ("flow.py", "from critpath.graph import walk", False),
        ("commands/path.py", "from critpath.api import extract", True),
        ("commands/path.py", "from critpath import flow", False),
        ("graph/walk.py", "import subprocess", True),
        ("read/babeltrace.py", "import subprocess", False),
        ("read/streaming.py", "import bt2", True),
        ("read/streaming.py", "from critpath_record import record", True),
        ("commands/record.py", "from critpath_record import record", False),
        ("ab/run.py", "from critpath_record import record", True),
        ("pytest_gate/gate.py", "from critpath_record import doctor", True),
        ("flow.py", "if TYPE_CHECKING:\n    from critpath_record import Reporter", True),
        ("store/reading.py", "import pickle", True),
        ("cluster/optics.py", "def f():\n    from sklearn.cluster import OPTICS", True),
        ("align/muscle.py", "def f():\n    from Bio import Align", False),
        ("model/findings.py", "def f():\n    from Bio import Align", False),
        ("cluster/optics.py", "def f():\n    from Bio import Align", True),
        ("model/table.py", "def f():\n    import pyarrow as pa", False),
        ("model/paths.py", "def f():\n    import pyarrow as pa", True),
    ],
)
def test_these_tests_can_fail(tmp_path, monkeypatch, where, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / where
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert bool(wrong_imports(path) + wrong_libraries(path)) == wrong


@pytest.mark.parametrize(
    ("where", "text", "wrong"),
    [
        ("graph/walking.py", "from critpath.read.recording import Recording", True),
        ("graph/walking.py", "from critpath.read import Recording", False),
        ("graph/walking.py", "from critpath.read import recording", True),
        ("graph/walking.py", "from critpath.graph.stacks import add_stacks", False),
        ("graph/walking.py", "from critpath.model.gaps import Gaps", False),
        ("flow.py", "from critpath import detect", False),
        ("flow.py", "def f():\n    from critpath.detect.rules import RULES", True),
        ("commands/report.py", "from critpath.report.html import render_html", False),
        ("commands/report.py", "from critpath.report.html.as_html import render_html", True),
        ("api.py", "from critpath.commands.settings import SETTINGS", True),
    ],
)
def test_a_way_past_a_door_is_recognized(tmp_path, monkeypatch, where, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / where
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert bool(past_doors(path)) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('notes.append(f"{n} executions have no type")', True),
        ('return "the sample is faster"', True),
        ('raise ValueError("one type per execution expected")', False),
        ('error = UsageError("give more permutations to it")', False),
        ('tell(f"aligning {n} of the executions")', False),
        ('"""A docstring of many words."""', False),
        ('levels = "error warn"', False),
        ('return f"{name} ({level})"', False),
    ],
)
def test_a_sentence_is_recognized(tmp_path, monkeypatch, text, wrong):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    path = tmp_path / "stage.py"
    path.write_text(text, encoding="utf-8")
    assert bool(sentences(path)) == wrong
