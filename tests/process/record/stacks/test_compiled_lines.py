"""Lines of functions in a program that was compiled here."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from critpath_record.stacks import unwind

SOURCE = "int f(int x)\n{\n  return x * 7;\n}\nint main(void) { return f(3); }\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, int]:
    """Return a program, and where in its file `f` begins."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path_factory.mktemp("compiled") / "a"
    program.with_suffix(".c").write_text(SOURCE)
    build = ["gcc", "-g", "-O0", "-o", program, program.with_suffix(".c")]
    subprocess.run(build, check=True)
    table = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    at = next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(" T f"))
    [(offset, _, virtual)] = unwind.read_segments(str(program))
    return program, at - virtual + offset


def test_lines_of_c(compiled):
    program, at = compiled
    address = unwind.Address(str(program), at, "f", False)
    assert unwind.find_lines([address]) == {address: [("f", f"{program}.c", 2)]}


def test_a_program_of_a_container_is_looked_up_where_it_was_opened(compiled):
    program, at = compiled
    found = unwind.Unwound()
    found.add([f"\t{at:x} f+0x0 (/0)"])
    with program.open("rb") as stream:
        found.elsewhere = {"/0": unwind.Elsewhere("/app/served", stream.fileno())}
        out = io.StringIO()
        unwind.write_frames(found, out)
    assert json.loads(out.getvalue())["frames"] == [["f", f"{program}.c", 2, "/app/served", False]]
