from array import array
from typing import Any, TypeAlias

_Bytes: TypeAlias = bytes | bytearray | memoryview

def count_kinds(
    data: _Bytes, layout: tuple[int, int, int, int], big_endian: bool
) -> dict[int, int]: ...

class PageWriter:
    def __init__(self, directory: str, *, big_endian: bool = ..., held: bool = ...) -> None: ...
    def add(self, cpu: int, time: int, record: _Bytes) -> None: ...
    def add_loss(self, cpu: int, time: int, count: int) -> None: ...
    def flush_until(self, time: int) -> None: ...
    def close(self) -> dict[int, tuple[int, int, int, int, int, int, int]]: ...

class Merger:
    def __init__(
        self,
        layout: tuple[int, int, int, int],
        *,
        big_endian: bool,
        rate: tuple[int, int, int] = ...,
        shifts: tuple[array[Any], ...] = ...,
    ) -> None: ...
    def merge(
        self, buffers: list[Any], taken: list[_Bytes], cpu: int, pages: PageWriter
    ) -> tuple[int, int]: ...
