"""What the compiler can do against a mistake in native code is in what is installed."""

from __future__ import annotations

import io
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

import critpath
import critpath_record

PLACES = [Path(next(iter(one.__path__))) for one in (critpath, critpath_record)]
MODULES = sorted(found for place in PLACES for found in place.rglob("*.so"))
# What they import is counted by the functions that check sizes: one that copies nothing has none.
FORTIFIED = {"__memcpy_chk", "__memset_chk", "__memmove_chk", "__snprintf_chk", "__sprintf_chk"}

ENDBR64 = b"\xf3\x0f\x1e\xfa"


def open_elf(path: Path) -> ELFFile:
    return ELFFile(io.BytesIO(path.read_bytes()))


def imports_of(path: Path) -> set[str]:
    table = open_elf(path).get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    return {symbol.name for symbol in table.iter_symbols()}


def test_there_are_modules():
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name.partition(".")[0])
def test_addresses_are_bound_before_anything_runs(path):
    """Nothing of the table of addresses can be written, and no stack or page is executed."""
    elf = open_elf(path)
    segments = {segment["p_type"]: segment for segment in elf.iter_segments()}
    assert "PT_GNU_RELRO" in segments
    assert not segments["PT_GNU_STACK"]["p_flags"] & 1
    writable = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD" and s["p_flags"] & 2]
    assert not [segment for segment in writable if segment["p_flags"] & 1]
    [dynamic] = [section for section in elf.iter_sections() if isinstance(section, DynamicSection)]
    flags = {tag.entry.d_tag: tag.entry.d_val for tag in dynamic.iter_tags()}
    assert flags.get("DT_FLAGS", 0) & 8 or flags.get("DT_FLAGS_1", 0) & 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CET is of x86-64")
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name.partition(".")[0])
def test_jumps_land_where_they_may(path):
    """Returns are checked (SHSTK), and what is called from outside begins as IBT wants it.

    That a module is marked for IBT is up to the C library's start files, which few have so.
    """
    elf = open_elf(path)
    features = [
        item.pr_data
        for section in elf.iter_sections()
        if isinstance(section, NoteSection)
        for note in section.iter_notes()
        if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0"
        for item in note["n_desc"]
        if item.pr_type == "GNU_PROPERTY_X86_FEATURE_1_AND"
    ]
    assert [found & 2 for found in features] == [2]
    table = elf.get_section_by_name(".dynsym")
    [start] = [s for s in table.iter_symbols() if s.name.startswith("PyInit_")]
    [offset] = elf.address_offsets(start["st_value"])
    assert path.read_bytes()[offset : offset + 4] == ENDBR64


def test_stacks_have_a_guard_and_copies_are_checked():
    """Not in every module: one with no array on its stack, or no copy, needs neither."""
    imported = {path.name.partition(".")[0]: imports_of(path) for path in MODULES}
    guarded = {name for name, names in imported.items() if "__stack_chk_fail" in names}
    assert {"_decode", "_pages", "_spawn", "_sampler"} <= guarded
    assert [name for name, names in imported.items() if names & FORTIFIED]


def test_modules_load():
    """Each is loaded by a Python of its own, whatever was bound late before."""
    words = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    names = []
    for path in MODULES:
        [place] = [place for place in PLACES if path.is_relative_to(place)]
        inside = path.relative_to(place.parent).with_name(path.name.partition(".")[0])
        names.append(".".join(inside.parts))
    subprocess.run([sys.executable, "-P", "-c", words, *names], check=True)
