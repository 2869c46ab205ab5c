from critpath.model.table import I32, I64, U8

ROW_BYTES: int
OWNER_BYTES: int
BYTES_BEHIND: int

def pack_intervals(
    base: int,
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
def pack_stolen(
    base: int, out: U8, start: I64, begin: I64, end: I64, state: U8, detail: I32
) -> int: ...
def pack_ran(base: int, out: U8, start: I64, begin: I64, end: I64, worker: I32) -> int: ...
def find_rows(data: U8, start: I64, at: I64) -> None: ...
def unpack_intervals(
    base: int,
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
    base: int, data: U8, start: I64, begin: I64, end: I64, state: U8, detail: I32
) -> None: ...
def unpack_ran(base: int, data: U8, start: I64, begin: I64, end: I64, worker: I32) -> None: ...
