from critpath.model import I32, I64, U8

class EventFilter:
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
    def take(self) -> tuple[I64, I32, I32, I64, I64]: ...
