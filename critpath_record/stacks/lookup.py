"""The program in the kernel that looks up what a thread goes to sleep for, at that moment.

The thread's registers have the system call and its descriptor; what that is of, the kernel's own
structures say, whose members lie where its types (BTF) have them.  So nothing is followed, and
nothing is missed while nobody looks.  Registers of the program: 6 the thread's, 7 a pointer, 8
where the record is made, 9 how long its texts are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from critpath.errors import CritpathError
from critpath_record import bpf
from critpath_record.btf import BTF, Types
from critpath_record.counts.syscall_names import syscall_names

# When, thread, process, descriptor, number of the call (-1: none), what comes, whether a path is
# whole; bytes of the text that was given, and of all that comes.
HEAD: Final = struct.Struct("<QIIihBBHH4x")
NOTHING, FILE, SOCKET, PATH, ADDRESS = range(5)
# Of a socket: family, state, ports, addresses; of a unix socket its own and its peer's.
INET_FACTS: Final = struct.Struct("<HBx2sH16s16s")
UNIX_FACTS: Final = struct.Struct("<HBx4xI112sI112s")
MOST: Final = HEAD.size + 1024 + 256  # bytes of a record
UNIX, INET, INET6 = 1, 2, 10
# Of what is mapped: whether to look, then for each cpu ns spent, events, and those that were lost.
OPEN_AT, LANE, SPENT, EVENTS, LOST = 0, 64, 0, 8, 16

# System calls by where they say what they are about: a descriptor, a path from where its process
# works, one from a directory.
USES: Final = (
    *("read", "write", "recvfrom", "sendto", "recvmsg", "sendmsg", "readv", "writev", "fsync"),
    *("fdatasync", "pread64", "pwrite64", "preadv", "preadv2", "pwritev", "pwritev2", "getdents64"),
    *("sendfile", "ftruncate", "fallocate", "sync_file_range", "syncfs", "flock", "fcntl", "close"),
    *("recvmmsg", "sendmmsg", "accept", "accept4", "bind"),
)
FROM_HERE: Final = ("open", "creat", "stat", "lstat", "unlink", "rename", "mkdir", "truncate")
FROM_DIRECTORY: Final = ("openat", "openat2", "newfstatat", "statx", "unlinkat", "renameat2")
_HERE: Final = -100  # AT_FDCWD

_MEMBERS: Final = {
    "task_struct": ("files", "fs", "tgid"),
    "files_struct": ("fdt",),
    "fdtable": ("max_fds", "fd"),
    "file": ("f_path.mnt", "f_path.dentry", "f_inode", "private_data"),
    "fs_struct": ("pwd.mnt", "pwd.dentry"),
    "inode": ("i_mode",),
    "dentry": ("d_parent", "d_name.name"),
    "mount": ("mnt_parent", "mnt_mountpoint", "mnt"),
    "vfsmount": ("mnt_root",),
    "socket": ("sk",),
    "sock": tuple(
        f"__sk_common.skc_{name}"
        for name in ("family", "state", "dport", "num", "daddr", "rcv_saddr")
    ),
}
# Of kernels without these nothing is said of IPv6, or of unix sockets.
_OPTIONAL: Final = {
    "sock": ("__sk_common.skc_v6_daddr", "__sk_common.skc_v6_rcv_saddr"),
    "unix_sock": ("addr", "peer"),
    "unix_address": ("len", "name"),
}
_STEPS: Final = 16  # directories of a path, and mounts between them
_GIVEN: Final = 256  # bytes of a text that was given
_SOCKADDR: Final = 112
_LAST: Final = 1023  # where the last part of a path may begin
# Of struct pt_regs on x86-64.
_DX, _SI, _DI, _NUMBER, _IP, _CX, _CS = 96, 104, 112, 120, 128, 88, 136
_USER: Final = 0x33
_DEAD: Final = 0x80  # of a thread's state
_FORMAT, _IS_SOCKET = 0xF000, 0xC000  # of a mode
# On the stack: when it began; a directory's entry, its mount and where that begins; what is read.
_BEGAN, _ENTRY, _MOUNT, _ROOT, _TWO, _ONE, _ARGUMENTS = -8, -16, -24, -32, -48, -56, -64
_ENTRY_FACTS: Final = -128


@dataclass(frozen=True)
class Whom:
    """Whose sleeps are looked at: all but the recorder's, or those of a group, or of processes."""

    own: int
    group: int = 0  # its number, and how deep it is
    level: int = 0
    processes: int = -1  # descriptor of the table that has them


def find_places() -> tuple[dict[str, int], bool]:
    """Return where the kernel's structures have what is needed, and how a switch tells the state.

    Raises CritpathError if it does not say.
    """
    try:
        types = Types(BTF.read_bytes())
    except (OSError, ValueError, struct.error) as error:
        raise CritpathError(
            f"this kernel does not describe its types ({error})",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, or record without --files",
        ) from None
    every = {
        name: (*_MEMBERS.get(name, ()), *_OPTIONAL.get(name, ()))
        for name in {*_MEMBERS, *_OPTIONAL}
    }
    every["task_struct"] += ("__state", "state")
    found = types.find_offsets(every)
    missing = [
        f"{of}.{m}" for of, names in _MEMBERS.items() for m in names if f"{of}.{m}" not in found
    ]
    if missing:
        raise CritpathError(f"this kernel has no {missing[0]}", "record without --files")
    return found, types.count_arguments("btf_trace_sched_switch") == 5


@dataclass
class Lookup:
    """Assembles the program."""

    places: dict[str, int]
    tells_state: bool
    whom: Whom
    cpus: int
    state: int  # descriptors: of what is mapped, of the scratch memory, of events by cpu
    scratch: int
    events: int

    def assemble(self) -> bytes:
        """Return the program for ``sched_switch``."""
        a = self.a = bpf.Assembler()
        numbers = {name: number for number, name in syscall_names().items()}
        self._choose_thread()
        self._begin_record()
        self._choose_call(numbers)
        self._find_file()
        self._tell_socket()
        self._take_text()
        self._walk()
        self._hand_over()
        return a.bytes()

    def _read(
        self,
        to: int,
        of: int,
        offset: int,
        size: int = 8,
        *,
        base: int = 10,
        fails: str = "send",
        by: int = bpf.READ_KERNEL,
    ) -> None:
        """Read memory at a register plus an offset, to another one plus an offset."""
        a = self.a
        a.copy(1, base)
        a.add(1, to)
        a.set(2, size)
        a.copy(3, of)
        if offset:
            a.add(3, offset)
        a.call(by)
        a.jump_if(0, 0, fails, code=bpf.NOT_EQUAL)

    def _choose_thread(self) -> None:
        """Go on for a thread in scope that goes to sleep in a system call or elsewhere."""
        a = self.a
        a.put(bpf.STORE64, 10, 1, _ARGUMENTS)
        a.copy(6, 1)
        a.map_value(1, self.state, OPEN_AT)
        a.put(bpf.LOAD64, 1, 1)
        a.jump_if(1, 0, "out")
        a.put(bpf.LOAD64, 1, 6, 0)
        a.mask(1, 0xFF)
        a.jump_if(1, 0, "out", code=bpf.NOT_EQUAL)  # preempted
        if self.tells_state:
            a.put(bpf.LOAD64, 1, 6, 24)
        else:
            name = "__state" if "task_struct.__state" in self.places else "state"
            a.put(bpf.LOAD64, 3, 6, 8)
            self._read(_ONE, 3, self.places[f"task_struct.{name}"], 8, fails="out")
            a.put(bpf.LOAD64, 1, 10, _ONE)
        a.jump_if(1, _DEAD, "out", code=bpf.ANY_BIT)
        a.shift_left(1, 32)
        a.jump_if(1, 0, "out")  # it may go on
        a.call(bpf.NOW)
        a.put(bpf.STORE64, 10, 0, _BEGAN)
        a.call(bpf.PID_TGID)
        a.copy(7, 0)
        a.put(bpf.SHIFT_RIGHT, 0, value=32)
        a.jump_if(0, self.whom.own, "charge")
        a.put(bpf.STORE32, 10, 0, _ONE)
        if self.whom.group:
            a.set(1, self.whom.level)
            a.call(bpf.ANCESTOR_GROUP)
            a.set64(1, self.whom.group)
            a.put(bpf.NOT_EQUAL_REGISTERS, 0, 1, "charge")
        elif self.whom.processes >= 0:
            a.map(1, self.whom.processes)
            a.copy(2, 10)
            a.add(2, _ONE)
            a.call(bpf.LOOKUP)
            a.jump_if(0, 0, "charge")

    def _begin_record(self) -> None:
        a = self.a
        a.put(bpf.LOAD32, 9, 10, _ONE)
        a.set(1, 0)
        a.put(bpf.STORE32, 10, 1, _ONE)
        a.map(1, self.scratch)
        a.copy(2, 10)
        a.add(2, _ONE)
        a.call(bpf.LOOKUP)
        a.jump_if(0, 0, "charge")
        a.copy(8, 0)
        a.put(bpf.LOAD64, 1, 10, _BEGAN)
        a.put(bpf.STORE64, 8, 1, 0)
        a.put(bpf.STORE32, 8, 7, 8)
        a.put(bpf.STORE32, 8, 9, 12)
        a.set(1, -1)
        a.put(bpf.STORE64, 8, 1, 16)
        a.set(1, 0)
        a.put(bpf.STORE16, 8, 1, 22)  # nothing comes
        a.put(bpf.STORE64, 8, 1, 24)
        a.set(9, 0)
        a.call(bpf.CURRENT)
        a.copy(7, 0)
        a.copy(1, 0)
        a.call(bpf.REGISTERS)
        a.copy(6, 0)

    def _choose_call(self, numbers: dict[str, int]) -> None:
        """Go to what finds a descriptor's file, or takes a text, with the descriptor at `_ONE`."""
        a = self.a
        # In a system call the processor left the address and flags of what comes next there; an
        # exception leaves no number of a call.
        a.put(bpf.LOAD64, 1, 6, _CS)
        a.jump_if(1, _USER, "send", code=bpf.NOT_EQUAL)
        a.put(bpf.LOAD64, 1, 6, _IP)
        a.put(bpf.LOAD64, 2, 6, _CX)
        a.put(bpf.NOT_EQUAL_REGISTERS, 1, 2, "send")
        a.put(bpf.LOAD64, 1, 6, _NUMBER)
        a.put(bpf.STORE16, 8, 1, 20)
        a.put(bpf.LOAD64, 2, 6, _DI)
        a.put(bpf.STORE32, 8, 2, 16)
        a.put(bpf.STORE32, 10, 2, _ONE)
        for names, where in ((USES, "file"), (FROM_HERE, "here"), (FROM_DIRECTORY, "directory")):
            for name in names:
                a.jump_if(1, numbers[name], where)
        a.jump_if(1, numbers["connect"], "address")
        a.jump_if(1, numbers["poll"], "send", code=bpf.NOT_EQUAL)
        a.put(bpf.LOAD64, 1, 6, _SI)
        a.jump_if(1, 1, "send", code=bpf.NOT_EQUAL)  # of several descriptors none is the one
        self._read(_ONE, 2, 0, 4, by=bpf.READ_USER)
        a.put(bpf.LOAD32, 1, 10, _ONE)
        a.put(bpf.STORE32, 8, 1, 16)
        a.jump("file")

    def _find_file(self) -> None:
        """Put entry and mount of the descriptor at `_ONE` in place; of a socket go on to it."""
        a, at = self.a, self.places
        a.name("file")
        self._read(_TWO, 7, at["task_struct.files"])
        a.put(bpf.LOAD64, 3, 10, _TWO)
        self._read(_TWO, 3, at["files_struct.fdt"])
        a.put(bpf.LOAD64, 7, 10, _TWO)
        self._read(_TWO, 7, at["fdtable.max_fds"], 4)
        a.put(bpf.LOAD32, 1, 10, _TWO)
        a.put(bpf.LOAD32, 2, 10, _ONE)
        a.put(bpf.MORE_REGISTERS, 1, 2, "is open")
        a.jump("send")
        a.name("is open")
        self._read(_TWO, 7, at["fdtable.fd"])
        a.put(bpf.LOAD64, 3, 10, _TWO)
        a.put(bpf.LOAD32, 2, 10, _ONE)
        a.shift_left(2, 3)
        a.add_register(3, 2)
        self._read(_TWO, 3, 0)
        a.put(bpf.LOAD64, 7, 10, _TWO)
        a.jump_if(7, 0, "send")
        self._read(_ENTRY, 7, at["file.f_path.dentry"])
        self._read(_MOUNT, 7, at["file.f_path.mnt"])
        a.put(bpf.LOAD8, 1, 8, 22)
        a.jump_if(1, PATH, "walk")
        self._read(_TWO, 7, at["file.f_inode"])
        a.put(bpf.LOAD64, 3, 10, _TWO)
        self._read(_TWO, 3, at["inode.i_mode"], 2)
        a.put(bpf.LOAD16, 1, 10, _TWO)
        a.mask(1, _FORMAT)
        a.jump_if(1, _IS_SOCKET, "socket")
        self._say(FILE)
        a.jump("walk")

    def _say(self, kind: int) -> None:
        self.a.set(1, kind)
        self.a.put(bpf.STORE8, 8, 1, 22)

    def _tell_socket(self) -> None:
        a, at = self.a, self.places
        a.name("socket")
        self._read(_TWO, 7, at["file.private_data"])
        a.put(bpf.LOAD64, 3, 10, _TWO)
        self._read(_TWO, 3, at["socket.sk"])
        a.put(bpf.LOAD64, 7, 10, _TWO)
        a.jump_if(7, 0, "send")
        of, first = "sock.__sk_common.skc_", HEAD.size
        for name, to, size in (
            *(("family", 0, 2), ("state", 2, 1), ("dport", 4, 2), ("num", 6, 2)),
        ):
            self._read(first + to, 7, at[of + name], size, base=8)
        self._say(SOCKET)
        a.put(bpf.LOAD16, 1, 8, first)
        a.jump_if(1, INET, "inet")
        if f"{of}v6_daddr" in at:
            a.jump_if(1, INET6, "inet6")
        if {"unix_sock.addr", "unix_sock.peer", "unix_address.name"} <= at.keys():
            a.jump_if(1, UNIX, "unix")
        a.set(9, 8)
        a.jump("send")
        for label, names, size in (
            ("inet", ("daddr", "rcv_saddr"), 4),
            ("inet6", ("v6_daddr", "v6_rcv_saddr"), 16),
        ):
            if of + names[0] in at:
                a.name(label)
                self._read(first + 8, 7, at[of + names[0]], size, base=8)
                self._read(first + 24, 7, at[of + names[1]], size, base=8)
                a.set(9, INET_FACTS.size)
                a.jump("send")
        if "unix_address.name" in at:
            self._tell_unix(first)

    def _tell_unix(self, first: int) -> None:
        """Tell a unix socket's own address, and its peer's."""
        a, at = self.a, self.places
        a.name("unix")
        a.set(9, UNIX_FACTS.size)
        a.set(1, 0)
        a.put(bpf.STORE32, 8, 1, first + 8)
        a.put(bpf.STORE32, 8, 1, first + 12 + _SOCKADDR)
        for number, to in enumerate((first + 8, first + 12 + _SOCKADDR)):
            self._read(_TWO, 7, at["unix_sock.addr"])
            a.put(bpf.LOAD64, 3, 10, _TWO)
            a.put(bpf.STORE64, 10, 3, _ENTRY)
            a.jump_if(3, 0, f"unnamed {number}")
            self._read(to, 3, at["unix_address.len"], 4, base=8)
            a.put(bpf.LOAD64, 3, 10, _ENTRY)
            self._read(to + 4, 3, at["unix_address.name"], _SOCKADDR - 2, base=8)
            a.name(f"unnamed {number}")
            if not number:
                self._read(_TWO, 7, at["unix_sock.peer"])
                a.put(bpf.LOAD64, 7, 10, _TWO)
                a.jump_if(7, 0, "send")
        a.jump("send")

    def _take_text(self) -> None:
        """Take the path or address that a call was given."""
        a, at, first = self.a, self.places, HEAD.size
        a.name("address")
        a.put(bpf.LOAD64, 9, 6, _DX)
        a.jump_if(9, _SOCKADDR, "short", code=bpf.AT_MOST)
        a.set(9, _SOCKADDR)
        a.name("short")
        a.jump_if(9, 0, "send")
        a.copy(1, 8)
        a.add(1, first)
        a.copy(2, 9)
        a.put(bpf.LOAD64, 3, 6, _SI)
        a.call(bpf.READ_USER)
        self._say(ADDRESS)
        a.jump("send")

        a.name("here")
        a.set(1, _HERE)
        a.put(bpf.STORE32, 10, 1, _ONE)
        a.put(bpf.LOAD64, 3, 6, _DI)
        a.jump("path")
        a.name("directory")
        a.put(bpf.LOAD64, 3, 6, _SI)
        a.name("path")
        self._say(PATH)
        a.copy(1, 8)
        a.add(1, first)
        a.set(2, _GIVEN)
        a.call(bpf.READ_USER_TEXT)
        a.jump_if(0, 1, "send", code=bpf.AT_MOST_SIGNED)
        a.copy(9, 0)
        a.mask(9, _GIVEN * 2 - 1)
        a.put(bpf.STORE16, 8, 9, 24)
        a.put(bpf.LOAD8, 1, 8, first)
        a.jump_if(1, ord("/"), "send")
        a.put(bpf.LOAD32, 1, 10, _ONE)
        a.shift_left(1, 32)
        a.put(bpf.SHIFT_RIGHT_SIGNED, 1, value=32)
        a.jump_if(1, _HERE, "works here")
        a.jump("file")
        a.name("works here")
        self._read(_TWO, 7, at["task_struct.fs"])
        a.put(bpf.LOAD64, 7, 10, _TWO)
        self._read(_ENTRY, 7, at["fs_struct.pwd.dentry"])
        self._read(_MOUNT, 7, at["fs_struct.pwd.mnt"])

    def _walk(self) -> None:
        """Add the names from the entry up to the root, each ended by a zero."""
        a, at = self.a, self.places
        parent, name = at["dentry.d_parent"], at["dentry.d_name.name"]
        low, size = min(parent, name), abs(parent - name) + 8
        parent_at, name_at = (_ENTRY_FACTS + place - low for place in (parent, name))
        a.name("walk")
        a.put(bpf.LOAD64, 3, 10, _MOUNT)
        self._read(_ROOT, 3, at["vfsmount.mnt_root"])
        for step in range(_STEPS):
            a.put(bpf.LOAD64, 3, 10, _ENTRY)
            a.put(bpf.LOAD64, 1, 10, _ROOT)
            a.put(bpf.NOT_EQUAL_REGISTERS, 1, 3, f"within {step}")
            # A mount begins here: on with where it is mounted.
            a.put(bpf.LOAD64, 7, 10, _MOUNT)
            a.add(7, -at["mount.mnt"])
            self._read(_TWO, 7, at["mount.mnt_parent"])
            a.put(bpf.LOAD64, 1, 10, _TWO)
            a.put(bpf.EQUAL_REGISTERS, 1, 7, "root")
            self._read(_ENTRY, 7, at["mount.mnt_mountpoint"])
            a.put(bpf.LOAD64, 3, 10, _TWO)
            a.add(3, at["mount.mnt"])
            a.put(bpf.STORE64, 10, 3, _MOUNT)
            self._read(_ROOT, 3, at["vfsmount.mnt_root"])
            a.jump(f"next {step}")
            a.name(f"within {step}")
            self._read(_ENTRY_FACTS, 3, low, size)
            a.jump_if(9, _LAST, "send", code=bpf.MORE)
            a.copy(1, 8)
            a.add_register(1, 9)
            a.add(1, HEAD.size)
            a.set(2, 256)
            a.put(bpf.LOAD64, 3, 10, name_at)
            a.call(bpf.READ_KERNEL_TEXT)
            a.jump_if(0, 0, "send", code=bpf.AT_MOST_SIGNED)
            a.mask(0, 0x1FF)
            a.add_register(9, 0)
            a.put(bpf.LOAD64, 3, 10, parent_at)
            a.put(bpf.LOAD64, 1, 10, _ENTRY)
            a.put(bpf.EQUAL_REGISTERS, 1, 3, "send")  # of no mount
            a.put(bpf.STORE64, 10, 3, _ENTRY)
            a.name(f"next {step}")
        a.jump("send")
        a.name("root")
        a.set(1, 1)
        a.put(bpf.STORE8, 8, 1, 23)

    def _hand_over(self) -> None:
        a = self.a
        a.name("send")
        a.put(bpf.STORE16, 8, 9, 26)
        a.jump_if(9, MOST - HEAD.size - 1, "charge", code=bpf.MORE)
        a.put(bpf.LOAD64, 1, 10, _ARGUMENTS)
        a.map(2, self.events)
        a.set64(3, 0xFFFFFFFF)  # this cpu's
        a.copy(4, 8)
        a.copy(5, 9)
        a.add(5, HEAD.size)
        a.call(bpf.OUTPUT_EVENT)
        a.copy(7, 0)
        a.jump("count")
        a.name("charge")
        a.set(7, 0)
        a.name("count")
        a.call(bpf.NOW)
        a.put(bpf.LOAD64, 1, 10, _BEGAN)
        a.put(bpf.SUBTRACT, 0, 1)
        a.copy(6, 0)
        a.call(bpf.CPU)
        a.jump_if(0, self.cpus - 1, "out", code=bpf.MORE)
        a.put(bpf.MULTIPLY, 0, value=LANE)
        a.map_value(1, self.state, LANE)
        a.add_register(1, 0)
        a.put(bpf.ADD_ATOMIC, 1, 6, SPENT)
        a.set(2, 1)
        a.put(bpf.ADD_ATOMIC, 1, 2, EVENTS)
        a.jump_if(7, 0, "out")
        a.put(bpf.ADD_ATOMIC, 1, 2, LOST)
        a.name("out")
        a.set(0, 0)
        a.put(bpf.END)


def assemble_follower(processes: int, tgid: int) -> bytes:
    """Return the program for ``sched_process_fork``: who is a child of theirs is one of them.

    `tgid`: where a thread has its process.
    """
    a = bpf.Assembler()
    a.copy(6, 1)
    a.call(bpf.PID_TGID)
    a.put(bpf.SHIFT_RIGHT, 0, value=32)
    a.put(bpf.STORE32, 10, 0, -4)
    a.map(1, processes)
    a.copy(2, 10)
    a.add(2, -4)
    a.call(bpf.LOOKUP)
    a.jump_if(0, 0, "out")
    a.copy(1, 10)
    a.add(1, -4)
    a.set(2, 4)
    a.put(bpf.LOAD64, 3, 6, 8)
    a.add(3, tgid)
    a.call(bpf.READ_KERNEL)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)
    a.map(1, processes)
    a.copy(2, 10)
    a.add(2, -4)
    a.copy(3, 2)
    a.set(4, 0)
    a.call(bpf.UPDATE)
    a.name("out")
    a.set(0, 0)
    a.put(bpf.END)
    return a.bytes()
