from typing import Any

class Account:
    left: int
    pieces: int
    most: int
    waits: bool
    def __init__(self, *columns: Any) -> None: ...
    def account(
        self,
        after: int,
        stolen: tuple[Any, ...],
        carried_stolen: tuple[Any, ...],
        ran: tuple[Any, ...],
        carried_ran: tuple[Any, ...],
    ) -> None: ...
    def take(self, codes: Any, tid: Any, name: Any) -> list[Any]: ...

def untiled(start: Any, begin: Any, end: Any, low: Any, high: Any) -> int: ...
