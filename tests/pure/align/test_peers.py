"""What MUSCLE and MAFFT answer is checked before it is compared with."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def peers(load):
    return load("evaluation/benchmarks/peers.py")


def test_what_a_peer_does_wrong_is_seen(peers):
    given = [np.array([0, 1, 2], np.uint8), np.array([0, 2], np.uint8)]

    def read(text):
        return peers._rows(text, peers.AMINO_ACIDS, given, "peer").tolist()

    assert read(">1\nA-\nD\n>0\nACD\n") == [[0, 1, 2], [0, -1, 2]]
    for text in ("", ">0\nACD\n", ">0\nACD\n>1\nAD\n", ">0\nACD\n>1\nA-C\n", ">0\nAXD\n>1\nA-D\n"):
        with pytest.raises(peers.PeerError):
            read(text)
