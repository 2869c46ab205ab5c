from typing import Any

class Column:
    def array(self) -> Any: ...

class Replay:
    interval_worker: Column
    interval_begin: Column
    interval_end: Column
    interval_state: Column
    interval_detail: Column
    interval_cpu: Column
    interval_waker: Column
    interval_woken: Column
    stolen_processor: Column
    stolen_begin: Column
    stolen_end: Column
    stolen_state: Column
    stolen_detail: Column
    ran_processor: Column
    ran_begin: Column
    ran_end: Column
    ran_worker: Column
    unplaced: int
    def __init__(self, hosts: int, cpus: int, **tables: Any) -> None: ...
    def run(self, *columns: Any) -> None: ...
    def worker_table(self) -> dict[str, Any]: ...
    def processor_table(self) -> tuple[tuple[int, int], ...]: ...

def group(key: Any, groups: int) -> tuple[Any, Any]: ...
