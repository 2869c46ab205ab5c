from collections.abc import Callable, Sequence

class PageWriter:
    def __init__(self, directory: str, *, big_endian: bool = False, held: bool = False) -> None: ...
    def add(self, cpu: int, time: int, record: bytes) -> None: ...
    def add_loss(self, cpu: int, time: int, count: int) -> None: ...
    def flush_until(self, time: int) -> None: ...
    def close(self) -> dict[int, tuple[int, int, int, int, int, int, int]]: ...

class Packets:
    switches: int
    waking: int
    events: int
    bundles: int
    skipped_switches: int
    damaged: int
    foreign: int
    lost: int
    clockless: int
    clocks: dict[int, int]
    described: dict[int, int]
    raw_shift: int | None
    def __init__(
        self,
        pages: PageWriter,
        shapes: Sequence[tuple[int, int, int, Sequence[tuple[int, int, int, int]]]],
        switch: int,
        waking: int,
        hand_on: Callable[[int, bytes, tuple[int | None, int, int, int, bool]], None],
        describe: Callable[[int, bytes], bytes | None],
        wanted: frozenset[int],
    ) -> None: ...
    @property
    def left_out(self) -> dict[int, int]: ...
    @property
    def occurred(self) -> set[int]: ...
    def feed(self, data: bytes) -> tuple[int, int]: ...
    def mark_all_lost(self) -> None: ...
    def finish(self) -> None: ...

def read_fields(message: bytes) -> tuple[list[tuple[int, int | bytes]], bool]: ...
