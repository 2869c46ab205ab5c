from critpath.model import I32, I64, U8

class Owners:
    def __init__(
        self,
        requests: I64,
        request_rows: I32,
        subrequests: I64,
        subrequest_rows: I32,
        threads: I64,
        first: I32,
        order: I32,
        serves: U8,
    ) -> None: ...
    def run(
        self,
        time: I64,
        act: U8,
        thread: I32,
        endpoint: I32,
        woken: I32,
        lead: I32,
        root: I32,
        child: I32,
        may: U8,
        given: I32,
    ) -> None: ...
    def take_slices(self) -> I64: ...
    def take_heals(self) -> I64: ...
    def take_owners(self) -> I64: ...
    def take_steps(self) -> tuple[I64, I64]: ...
