"""What the tutorial has the reader build and type, as far as it needs no recording."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"
SOURCES = ROOT / "docs" / "tutorial"


@pytest.fixture(scope="module")
def transcripts():
    place = importlib.util.spec_from_file_location("transcripts", ROOT / "docs/transcripts.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_sources_stand_in_the_tutorial_as_they_are(transcripts):
    text = TUTORIAL.read_text(encoding="utf-8")
    shown = [m for m in transcripts.BLOCK.finditer(text) if m["kind"] == "source"]
    assert {m["argument"] for m in shown} == {f"report-1.{n}.c" for n in range(3)}
    for match in shown:
        assert match["body"] == (SOURCES / match["argument"]).read_text(encoding="utf-8")


def test_both_versions_report_the_same(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    main = tmp_path / "main.c"
    main.write_text(
        '#include "shop.h"\n#include <stdio.h>\n'
        "struct table sales = {.lock = PTHREAD_MUTEX_INITIALIZER};\n"
        "int main(void) {\n  for (int i = 0; i < YESTERDAY; i++)\n"
        "    sales.amount[sales.count++] = (int)((unsigned)i * 2654435761u >> 16);\n"
        '  report();\n  printf("%ld", reported);\n}\n'
    )
    printed = set()
    for version in ("1.1", "1.2"):
        program = tmp_path / version
        subprocess.run(
            [
                *("cc", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", "-o", program),
                *(main, SOURCES / f"report-{version}.c"),
            ],
            check=True,
        )
        printed.add(subprocess.run([program], capture_output=True, check=True).stdout)
    assert len(printed) == 1
    assert int(printed.pop()) > 0


def test_a_transcript_is_what_a_shell_shows(transcripts, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "part").write_text("of the reader's\n")
    place = tmp_path / "place"
    place.mkdir()
    text = (
        "<!-- source part -->\n```text\nold\n```\n"
        "<!-- file made -->\n```toml\na = 1\n```\n"
        "<!-- run until=b -->\n```console\n$ cat part made\nold output\n$ printf 'a\\nb\\nc\\n'\n"
        "$ echo one \\\n> two; exit 3\n$ echo $?\n```\n"
        "```console\n$ rm -rf not run\n```\n"
    )
    renewed, steps = transcripts.renew(text, sources, place)
    assert renewed == text.replace("text\nold", "text\nof the reader's").replace(
        "old output\n", "of the reader's\na = 1\n"
    ).replace("c\\n'\n", "c\\n'\na\n...\n").replace("exit 3\n", "exit 3\none two\n").replace(
        "echo $?\n", "echo $?\n3\n"
    )
    assert [step.code for step in steps] == [0, 0, 3, 0]
    assert transcripts.renew(renewed, sources, place)[0] == renewed
