"""The table of docs/security.md: each file that `critpath record` loads as root, and why."""  # noqa: INP001

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "security.md"
# Files of the recorder that a recording of a command does not load, and what does.
ONLY_WITH: Final = {
    "`critpath record --always`": (
        *("flight/live.py", "flight/noticing.py", "flight/usual.py", "flight/service.py"),
        *("flight/triggers.py", "flight/_requests.pyx", "flight/kinds.py", "stacks/held.py"),
        "builds.py",
        *("flight/conditions.py", "flight/dumps.py", "flight/memory.py", "flight/pages.py"),
        "flight/state.py",  # also after a flight recorder that was killed
    ),
    "`--overhead` or `critpath record --always`": (
        *("budget/account.py", "budget/admission.py", "budget/calibrate.py", "budget/control.py"),
        *("budget/gates.py", "budget/laws.py", "budget/loop.py", "budget/natural.py"),
        *("budget/policies.py", "budget/programs.py", "budget/recording.py"),
        *("budget/selection.py", "ftrace/gate.py", "../critpath/stats/medians.py"),
    ),
    "`--recorder lttng`": ("lttng/gate.py", "lttng/recorder.py"),
    "`-a`": ("scripts.py",),
    "`--container`": ("containers.py",),
    "a profile that records sockets or packets": ("networks.py",),
    "`--functions` or `critpath record --always`": ("functions.py",),
    "`--tasks`": ("tasks.py",),
    "`--labels-from`": (*("ftrace/received.py", "ftrace/frames.py", "hpack.py", "messages.py"),),
    "`--labels-from bytes,tls`": ("ftrace/decrypted.py", "symbols.py"),
    "`--labels-from`, `--counts`, `--recorder counts` or `--files`": ("bpf.py",),
    "`--counts` or `--recorder counts`": (
        *("counts/attach.py", "counts/counting.py", "counts/events.py", "counts/fallback.py"),
        *("counts/functions.py", "counts/recorder.py", "counts/syscall_names.py"),
    ),
    "`--counts`, `--recorder counts` or `--files`": ("btf.py",),
    "`critpath doctor --deep`": ("trials.py",),
    "`critpath ab`, which executes commands as the user": ("slots.py",),
    "`--stacks`": (
        *("stacks/perf.py", "stacks/events.py", "stacks/samples.py", "stacks/interpreters.py"),
        "stacks/_sampler.pyx",
    ),
    "`--files`": ("stacks/files.py", "stacks/lookup.py", "stacks/descriptors.py"),
    "`--stacks` and `--files`": ("stacks/rings.py",),
    "`--stacks` and `--files`, and as the user alone it does what its line says": (
        "stacks/unwind.py",
    ),
    "`critpath doctor`, `--stacks` and `--files`": ("preflight.py",),
}
# What `sudo critpath record` loads before it becomes the user; the helper loads the last two.
BEFORE: Final = (
    *("critpath/__init__.py", "critpath/commands/__init__.py", "critpath/doors.py"),
    *("critpath/errors.py", "critpath_record/__init__.py", "critpath_record/rooted.py"),
    *("critpath_record/grouped.py", "critpath_record/shown.py"),
)
# Where root writes by a name; else only by descriptors of directories that it has looked at
# (tests/kernel/record/test_where_root_writes.py reads all system calls).
WRITES: Final = {
    "/sys/kernel/tracing": "instances of its own; for a moment `options/record-cmd`; the mount",
    "/sys/fs/cgroup/": "the control group that a command is counted in",
    "/run/critpath": "the registry, sockets; `/run/critpath-marks`: the markers of users",
    "/var/cache/critpath": "what an event costs",
    "/dev/null": "nothing",
    "/tmp/": "`critpath doctor --deep` alone: what it tries, new, in a directory of its own",  # noqa: S108
}
# What it loads of the rest.  The last ones, with numpy, only when a trace of LTTng is there, to
# count what is in it.
BESIDE: Final = (
    *("commands/declared.py", "commands/output.py", "commands/overview.py", "commands/parser.py"),
    *(
        "commands/record.py",
        "commands/recorded.py",
        "commands/settings.py",
        "confined.py",
        "doors.py",
    ),
    *("_cyutility.c", "errors.py", "extras.py", "records.py", "units.py", "untrusted.py"),
    *("model/containers.py", "model/recording.py", "model/manifest.py"),
    "schema/ways.py",
    *("schema/parameters/ab.py", "schema/parameters/budget.py"),
    "schema/parameters/shared.py",
)
COUNTING: Final = (
    "schema/environment.py",
    *("model/clocks.py", "model/events.py", "model/gaps.py", "model/requests.py"),
    *("model/table.py", "schema/kinds.py", "read/_decode.pyx", "read/_merge.pyx"),
    *("read/clocks.py", "read/compiled_trace.py", "read/hosts.py", "read/losses.py"),
    *("read/manifest.py", "read/metadata/layout.py", "read/metadata/lexer.py"),
    *("read/metadata/load.py", "read/metadata/schema.py", "read/metadata/tsdl.py"),
    *("read/metadata/tsdl_types.py", "read/packets.py", "read/program.py", "read/recording.py"),
    *("read/selection.py", "read/streaming.py", "read/streams.py"),
    "read/traces.py",
)


# What no file of the tree has: Cython writes it when critpath is built.
WRITTEN: Final = {"_cyutility.c": "What Cython writes of memory views, once for all native modules"}


def module_of(file: str) -> str:
    """Return what Python calls a file."""
    return file.rpartition(".")[0].replace("/", ".")


def recorder_files() -> list[str]:
    """Return the recorder's files that Python loads, from its folder on."""
    house = ROOT / "critpath_record"
    found = (p for p in house.rglob("*") if p.suffix in {".py", ".pyx"} and p.stem != "__init__")
    return sorted(p.relative_to(house).as_posix() for p in found)


def table() -> str:
    """Return the rows, by when a file is loaded."""
    seldom = [file for files in ONLY_WITH.values() for file in files]
    of = (f"critpath_record/{file}" for file in recorder_files() if file not in seldom)
    always = [file for file in of if file not in BEFORE]
    lines = ["| file | what it is there for |", "|---|---|"]
    # tests/kernel/record/test_least_root.py counts them.
    lines += _rows("under sudo, before it is the user: at most 1,500 lines", BEFORE)
    lines += _rows("always, where it stays root", always)
    lines += _rows("always, of what others use too", [f"critpath/{file}" for file in BESIDE])
    for when, files in ONLY_WITH.items():
        paths = [f"critpath_record/{file}".replace("critpath_record/../", "") for file in files]
        lines += _rows(f"with {when}", paths)
    counting = (
        "`--recorder lttng`, when its trace is there, and with numpy: what is in it is counted"
    )
    lines += _rows(f"with {counting}", [f"critpath/{file}" for file in COUNTING])
    lines += ["", "| where root writes by a name | what |", "|---|---|"]
    lines += [f"| `{place}` | {what} |" for place, what in WRITES.items()]
    return "\n".join(lines)


def _rows(when: str, files: Iterable[str]) -> list[str]:
    return [f"| **{when}** | |", *(f"| `{file}` | {_why(ROOT / file)} |" for file in files)]


def _why(file: Path) -> str:
    """Return the first sentence of a file's docstring."""
    if file.name in WRITTEN:
        return WRITTEN[file.name]
    text = file.read_text(encoding="utf-8")
    found = re.search(r'^"""(.+?)(?:"""|\n\n)', text, re.DOTALL | re.MULTILINE)
    words = " ".join(found[1].split()) if found else ""
    return re.split(r"(?<=[a-z)`])\. ", words)[0].rstrip(".").replace("|", "\\|").replace("``", "`")
