"""MUSCLE 3, MUSCLE 5 and MAFFT, run on sequences of states.

For benchmarks and tests beside them: they come from Debian's packages (``make test``
installs them), MUSCLE 3 unpacked below the virtual environment (``.ci/peers``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]

# MUSCLE takes proteins: the first twelve are those of ../shared/msa-bench/peers.jsonl.gz.
AMINO_ACIDS: Final = "ACDFGHKLNPWY" + "EIMQRSTV"
PLAIN: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNPACKED: Final = Path(sys.prefix) / "peers" / "usr" / "bin" / "muscle3"


class Peer(NamedTuple):
    """How one program is run: {input} and {output} are files; without the latter, stdout."""

    program: str
    arguments: tuple[str, ...]
    letters: str


_MAFFT: Final = ("--text", "--quiet", "--thread", "1")
PEERS: Final[dict[str, Peer]] = {
    "muscle3": Peer("muscle3", ("-in", "{input}", "-quiet"), AMINO_ACIDS),
    "muscle3-fast2": Peer("muscle3", ("-in", "{input}", "-quiet", "-maxiters", "2"), AMINO_ACIDS),
    "muscle5": Peer("muscle5", ("-align", "{input}", "-output", "{output}"), AMINO_ACIDS),
    "mafft-text-fftns2": Peer(
        "mafft", (*_MAFFT, "--retree", "2", "--maxiterate", "0", "{input}"), PLAIN
    ),
    "mafft-text-fftnsi": Peer(
        "mafft", (*_MAFFT, "--retree", "2", "--maxiterate", "1000", "{input}"), PLAIN
    ),
    "mafft-text-ginsi": Peer(
        "mafft", (*_MAFFT, "--globalpair", "--maxiterate", "1000", "{input}"), PLAIN
    ),
}


class PeerError(Exception):
    """A peer is not there, failed, took too long, or did not give back what it was given."""


@cache
def find(program: str) -> str | None:
    """Return where a program is: ``muscle3``, ``muscle5`` or ``mafft``."""
    if program == "mafft":
        return shutil.which("mafft")
    if program == "muscle3" and UNPACKED.exists():
        return str(UNPACKED)
    # Distributions call either version muscle: it is asked.
    for name in (program, "muscle"):
        place = shutil.which(name)
        if place is None:
            continue
        done = subprocess.run([place, "-version"], capture_output=True, text=True, check=False)
        said = (done.stdout + done.stderr).lower()
        if ("muscle v3" if program == "muscle3" else "muscle 5") in said:
            return place
    return None


def why_not(peer: str) -> str:
    """Return why a peer cannot be run here, "" if it can."""
    program = PEERS[peer].program
    if find(program) is not None:
        return ""
    how = "sh .ci/peers .venv/peers unpacks it" if program == "muscle3" else "make test installs it"
    return f"{program} is not here ({how})"


def run(peer: str, sequences: Sequence[U8], *, timeout: float = 600) -> tuple[I8, float]:
    """Align sequences with a peer.

    Parameters
    ----------
    peer : str
        A key of `PEERS`.
    sequences : sequence of uint8 arrays
        None empty; codes below 20 for MUSCLE, 26 for MAFFT.
    timeout : float
        Seconds after which it is ended.

    Returns
    -------
    tuple of (rows, seconds)
        int8 [sequences, columns], -1 for a gap, in the order given; and the time from
        start to end of its process.

    Raises
    ------
    PeerError
        Also if a row, less its gaps, is not the sequence that was given.
    """
    reason = why_not(peer)
    if reason:
        raise PeerError(reason)
    program, arguments, letters = PEERS[peer]
    if max(int(s.max()) for s in sequences) >= len(letters):
        raise PeerError(f"{peer} takes {len(letters)} letters at most")
    with tempfile.TemporaryDirectory(prefix="critpath-peers-") as place:
        source, target = Path(place) / "in.fa", Path(place) / "out.fa"
        source.write_text(
            "".join(f">{i}\n{''.join(letters[c] for c in s)}\n" for i, s in enumerate(sequences)),
            encoding="ascii",
        )
        filled = [a.format(input=source, output=target) for a in arguments]
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                [str(find(program)), *filled],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"{peer} took more than {timeout:.0f} s") from None
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise PeerError(f"{peer} failed: {done.stderr.strip()[-200:]}")
        text = target.read_text(encoding="ascii") if target.exists() else done.stdout
    return _rows(text, letters, sequences, peer), seconds


def _rows(text: str, letters: str, sequences: Sequence[U8], peer: str) -> I8:
    found: dict[int, str] = {}
    for block in text.split(">")[1:]:
        name, _, body = block.partition("\n")
        found[int(name.split()[0])] = "".join(body.split()).upper()
    if sorted(found) != list(range(len(sequences))) or len(set(map(len, found.values()))) != 1:
        raise PeerError(f"{peer} did not give back every row")
    code = {letter: i for i, letter in enumerate(letters)} | {"-": -1}
    rows = np.array([[code.get(x, -2) for x in found[i]] for i in range(len(found))], np.int8)
    for row, sequence in zip(rows, sequences, strict=True):
        if not np.array_equal(row[row != -1], sequence):
            raise PeerError(f"{peer} changed a row")
    return rows
