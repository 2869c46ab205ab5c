from critpath.model.table import F64, I64, U8

def join_segments(begin: I64, end: I64, kind: I64, texts: bytes, bounds: I64) -> bytearray: ...
def sum_paths(
    start: I64,
    begin: I64,
    end: I64,
    state: U8,
    uncertainty: I64,
    confidence: F64,
    others: U8,
    states: int,
) -> tuple[I64, I64, I64, F64]: ...
