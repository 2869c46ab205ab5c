"""The evaluation on real servers: ``python run.py DIR [--rounds N] [--judge-only] [CASE ...]``.

``--requests``: the faults in alternation alone, as requests, judged with marks and without.

Makes an interpreter with the servers' packages (``DIR/python``), starts them (`park.py`), records
faults and healthy pairs (`corpus.py`) into ``DIR/corpus``, ends them, and judges (`judge.py`).
Tables go to ``DIR/services.md``, every answer to ``DIR/services.json``. Needs root, tracefs and
Debian's postgresql, redis-server, nginx, memcached, haproxy, beanstalkd, pgbouncer and stress-ng.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PACKAGES: Final = ("flask", "gunicorn", "waitress", "aiohttp", "redis", "psycopg2-binary")


def main() -> None:
    """Record and judge, or judge what was recorded."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument(
        "--rounds", type=int, default=3, help="healthy pairs of each kind a request"
    )
    parser.add_argument("--judge-only", action="store_true")
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("names", nargs="*", help="cases of cases.py (default: all)")
    given = parser.parse_intermixed_args()
    place: Path = given.place.resolve()
    critpath = str(Path(sys.executable).with_name("critpath"))
    if not given.judge_only:
        record(place, critpath, given.rounds, given.names, requests=given.requests)
    results = ["--json", str(place / "services.json"), "--markdown", str(place / "services.md")]
    run(sys.executable, "judge.py", str(place / "corpus"), "--critpath", critpath, *results)


def record(place: Path, critpath: str, rounds: int, names: list[str], *, requests: bool) -> None:
    """Record the whole corpus; the servers run meanwhile, and no longer."""
    python = place / "python/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place / "python")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    # Not below `place`: PostgreSQL's user has to get there.
    park = Path(tempfile.mkdtemp(prefix="critpath-services-", dir="/var/tmp")) / "park"
    park.parent.chmod(0o755)
    corpus = [str(place / "corpus"), "--critpath", critpath, "--park", str(park), *names]
    try:
        run(str(python), "park.py", str(park), "up")
        run(str(python), "corpus.py", *corpus, *(["--requests"] if requests else []))
        if requests:
            return
        for first in range(rounds):
            healthy = (*corpus, "--healthy", "1", "--first", str(first))
            run(str(python), "corpus.py", *healthy)
            run(str(python), "corpus.py", *healthy, "--busy")
            run(str(python), "corpus.py", *healthy, "--single")
            run(str(python), "corpus.py", *healthy, "--single", "--busy")
        run(str(python), "corpus.py", *corpus, "--order", "sequential")
    finally:
        run(str(python), "park.py", str(park), "down")
        park.parent.rmdir()


def run(python: str, script: str, *arguments: str) -> None:
    """Run one of the scripts beside this one."""
    subprocess.run([python, str(HERE / script), *arguments], check=True)


if __name__ == "__main__":
    main()
