"""How many changed lines of the code that judges the pure tests notice.

    python evaluation/mutants.py [--count 300] [--seed 1] [--only FILE:LINE] [--json FILE]

Mutants are Cosmic Ray's, drawn from all that it can make of the Python modules of `PACKAGES`,
less those in annotations, which nothing evaluates.  The pure tests run once with coverage; each
mutant then meets the tests that reach its line, in a copy of the installed package; one of a
line that only the import runs, such as a table's, those of its package that reach the module.  It
is killed if one of them fails or does not end; else it survives, and is shown.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Final

sys.path.append(str(Path(__file__).resolve().parent))

from results import write_results

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("detect", "localize", "graph", "requests")
PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not deep")
LIMIT: Final = 300  # seconds of a mutant; the tests of a line take less than a tenth of it
# Arguments of Cosmic Ray's that change nothing a program does.
LEFT_OUT: Final = ("core/RemoveDecorator",)


@dataclass(frozen=True)
class Mutant:
    """A change that Cosmic Ray can make: `occurrence` of an operator in a module."""

    module: str
    operator: str
    occurrence: int
    line: int
    column: int


@dataclass
class Outcome:
    """What became of a mutant: killed, survived, not reached, or no program any more."""

    mutant: Mutant
    what: str
    diff: str = ""
    by: str = ""
    tests: list[str] = field(default_factory=list)


def annotated(module: Path) -> set[tuple[int, int]]:
    """Return the places (line, column) that lie in annotations."""
    found: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cast":
            parts += node.args[:1]
        for part in parts:
            if isinstance(part, ast.expr):
                for line in range(part.lineno, (part.end_lineno or 0) + 1):
                    first = part.col_offset if line == part.lineno else 0
                    last = part.end_col_offset if line == part.end_lineno else 200
                    found |= {(line, column) for column in range(first, (last or 0) + 1)}
    return found


def list_mutants(module: str = "") -> Iterator[Mutant]:
    """Yield every mutant of the packages, or of one of their modules."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path  # noqa: PLC0415 - make mutants has it
    from cosmic_ray.plugins import get_operator, operator_names  # noqa: PLC0415 - as above

    operators = [
        (name, get_operator(name)())
        for name in operator_names()
        if name not in LEFT_OUT and not get_operator(name).arguments()
    ]
    modules = [p for x in PACKAGES for p in (ROOT / "critpath" / x).rglob("*.py")]
    for path in [ROOT / module] if module else sorted(modules):
        tree, skipped = get_ast_from_path(path), annotated(path)
        for name, operator in operators:
            places = (
                start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)
            )
            for occurrence, (line, column) in enumerate(places):
                if (line, column) not in skipped:
                    module = path.relative_to(ROOT).as_posix()
                    yield Mutant(module, name, occurrence, line, column)


def tests_by_line(place: Path, jobs: int) -> dict[str, dict[int, list[str]]]:
    """Run the pure tests once; return for each module and line the tests that reach it."""
    from coverage import CoverageData  # noqa: PLC0415 - make mutants has it

    data = place / "coverage"
    (place / "coveragerc").write_text(f"[run]\nsource_pkgs = critpath\ndata_file = {data}\n")
    options = ["-n", str(jobs), "--cov=critpath", "--cov-context=test", "--cov-report="]
    options += [f"--cov-config={place / 'coveragerc'}", "tests/pure"]
    done = subprocess.run([sys.executable, "-P", *PYTEST, *options], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit("the pure tests fail without any mutant: mend them first")
    found = CoverageData(str(data))
    found.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for file in found.measured_files():
        name = "critpath" + file.rpartition("site-packages/critpath")[2]
        lines[name] = {
            line: sorted({x.rpartition("|")[0] for x in contexts if "|" in x})
            for line, contexts in found.contexts_by_lineno(file).items()
        }
    return lines


def find_tests(lines: dict[int, list[str]], mutant: Mutant) -> list[str]:
    """Return the tests that a mutant meets, of the tests by the lines of its module."""
    tests = lines.get(mutant.line)
    if tests or tests is None:
        return tests or []
    package = f"tests/pure/{mutant.module.split('/')[1]}/"
    return sorted({x for of in lines.values() for x in of if x.startswith(package)})


def changed(mutant: Mutant) -> str | None:
    """Return the changed text of a mutant's module."""
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415 - make mutants has it
    from cosmic_ray.plugins import get_operator  # noqa: PLC0415 - as above

    text = (ROOT / mutant.module).read_text(encoding="utf-8")
    new = mutate_code(text, get_operator(mutant.operator)(), mutant.occurrence)
    return new if new is None else str(new)


def judge(mutant: Mutant, tests: list[str], copy: Path) -> Outcome:
    """Run tests against a copy of the package in which one line is changed."""
    text = (ROOT / mutant.module).read_text(encoding="utf-8")
    new = changed(mutant)
    pairs = zip(text.splitlines(), (new or "").splitlines(), strict=False)
    diff = next((f"- {a.strip()}\n+ {b.strip()}" for a, b in pairs if a != b), "")
    try:
        compile(new or "", mutant.module, "exec")
    except SyntaxError:
        return Outcome(mutant, "no program", diff)
    if not tests:
        return Outcome(mutant, "not reached", diff)
    target = copy / mutant.module
    target.write_text(new or "", encoding="utf-8")
    wanted = copy / "tests.txt"
    wanted.write_text("\n".join(tests), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-B", *PYTEST, "-x", f"@{wanted}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(mutant, "killed", diff, "it does not end")
    finally:
        target.write_text(text, encoding="utf-8")
    by = next((x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))), "")
    return Outcome(mutant, "killed" if done.returncode else "survived", diff, by[:200], tests)


def copy_package(place: Path) -> Path:
    """Return a directory with a copy of the installed package, which Python finds first."""
    import critpath  # noqa: PLC0415 - from where the tests import it

    shutil.copytree(Path(critpath.__file__).parent, place / "critpath", dirs_exist_ok=True)
    return place


def main() -> int:
    """Draw, judge, and print how many were killed, by package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="FILE:LINE: every mutant of a line")
    parser.add_argument("--lines", type=Path, help="keep here, or take, which tests reach what")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    every = list(list_mutants((arguments.only or "").partition(":")[0]))
    drawn = random.Random(arguments.seed).sample(every, min(arguments.count, len(every)))
    if arguments.only:
        drawn = [x for x in every if f"{x.module}:{x.line}" == arguments.only]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        kept = arguments.lines
        if kept and kept.exists():
            stored = json.loads(kept.read_text())
            lines = {m: {int(k): v for k, v in of.items()} for m, of in stored.items()}
        else:
            lines = tests_by_line(place, arguments.jobs)
            if kept:
                kept.write_text(json.dumps(lines))
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            copies.put(copy_package(place / f"copy{number}"))

        def judge_one(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return judge(mutant, find_tests(lines.get(mutant.module, {}), mutant), copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = []
            for outcome in pool.map(judge_one, drawn):
                outcomes.append(outcome)
                if outcome.what != "killed":
                    at = f"{outcome.mutant.module}:{outcome.mutant.line}"
                    what = f"{outcome.what}: {at} {outcome.mutant.operator}"
                    print(f"{len(outcomes)} of {len(drawn)}: {what}\n{outcome.diff}", flush=True)
    return tell(outcomes, arguments.json)


def tell(outcomes: list[Outcome], place: Path | None) -> int:
    """Print the table; write the facts."""
    programs = [x for x in outcomes if x.what != "no program"]
    by = Counter((x.mutant.module.split("/")[1], x.what) for x in programs)
    for package in PACKAGES:
        killed, all_of = by[package, "killed"], sum(n for (p, _), n in by.items() if p == package)
        if all_of:
            print(
                f"{package}: {killed} of {all_of} killed, {by[package, 'not reached']} not reached"
            )
    killed = sum(x.what == "killed" for x in programs)
    if place:
        rows = [{**vars(x.mutant), "what": x.what, "by": x.by, "diff": x.diff} for x in outcomes]
        write_results(place, rows, killed=killed, of=len(programs))
    share = killed / max(len(programs), 1)
    print(f"{killed} of {len(programs)} mutants killed by tests/pure: {100 * share:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
