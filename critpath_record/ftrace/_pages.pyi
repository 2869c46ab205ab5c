from array import array
from typing import TypeAlias

_Bytes: TypeAlias = bytes | bytearray | memoryview

def list_records(page: _Bytes) -> list[tuple[int, bytes]]: ...

class Pages:
    def __init__(
        self,
        layout: tuple[int, int, int, int, int, int, int],
        times: tuple[int, int],
        starts: array[int],
        words: array[int],
        *,
        large: bool,
        current: tuple[int, int, int] = ...,
        swap: bool = ...,
    ) -> None: ...
    def cancel(self) -> None: ...
    def scan(
        self, data: _Bytes, starts: array[int], words: array[int], *, mapped: bool = ...
    ) -> tuple[int, int, int, int, int, int, array[int], array[int], bytes]: ...
    def write(
        self,
        data: _Bytes,
        descriptor: int,
        header: bytes,
        cpu: int,
        span: tuple[int, int],
        losses: array[int],
        beside: _Bytes,
        *,
        mapped: bool = ...,
    ) -> int: ...
