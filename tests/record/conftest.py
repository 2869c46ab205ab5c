"""What tests that stand here still need of tests/process/record; it goes with the last of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.process.record.conftest import Box


class RecordingBox(Box):
    def record(self, *arguments, env=None):
        started = self.start(*arguments, env=env)
        return SimpleNamespace(code=started.end(), err=started.said, out=started.out)


@pytest.fixture
def box(tmp_path):
    made = RecordingBox(tmp_path)
    yield made
    made.end()
