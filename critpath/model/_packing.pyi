from critpath.model.columns import I32, I64, U8

ROW_BYTES: int
OWNER_BYTES: int
BYTES_BEHIND: int

def pack_rows(
    cut: int,
    out: U8,
    start: I64,
    begin: I64,
    end: I64,
    state: U8,
    detail: I32,
    cpu: I32,
    waker: I32,
    woken: I64,
) -> int: ...
def find_rows(data: U8, start: I64, at: I64) -> None: ...
def unpack_intervals(
    cut: int,
    data: U8,
    start: I64,
    begin: I64,
    end: I64,
    state: U8,
    detail: I32,
    cpu: I32,
    waker: I32,
    woken: I64,
) -> None: ...
def unpack_stolen(
    cut: int, data: U8, start: I64, begin: I64, end: I64, state: U8, detail: I32
) -> None: ...
def unpack_ran(cut: int, data: U8, start: I64, begin: I64, end: I64, worker: I32) -> None: ...
