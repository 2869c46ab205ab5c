from critpath.model import I32, I64, U8

class Cutter:
    def __init__(self, endpoints: int, hosts: int) -> None: ...
    def feed(
        self,
        time: I64,
        act: U8,
        tid: I32,
        host: I32,
        endpoint: I32,
        value: I64,
        peer: I32,
        serves: U8,
    ) -> None: ...
    def take_turns(self) -> I64: ...
    def take_counts(self, endpoints: int) -> I64: ...
