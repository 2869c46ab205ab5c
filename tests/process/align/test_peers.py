"""MUSCLE 3, MUSCLE 5 and MAFFT, run now, beside the aligner on families of known alignment."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.align.multiple import align

# One small family of every group.
FAMILIES = tuple(
    f"n05_L100_{level}_{kind}_0" for kind in ("flat", "loop") for level in ("low", "mid", "high")
)
PEERS = ("muscle3", "muscle5", "mafft-text-fftns2", "mafft-text-ginsi")


@pytest.fixture(scope="module")
def peers(load):
    return load("evaluation/benchmarks/peers.py")


@pytest.fixture(scope="module")
def family(load):
    return load("pure/align/conftest.py").mutated


@pytest.fixture(scope="module")
def msa(load):
    return load("evaluation/benchmarks/msa.py")


@pytest.fixture(scope="module")
def small(msa):
    if not msa.BENCH.exists():
        pytest.skip("../shared/msa-bench is not here")
    found = [family for family in msa.families(100) if family.name in FAMILIES]
    assert len(found) == len(FAMILIES)
    return found


@pytest.fixture(scope="module")
def ours(msa, small):
    return msa.measure_method(align, small)


def skip_without(peers, peer):
    reason = peers.why_not(peer)
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_gives_back_every_row(peers, family, peer):
    skip_without(peers, peer)
    sequences = family(1, count=5, length=40, letters=12, rate=0.2)
    rows, seconds = peers.run(peer, sequences)
    assert len(rows) == len(sequences)
    assert [row[row >= 0].tolist() for row in rows] == [s.tolist() for s in sequences]
    assert seconds > 0


@pytest.mark.parametrize(
    "peer",
    [pytest.param(p, marks=pytest.mark.deep if p == "mafft-text-ginsi" else ()) for p in PEERS],
)
def test_our_alignments_are_about_as_right_as_theirs(msa, peers, small, ours, peer):
    """Six families say little: the margin is for a fault, the benchmark for the figures."""
    skip_without(peers, peer)
    theirs = msa.measure_live(peer, small, peers)
    difference = [ours[name].sp - theirs[name].sp for name in ours]
    assert np.mean(difference) > -0.05, difference
    # The stored alignments are what the benchmark shows without --live.
    stored = msa.measure_stored(small)[peer]
    assert np.mean([abs(stored[n].sp - theirs[n].sp) for n in stored]) < 0.02


def test_too_many_letters_are_refused(peers):
    for peer in peers.PEERS:
        skip_without(peers, peer)
        with pytest.raises(peers.PeerError, match="letters at most"):
            peers.run(peer, [np.array([40], np.uint8)])
