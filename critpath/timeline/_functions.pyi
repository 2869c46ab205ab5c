from critpath.model import I64, U8

def nest(
    time: I64,
    code: I64,
    what: U8,
    last: int,
    first_span: int,
    begin: I64,
    end: I64,
    of: I64,
    parent: I64,
    changes: I64,
) -> tuple[int, int]: ...
def find_longest(
    changes: I64,
    first: int,
    after: int,
    kind: I64,
    begin: I64,
    end: I64,
    tally: I64,
    found: I64,
) -> None: ...
