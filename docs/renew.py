"""Make what the documentation shows of critpath anew: ``make docs`` runs this.

The transcript in README.md, the reference in docs/commands.md and, where chromium is
there, docs/images/.  tests/test_project.py checks that the texts are up to date.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from critpath.commands import VERBS
from critpath.commands.parser import build_parser
from critpath.commands.settings import SETTINGS, Setting

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


ROOT: Final = Path(__file__).resolve().parent.parent
FIXTURES: Final = ROOT / "fixtures" / "lttng-guest"
README: Final = ROOT / "README.md"
COMMANDS: Final = ROOT / "docs" / "commands.md"
IMAGES: Final = ROOT / "docs" / "images"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
COMPARE: Final = (
    *("compare", "normal", "sample-lock"),
    *("--execution", "events:app:request_begin,app:request_end,key=id"),
)
CUT: Final = "..."
STATES_SHOWN: Final = 3


def run(arguments: tuple[str, ...], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run critpath, 110 columns wide."""
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "critpath", *arguments],
        cwd=directory,
        env={**os.environ, "COLUMNS": "110"},
        capture_output=True,
        text=True,
        check=False,
    )


def transcript() -> str:
    """Return a comparison as a terminal shows it, shortened: ``...`` where it is cut."""
    with tempfile.TemporaryDirectory() as place:
        for name in COMPARE[1:3]:
            with tarfile.open(FIXTURES / f"{name}.tar.xz") as tar:
                tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
        done = run(COMPARE, Path(place))
    sections = done.stdout.rstrip("\n").split("\n\n")
    kept = []
    for section in sections:
        lines = [line.rstrip() for line in section.split("\n")]
        if lines[0].startswith("States"):
            lines = [*lines[: 3 + STATES_SHOWN], CUT, *(x for x in lines if x.startswith("total"))]
        elif lines[0].startswith("Types"):
            continue
        kept.append("\n".join(lines))
    shown = "\n\n".join([*kept, CUT])
    return f"$ critpath {' '.join(COMPARE)}\n{shown}\n$ echo $?\n{done.returncode}"


def between(text: str, name: str, content: str) -> str:
    """Replace what stands between two markers."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no marker {begin.strip()}")
    return pattern.sub(lambda _: begin + content + end, text, count=1)


def readme() -> str:
    """Return README.md with the transcript as it is now."""
    block = f"```console\n{transcript()}\n```"
    return between(README.read_text(encoding="utf-8"), "transcript", block)


def commands() -> str:
    """Return docs/commands.md with every verb and setting as the parser has them."""
    return between(COMMANDS.read_text(encoding="utf-8"), "reference", reference())


def reference() -> str:
    """Return the verbs with what they take, and the settings, as Markdown."""
    parser = build_parser(VERBS)
    choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001 - argparse shows them nowhere else
    parts = []
    for name, verb in VERBS.items():
        parts += _section(f"critpath {name}", verb.SUMMARY, choices.choices[name])
    parts += ["## Settings", ""]
    rows = [(f"`{s.name}`", s.help, _default(s)) for s in SETTINGS.values()]
    return "\n".join([*parts, *_table(("setting", "meaning", "default"), rows)])


def _section(title: str, summary: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return what one verb takes; a verb of several actions has a section for each."""
    parts = [f"### {title}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
    actions = parser._actions  # noqa: SLF001 - as above
    inner = next((a for a in actions if isinstance(a, argparse._SubParsersAction)), None)  # noqa: SLF001 - as above
    if inner is not None:
        for choice in inner._choices_actions:  # noqa: SLF001 - as above
            told = choice.help or ""
            parts += _section(f"{title} {choice.dest}", told, inner.choices[choice.dest])
        return parts
    rows = [
        (_form(action), action.help or "")
        for action in actions
        if not (action.dest.startswith("setting_") or action.dest in _EVERYWHERE)
    ]
    parts += _table(("argument", "meaning"), rows)
    heeded = [a.dest.removeprefix("setting_") for a in actions if a.dest.startswith("setting_")]
    if names := ", ".join(f"`{name}`" for name in heeded if name != "quiet"):
        parts += ["", f"Settings that it heeds: {names}."]
    return [*parts, ""]


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


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]


def picture(browser: str) -> None:
    """Take a picture of the demo's report."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        run(("demo", "--shipped", "--quiet", "demo"), Path(place)).check_returncode()
        subprocess.run(  # noqa: S603 - the browser that was found
            [
                *(browser, "--headless=new", "--hide-scrollbars", "--window-size=1200,1500"),
                "--no-sandbox",  # chromium has none for root, as in a container
                *(f"--user-data-dir={place}/browser", "--virtual-time-budget=2000"),
                f"--screenshot={IMAGES / 'report-light.png'}",
                (Path(place) / "demo" / "report.html").as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


def main() -> int:
    """Write all of it."""
    README.write_text(readme(), encoding="utf-8")
    COMMANDS.write_text(commands(), encoding="utf-8")
    import examples  # noqa: PLC0415 - beside this script, on the path only when it is run

    examples.PAGE.write_text(examples.page(), encoding="utf-8")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.stderr.write("no chromium here: the pictures stay as they are\n")
    else:
        picture(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())
