"""Prints how Pythons lay out what `critpath_record.stacks.interpreters.LAYOUTS` has of them.

    python tools/python_layouts.py PYTHON...

Each PYTHON is an interpreter with its headers, those of its internals too, as a build from source
installs them.  A small program in C is compiled against them and prints offsets; nothing that a
version does not have is asked for.  A line per version, for the table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = """
#define Py_BUILD_CORE
#include <stddef.h>
#include <stdio.h>
#include <Python.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#else
#include <internal/pycore_pystate.h>
#endif
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#endif
int main(void) {
"""
STATE, CODE = "PyThreadState", "PyCodeObject"


def offsets(minor: int) -> list[tuple[str, str] | int]:
    """Return structure and member of each number of a layout, or what it is."""
    new, frame = minor >= 11, "_PyInterpreterFrame" if minor >= 11 else "PyFrameObject"
    instruction = "instr_ptr" if minor >= 13 else "prev_instr" if new else "f_lasti"
    return [
        ("_PyRuntimeState", "interpreters.head"),
        ("struct _is", "next"),
        ("struct _is", "threads.head" if new else "tstate_head"),
        *((STATE, "next"), (STATE, "interp"), (STATE, "thread_id")),
        (STATE, "native_thread_id") if new else -1,
        (STATE, "current_frame" if minor >= 13 else "cframe" if new else "frame"),
        ("_PyCFrame", "current_frame") if minor in {11, 12} else -1,
        (frame, "f_executable" if minor >= 13 else "f_code"),
        (frame, "previous" if new else "f_back"),
        (frame, instruction),
        (frame, "owner") if new else -1,
        *((CODE, "co_firstlineno"), (CODE, "co_filename")),
        (CODE, "co_qualname" if new else "co_name"),
        (CODE, "co_linetable" if minor >= 10 else "co_lnotab"),
        (CODE, "co_code_adaptive") if new else -1,
        *(("sizeof", "PyASCIIObject"), ("sizeof", "PyCompactUnicodeObject")),
        ("-struct _is", "ceval.gil") if minor >= 12 else ("_PyRuntimeState", "ceval.gil"),
        min(max(minor - 9, 0), 2),
        int(minor >= 12),
    ]


def value(of: tuple[str, str] | int) -> str:
    """Return a number in C."""
    if isinstance(of, int):
        return str(of)
    structure, member = of
    if structure == "sizeof":
        return f"(int)sizeof({member})"
    sign = "-" if structure[0] == "-" else ""
    return f"{sign}(int)offsetof({structure.removeprefix('-')}, {member})"


def main() -> int:
    """Compile, run and print."""
    for python in sys.argv[1:]:
        ask = "import sys, sysconfig as s; print(sys.version_info[1], s.get_path('include'))"
        said = subprocess.check_output([python, "-c", ask], text=True).split(None, 1)
        minor, include = int(said[0]), said[1].strip()
        numbers = [value(of) for of in offsets(minor)]
        formats = ", ".join(["%d"] * len(numbers))
        text = (
            f'{HEADERS}printf("(3, {minor}): ({formats})\\n", {", ".join(numbers)}); return 0; }}'
        )
        with tempfile.TemporaryDirectory() as place:
            source, program = Path(place, "layout.c"), Path(place, "layout")
            source.write_text(text)
            flags = ["-w", f"-I{include}", f"-I{include}/internal"]
            subprocess.run(["cc", *flags, "-o", program, source], check=True)
            sys.stdout.write(subprocess.check_output([program], text=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
