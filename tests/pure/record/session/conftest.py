"""Recordings from beginning to end, with everything played that is not critpath's session."""

from __future__ import annotations

import pytest

from tests.played.session import PlayedSession


@pytest.fixture
def session(tmp_path, monkeypatch, critpath):
    return PlayedSession(tmp_path, monkeypatch, critpath)
