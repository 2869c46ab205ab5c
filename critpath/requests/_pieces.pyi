from collections.abc import Sequence

from critpath.model import I32, I64, U8

class Composer:
    def __init__(
        self,
        times: I64,
        threads: I32,
        doubtful: U8,
        first: I64,
        asked: I64,
        asked_rows: I32,
        slice_first: I64,
        slice_begin: I64,
        slice_end: I64,
        slice_request: I64,
        sleep_first: I64,
        sleeps: I64,
        loops: U8,
        states: Sequence[int],
    ) -> None: ...
    def count_doubtful(self, rows: I64) -> int: ...
    def compose(self, rows: I64) -> tuple[I64, I64]: ...
