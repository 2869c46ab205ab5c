from critpath.model import I32, I64, U8

class EndpointRows:
    def __init__(self, act: U8, endpoint: I32, kinds: int) -> None: ...
    def before(self, endpoint: I64, row: I64) -> I64: ...
    def after(self, endpoint: I64, row: I64) -> I64: ...

def number_threads(act: U8, tid: I32, host: I32, value: I64, more: I64) -> tuple[I64, I32, I32]: ...
def find_causes(
    act: U8, tid: I32, host: I32, endpoint: I32, serves: I32, comes: int
) -> tuple[I64, I64]: ...
def find_most(
    thread: I64,
    begin: I64,
    end: I64,
    own: I64,
    start: I64,
    slice_begin: I64,
    slice_end: I64,
    request: I32,
    code: I32,
    codes: int,
    none: int,
) -> tuple[I64, I64]: ...
