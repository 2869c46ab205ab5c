"""A file of signatures whose bytes were changed is refused with its name, whatever was changed."""

from __future__ import annotations

import contextlib

import pytest

from critpath.errors import UnreadableError
from critpath.read.counts import parse_counts
from critpath.signatures.weights import weigh
from critpath.store.signatures import CountsFile

HEADER = {
    "format": "critpath/counts/1", "terms": ["sys:read"], "scopes": ["machine"],
    "clock": "monotonic", "interval": 9, "how": "bpf",
}  # fmt: skip


@pytest.mark.parametrize("name", [b"document", b"term", b"count", b"vocabulary"])
@pytest.mark.parametrize("byte", [b"\x80", b"\xff", b"\0", b"x"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name, byte):
    file = tmp_path / "a.parquet"
    counts = parse_counts(HEADER, [{"begin": 0, "end": 9, "counts": [[[0, 7]]], "loss": 0}])
    CountsFile(file).save(counts, weigh(counts))
    assert CountsFile(file).is_one()
    assert CountsFile(file).load().vocabulary == ("sys:read",)
    content = file.read_bytes()
    places = [at for at in range(len(content)) if content.startswith(name, at)]
    for at in places:
        file.write_bytes(content[: at + 2] + byte + content[at + 3 :])
        CountsFile(file).is_one()
        with contextlib.suppress(UnreadableError):
            CountsFile(file).load()
    file.write_bytes(content.replace(name, name[:2] + byte + name[3:]))
    with pytest.raises(UnreadableError, match=r"a\.parquet"):
        CountsFile(file).load()
