"""Writes the table of system calls' numbers and names from the kernel's headers (linux-libc-dev).

``python tools/syscall_names.py > critpath_record/counts/syscall_names.py``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PLACES = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "generic": "/usr/include/asm-generic/unistd.h",
}
# Newer than the headers may be; these numbers are the same on every architecture.
NEWER = {
    451: "cachestat",
    452: "fchmodat2",
    453: "map_shadow_stack",
    454: "futex_wake",
    455: "futex_wait",
    456: "futex_requeue",
    457: "statmount",
    458: "listmount",
    459: "lsm_get_self_attr",
    460: "lsm_set_self_attr",
    461: "lsm_list_modules",
    462: "mseal",
    463: "setxattrat",
    464: "getxattrat",
    465: "listxattrat",
    466: "removexattrat",
    467: "open_tree_attr",
    468: "file_getattr",
    469: "file_setattr",
}
SHARED = 424  # from here on all architectures have the same
NOT_CALLS = {"syscalls", "arch_specific_syscall"}
# Beside the generic ones, numbered from arch_specific_syscall on.
RISCV = {258: "riscv_hwprobe", 259: "riscv_flush_icache"}


def read_names(text: str) -> dict[int, str]:
    """Return names by number."""
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text, re.MULTILINE)
    return {int(number): name for name, number in found if name not in NOT_CALLS}


def main() -> None:
    """Print the module."""
    tables = {name: read_names(Path(place).read_text()) for name, place in PLACES.items()}
    print('"""Numbers and names of system calls; made by tools/syscall_names.py."""\n')
    print("from __future__ import annotations\n")
    print("import platform\nfrom collections.abc import Mapping\nfrom typing import Final\n")
    for table in tables.values():
        table |= {number: of for number, of in NEWER.items() if number > max(table)}
    # From here on they are the same.
    shared = {number: name for number, name in tables["generic"].items() if number >= SHARED}
    if any(tables["x86_64"].get(number) != name for number, name in shared.items()):
        sys.exit("what should be shared is not")
    tables = {
        **{of: {n: s for n, s in names.items() if n < SHARED} for of, names in tables.items()},
        "shared": shared,
    }
    for name, table in tables.items():
        print(f"_{name.upper()}: Final = (")
        line = "    "
        for number, of in sorted(table.items()):
            # A name counts one from the name before; where that is not so, its number is said.
            word = of if number - 1 in table else f"{number}={of}"
            if len(line) + len(word) > 92:
                print(f'    "{line[4:]}"')
                line = "    "
            line += word + " "
        print(f'    "{line[4:]}"\n)')
    riscv = " ".join(f"{number}={name}" for number, name in RISCV.items())
    print(f'_RISCV: Final = "{riscv}"')
    print(
        """_ARCHITECTURES: Final[Mapping[str, str]] = {
    "x86_64": _X86_64 + _SHARED,
    "aarch64": _GENERIC + _SHARED,
    "riscv64": _GENERIC + _SHARED + _RISCV,
}


def syscall_names(machine: str = "") -> Mapping[int, str]:
    \"\"\"Return an architecture's system calls by number, as man pages call them.\"\"\"
    found: dict[int, str] = {}
    number = -1  # a name counts one from the one before, or has its number in front
    for word in _ARCHITECTURES.get(machine or platform.machine(), "").split():
        *given, name = word.split("=")
        number = int(given[0]) if given else number + 1
        found[number] = name
    return found"""
    )


if __name__ == "__main__":
    sys.exit(main())
