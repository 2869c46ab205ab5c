"""Builds what is fuzzed: the C that Cython made, with clang's sanitizers and coverage.

    python tests/fuzz/build.py

`make build` has left that C below ``build/``: the same that is installed.  Modules on the
way of foreign bytes are compiled anew from it into ``build/fuzz/critpath``, beside copies
of the Python sources; ``build/fuzz/atheris`` is a virtual environment whose only package
is atheris.  What is up to date stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "build" / "fuzz"
# Of the ordinary build (Makefile).
NATIVE: Final = ROOT / "build" / "native"

# Everything that bytes of others reach before a comparison begins.
MODULES: Final = (
    "read/_decode",
    "read/_merge",
    "read/_scan",
    "timeline/_missing",
    "timeline/_replay",
    "model/_lookup",
    "model/_packing",
    "graph/_processors",
    "graph/_walk",
    "executions/_prefilter",
    "vectors/_count",
    "requests/_activity",
    "requests/_turns",
    "requests/_owners",
    "requests/_pieces",
    "explore/_bits",
    "convert/_ftrace_text",
    "convert/_perf_data",
    "convert/_perfetto",
    "convert/_trace_dat",
)

# -O1 keeps accesses that -O3 would find useless.  Unaligned words are read on purpose, on
# processors that read them (`read/_decode.pyx`); Cython itself adds nothing to a null pointer
# (`__Pyx_KwValues_FASTCALL`), which C forbids, and nothing comes of: what is outside of an
# array is for AddressSanitizer.
FLAGS: Final = (
    *("-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-w"),
    "-DPy_LIMITED_API=0x030b0000",
    *("-std=c11", "-ffp-contract=off", "-fno-strict-aliasing"),
    "-fsanitize=address,undefined,fuzzer-no-link",
    "-fno-sanitize=alignment,pointer-overflow",
    "-fno-sanitize-recover=undefined",
    # A list of names in system libraries that clang's run-time library brings, which is
    # not needed: atheris has all of it, with libFuzzer.
    "-fno-sanitize-ignorelist",
    *("-fPIC", "-shared"),
)
ATHERIS: Final = "atheris==3.0.0"


def environment() -> Path:
    """Return the interpreter of an environment with atheris and what `.venv` has.

    Without `.venv` itself, whose critpath would be found first.
    """
    home = PLACE / "atheris"
    python = home / "bin" / "python"
    done = home / "ready"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = home / "lib" / version / "site-packages"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", str(packages), ATHERIS], check=True)
        # As a plain directory: hooks (*.pth) within it are not run.
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        done.touch()
    return python


def preloaded(python: Path) -> Path:
    """Return the library with libFuzzer, ASan and UBSan that atheris brings."""
    [found] = (python.parent.parent / "lib").glob("python*/site-packages/asan_with_fuzzer.so")
    return found


_HOUSES: Final = ("critpath", "critpath_record")
# The limited API (meson.build).
_SUFFIX: Final = ".abi3.so"


def _made_by_cython(module: str) -> Path:
    name = module.rpartition("/")[2]
    found = sorted(NATIVE.rglob(f"{name}.c"))
    if len(found) != 1:
        raise FileNotFoundError(f"build/native has not one {name}.c: run make build first")
    return found[0]


def _copy(source: Path, target: Path) -> None:
    """Copy a file that changed, in one step: another run may have the one before in memory."""
    now = source.stat()
    if target.exists() and target.stat().st_mtime_ns == now.st_mtime_ns:
        return
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.copy2(source, part)
    part.replace(target)


def _as_it_is(library: Path, house: str) -> None:
    """Copy a native module that only works with what others have checked."""
    name = library.name.removesuffix(_SUFFIX)
    if name == "_cyutility":
        _copy(library, PLACE / house / library.name)
    for source in (ROOT / house).rglob(f"{name}.pyx"):
        module = str(source.relative_to(ROOT / house).with_suffix(""))
        if house != "critpath" or module not in MODULES:
            target = PLACE / house / f"{module}{_SUFFIX}"
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(library, target)


def _compile(module: str) -> None:
    source = _made_by_cython(module)
    target = PLACE / "critpath" / f"{module}{_SUFFIX}"
    this = Path(__file__)
    newest = max(source.stat().st_mtime, this.stat().st_mtime)
    if target.exists() and target.stat().st_mtime >= newest:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    include = sysconfig.get_path("include")
    command = ["clang", *FLAGS, f"-I{include}", str(source), "-o", str(part)]
    subprocess.run(command, check=True)
    part.replace(target)


def _sources() -> Iterator[Path]:
    for house in _HOUSES:
        for path in (ROOT / house).rglob("*"):
            if path.suffix in {".py", ".js", ".css", ".json"}:
                yield path.relative_to(ROOT)


def build() -> Path:
    """Bring everything up to date; return the interpreter to run it with."""
    python = environment()
    ours = set(_sources())
    for path in (of for house in _HOUSES for of in (PLACE / house).rglob("*.py")):
        if path.relative_to(PLACE) not in ours:
            path.unlink()
    for path in ours:
        target = PLACE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(ROOT / path, target)
    for house in _HOUSES:
        for path in NATIVE.glob(f"{house}/*{_SUFFIX}"):
            _as_it_is(path, house)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, MODULES))
    return python


if __name__ == "__main__":
    print(build())
