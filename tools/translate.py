"""Translates Cython's modules to C, several in a process: starting Cython is most of its time.

    python tools/translate.py DIRECTORY [OPTION ...] MODULE.pyx ...

For each MODULE.pyx the directory gets MODULE.c, byte for byte what `cython OPTION ... -o` writes.
One that is newer than its source and what that includes stays as it is.
"""

import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from Cython.Compiler.Main import setuptools_main as run_cython  # what the command `cython` calls

_INCLUDED = re.compile(rb'^\s*include\s+"([^"]+)"', re.MULTILINE)


def translate(source: Path, target: Path, options: list[str]) -> bool:
    """Translate one; return whether that failed, for which Cython has said why."""
    sys.argv[1:] = [*options, str(source), "-o", str(target)]
    try:
        run_cython()
    except SystemExit as ended:
        if ended.code:
            target.unlink(missing_ok=True)
            return True
    return False


def is_current(source: Path, target: Path, places: list[Path]) -> bool:
    """Tell whether a translation is newer than all that it was made of."""
    if not target.exists():
        return False
    made, known, open_ = target.stat().st_mtime, set[Path](), [source]
    while open_:
        file = open_.pop()
        if file in known:
            continue
        known.add(file)
        if file.stat().st_mtime >= made:
            return False
        for name in _INCLUDED.findall(file.read_bytes()):
            found = (place / os.fsdecode(name) for place in (source.parent, *places))
            open_ += [path for path in found if path.exists()]
    return True


def main() -> int:
    """Translate what is not current, on as many processors as there are."""
    directory, *words = sys.argv[1:]
    sources = [Path(word) for word in words if word.endswith(".pyx")]
    options = [word for word in words if not word.endswith(".pyx")]
    places = [Path(b) for a, b in pairwise(options) if a == "-I"]
    jobs = [(source, Path(directory, f"{source.stem}.c"), options) for source in sources]
    jobs = [job for job in jobs if not is_current(*job[:2], places)]
    jobs.sort(key=lambda job: -job[0].stat().st_size)  # the longest not last
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        return int(any(pool.map(translate, *zip(*jobs, strict=True)))) if jobs else 0


if __name__ == "__main__":
    sys.exit(main())
