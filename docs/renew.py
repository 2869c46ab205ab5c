"""Make what the documentation shows of critpath anew: ``make docs`` runs this.

The transcript in README.md and the reference in docs/commands.md; where chromium is there,
docs/images/; where this machine may be recorded, the tutorial.  tests/pure/test_project.py
checks that the texts are up to date.  ``renew.py PART...`` makes only these parts.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.commands.settings import SETTINGS, Setting

# Its parts stand beside this script, also where a test loads it from elsewhere.
sys.path[:0] = [str(Path(__file__).resolve().parent)]

import declared  # noqa: E402
import examples  # noqa: E402
import measured  # noqa: E402
import notebooks  # noqa: E402
import running_as_root  # noqa: E402
import shells  # noqa: E402
import transcripts  # noqa: E402
from reference import (  # noqa: E402
    calls,
    causes,
    events,
    formats,
    notes,
    numbers,
    schemas,
    segments,
    states,
    table,
)

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


ROOT: Final = Path(__file__).resolve().parent.parent
FIXTURES: Final = ROOT / "fixtures" / "lttng-guest"
README: Final = ROOT / "README.md"
COMMANDS: Final = ROOT / "docs" / "commands.md"
JSON: Final = ROOT / "docs" / "reference-json.md"
SCHEMAS: Final = ROOT / "docs" / "schema"
READING: Final = ROOT / "docs" / "reading-the-report.md"
PYTHON: Final = ROOT / "docs" / "python.md"
DECIDES: Final = ROOT / "docs" / "how-it-decides.md"
NEXT: Final = ROOT / "docs" / "what-next.md"
EXPORTS: Final = ROOT / "docs" / "exports.md"
PATHS: Final = ROOT / "docs" / "critical-path.md"
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
SIGNATURES: Final = ROOT / "docs" / "tutorial-known.md"
COMPARE: Final = (
    *("compare", "normal", "sample-lock"),
    *("--execution", "events:app:request_begin,app:request_end,key=id"),
)
ALIGNED_SHOWN: Final = 1


def run(
    arguments: tuple[str, ...], directory: Path, columns: int = 100
) -> subprocess.CompletedProcess[str]:
    """Run critpath on a terminal so wide."""
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "critpath", *arguments],
        cwd=directory,
        env={**os.environ, "COLUMNS": f"{columns}"},
        capture_output=True,
        text=True,
        check=False,
    )


def unpack(place: Path) -> None:
    """Put there the recordings that the examples compare."""
    for name in COMPARE[1:3]:
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
            tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own


def python() -> str:
    """Return docs/python.md with what its examples give now."""
    with tempfile.TemporaryDirectory() as place:
        unpack(Path(place))
        text = between(PYTHON.read_text(encoding="utf-8"), "calls", calls())
        return transcripts.renew(text, Path(place), Path(place))[0]


@cache
def transcripts_of_compare() -> tuple[str, str]:
    """Return a comparison as a terminal shows it: the answer, and one alignment of ``-v``."""
    with tempfile.TemporaryDirectory() as place:
        unpack(Path(place))
        done = run(COMPARE, Path(place), 80)
        everything = run((*COMPARE, "-v"), Path(place))
    sections = [
        [line.rstrip() for line in section.split("\n")]
        for section in everything.stdout.rstrip("\n").split("\n\n")
    ]
    aligned = [lines for lines in sections if "beside like ones of before" in lines[0]]
    command = f"$ critpath {' '.join(COMPARE)}"
    return (
        f"```console\n{command}\n{done.stdout.rstrip()}\n$ echo $?\n{done.returncode}\n```",
        "```text\n" + "\n".join(aligned[ALIGNED_SHOWN]) + "\n```",
    )


def between(text: str, name: str, content: str) -> str:
    """Replace what stands between two markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no marker {begin.strip()}")
    return pattern.sub(lambda _: f"{begin}{content}\n{end}", text, count=1)


def readme() -> str:
    """Return README.md with the transcript as it is now."""
    return between(README.read_text(encoding="utf-8"), "transcript", transcripts_of_compare()[0])


def reading() -> str:
    """Return docs/reading-the-report.md with the terminal's alignment as it is now."""
    return between(READING.read_text(encoding="utf-8"), "aligned", transcripts_of_compare()[1])


def json_reference() -> str:
    """Return docs/reference-json.md with every key that the schemas have."""
    text = between(JSON.read_text(encoding="utf-8"), "formats", formats())
    return between(text, "ids", notes())


def critical_path() -> str:
    """Return docs/critical-path.md with every state and kind of event as they are declared."""
    text = between(PATHS.read_text(encoding="utf-8"), "states", states())
    return between(text, "events", events())


def exports() -> str:
    """Return docs/exports.md with the columns of segments as they are declared."""
    return between(EXPORTS.read_text(encoding="utf-8"), "segments", segments())


def what_next() -> str:
    """Return docs/what-next.md with every kind of cause as it is declared."""
    return between(NEXT.read_text(encoding="utf-8"), "causes", causes())


def how_it_decides() -> str:
    """Return docs/how-it-decides.md with the numbers as they are declared."""
    return between(DECIDES.read_text(encoding="utf-8"), "numbers", numbers())


def parameters() -> str:
    """Return docs/parameters.md with every number that judges as it is declared."""
    return between(declared.PAGE.read_text(encoding="utf-8"), "parameters", declared.tables())


def security() -> str:
    """Return docs/security.md with every file that is loaded as root."""
    return between(
        running_as_root.PAGE.read_text(encoding="utf-8"), "root", running_as_root.table()
    )


def evaluation() -> dict[Path, str]:
    """Return the pages of docs/evaluation with their tables as the results have them."""
    return measured.pages()


def commands() -> str:
    """Return docs/commands.md with every verb and setting as the parser has them."""
    return between(COMMANDS.read_text(encoding="utf-8"), "reference", reference())


def reference() -> str:
    """Return the verbs with what they take, and the settings, as Markdown."""
    parser = build_parser(VERBS)
    choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 - argparse shows them nowhere else
    parts = []
    seen: dict[str, set[tuple[str, str]]] = {}
    for name, summary in VERBS.items():
        parts += _section(f"critpath {name}", summary, choices.choices[name], seen)
    parts += ["## Settings", ""]
    rows = [(f"`{s.name}`", s.help, _default(s)) for s in SETTINGS.values()]
    return "\n".join([*parts, *table(("setting", "meaning", "default"), rows)])


def _section(
    title: str,
    summary: str,
    parser: argparse.ArgumentParser,
    seen: dict[str, set[tuple[str, str]]],
    depth: int = 2,
) -> list[str]:
    """Return what one verb takes; a verb of several actions has a section for each."""
    parts = [f"{'#' * depth} {title}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
    actions = parser._actions  # noqa: SLF001 - as above
    inner = next((a for a in actions if isinstance(a, argparse._SubParsersAction)), None)  # noqa: SLF001 - as above
    if inner is not None:
        for choice in inner._choices_actions:  # noqa: SLF001 - as above
            told = choice.help or ""
            below = inner.choices[choice.dest]
            parts += _section(f"{title} {choice.dest}", told, below, seen, depth + 1)
        return parts
    rows = [
        (_form(action), (action.help or "").replace("%%", "%"))
        for action in actions
        if not (action.dest.startswith("setting_") or action.dest in _EVERYWHERE)
    ]
    alike, rows = _leave_out_shared(title, rows, seen)
    parts += table(("argument", "meaning"), rows)
    parts += alike
    # A setting may have several options.
    heeded = dict.fromkeys(
        a.dest.removeprefix("setting_") for a in actions if a.dest.startswith("setting_")
    )
    if names := ", ".join(f"`{name}`" for name in heeded if name != "quiet"):
        parts += ["", f"Settings that it heeds: {names}."]
    return [*parts, ""]


# How many arguments two commands have in common before the second one only names them.
_SHARED: Final = 4


def _leave_out_shared(
    title: str, rows: list[tuple[str, str]], seen: dict[str, set[tuple[str, str]]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return a line that names what an earlier command takes as well, and the other rows."""
    first, shared = "", set[tuple[str, str]]()
    for earlier, found in seen.items():
        if len(found & {*rows}) > len(shared):
            first, shared = earlier, found & {*rows}
    seen[title] = {*rows}
    if len(shared) < _SHARED:
        return [], rows
    names = ", ".join(form.split(", ")[-1] for form, _ in rows if (form, _) in shared)
    return ["", f"As `{first}`: {names}."], [row for row in rows if row not in shared]


_EVERYWHERE: Final = {"help", "config", "show_config", "debug"}


def _form(action: argparse.Action) -> str:
    shown = action.metavar or ""
    metavar = " ".join(shown) if isinstance(shown, tuple) else shown.replace("FILE.parquet", "FILE")
    if not action.option_strings:
        form = f"{metavar}..." if action.nargs == "+" else metavar
        return f"`[{form}]`" if action.nargs == "?" else f"`{form}`"
    if action.choices:
        metavar = "|".join(map(str, action.choices))
    takes = "" if action.nargs == 0 else f" {metavar}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings)


def _default(setting: Setting) -> str:
    if setting.flag:
        return "yes" if setting.default else "no"
    if setting.default in {None, ()}:
        return "`auto`" if setting.name == "t2" else ""
    return f"`{setting.default}`"


def tutorial() -> None:
    """Run the tutorial's commands and show what they print now."""
    with tempfile.TemporaryDirectory(prefix="critpath-tutorial-") as place:
        text, steps = transcripts.renew(
            TUTORIAL.read_text(encoding="utf-8"), TUTORIAL.with_suffix(""), Path(place)
        )
    for step in steps:
        sys.stderr.write(f"{step.code:3} {step.command}\n")
    TUTORIAL.write_text(text, encoding="utf-8")


def type_signatures() -> tuple[str, list[transcripts.Step]]:
    """Return docs/tutorial-known.md with what its commands print now, and the commands."""
    with tempfile.TemporaryDirectory(prefix="critpath-known-") as place:
        (Path(place) / "fixtures").symlink_to(ROOT / "fixtures")
        text = SIGNATURES.read_text(encoding="utf-8")
        return transcripts.renew(text, Path(place), Path(place))


def signatures() -> None:
    """Run the commands of docs/tutorial-known.md and show what they print now."""
    SIGNATURES.write_text(type_signatures()[0], encoding="utf-8")


def texts() -> None:
    """Renew what needs neither a browser nor a recorder."""
    README.write_text(readme(), encoding="utf-8")
    READING.write_text(reading(), encoding="utf-8")
    COMMANDS.write_text(commands(), encoding="utf-8")
    PYTHON.write_text(python(), encoding="utf-8")
    PATHS.write_text(critical_path(), encoding="utf-8")
    EXPORTS.write_text(exports(), encoding="utf-8")
    NEXT.write_text(what_next(), encoding="utf-8")
    DECIDES.write_text(how_it_decides(), encoding="utf-8")
    declared.PAGE.write_text(parameters(), encoding="utf-8")
    running_as_root.PAGE.write_text(security(), encoding="utf-8")
    JSON.write_text(json_reference(), encoding="utf-8")
    examples.PAGE.write_text(examples.page(), encoding="utf-8")
    for page, text in evaluation().items():
        page.write_text(text, encoding="utf-8")
    for place, text in shells.files().items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    SCHEMAS.mkdir(exist_ok=True)
    for old in SCHEMAS.glob("*.json"):
        old.unlink()
    for file, text in schemas().items():
        (SCHEMAS / file).write_text(text, encoding="utf-8")


def pictures() -> None:
    """Take the pictures again."""
    import screenshots  # noqa: PLC0415 - not without a browser

    screenshots.take()


PARTS: Final = {
    "texts": texts,
    "notebooks": notebooks.renew,
    "signatures": signatures,
    "screenshots": pictures,
    "tutorial": tutorial,
}


def main() -> int:
    """Make the parts that are named, or all that can be made here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    named = parser.parse_args().parts
    if wrong := set(named) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(wrong))}")
    for name in named or PARTS:
        PARTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
