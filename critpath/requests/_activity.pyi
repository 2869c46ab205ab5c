from critpath.model import I32, I64, U8

class Activities:
    hidden: int
    renamed: int
    def __init__(self, runnable: I64, sockets: bool = False, sleeps: bool = False) -> None: ...
    def feed(
        self,
        timestamp: I64,
        cpu: I32,
        event_class: I32,
        offset: I64,
        values: I64,
        kinds: U8,
        class_host: I64,
    ) -> None: ...
    def end_gap(self, host: int, time: int) -> None: ...
    def take_rows(self) -> tuple[I64, U8, I32, I32, I32, I64]: ...
    def take_endpoints(self) -> I64: ...
