from critpath.model import I32, I64, U8

class EventFilter:
    kept_count: int
    def __init__(self, gap_start: I64, gap_begin: I64, gap_end: I64) -> None: ...
    def feed(
        self,
        timestamp: I64,
        cpu: I32,
        event_class: I32,
        offset: I64,
        values: I64,
        actions: U8,
        class_host: I64,
        widths: I64,
    ) -> None: ...
    def cut(self, aside: U8, all: bool) -> tuple[I64, I64, I32, I32, I64, I64, I64]: ...  # noqa: A002
    def take(self) -> tuple[I64, I32, I32, I64, I64, I64, I64]: ...
