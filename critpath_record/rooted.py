"""What recording needs root for, in a process of its own: it opens, and hands descriptors over.

``sudo critpath record`` comes in here before anything else is imported.  The process that goes on
becomes the user who called sudo, with the few capabilities that `KEPT` lists; a child stays root,
does what `Helper` can do for that user's recordings, and nothing else, and ends with its parent.
All that this process reads from outside are the requests of its parent, which is the user's.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import json
import os
import re
import socket
import sys

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, NoReturn

    from critpath_record.grouped import Grouped

TRACEFS: Final = "/sys/kernel/tracing"
NAMES_OPTION: Final = "options/record-cmd"
REGISTRY: Final = "/run/critpath"
PLACE: Final = "/run/critpath-marks"
MARKER: Final = "trace_marker"

# linux/capability.h: files of /proc and /sys that are others', their descriptors and namespaces,
# addresses of the kernel, going before others, perf and bpf, and ending what the command started.
KEPT: Final = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_NICE": 23,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
# Options with which all of it stays root: what they start or open is not handed over (yet).
_WHOLE: Final = ("--as-root", "--show-config")
_MOST: Final = 1 << 16  # bytes of a request
_LONGEST: Final = 16_384  # bytes of an entry of the registry
EVENTS: Final = 256  # most events that one request names
_INSTANCES: Final = 8  # most that there are at a time: a recording's, of its marks and its layers

# Which process it is of are its number and its start; what is before is marks' or a layer's.
_NAME: Final = re.compile(
    r"critpath-(?:marks-|layer-[a-z]{1,20}\.critpath-)?[0-9]+-([0-9]+-[0-9]+)-[0-9a-f]{8}"
)
_LOCK: Final = re.compile(r"flight-[A-Za-z0-9_-]{1,60}")
_EVENT: Final = re.compile(r"[A-Za-z0-9_-]{1,100}/[A-Za-z0-9_-]{1,100}")
# What of the kernel's own instance is read: lists and descriptions, no events.
_READ: Final = re.compile(
    r"available_events|trace_clock|events/header_(?:page|event)"
    r"|events/[A-Za-z0-9_-]{1,100}/[A-Za-z0-9_-]{1,100}/(?:id|format)"
)
_SHARED: Final = ("", "events", "options", "per_cpu")  # directories of an instance that all need
_PR_SET_KEEPCAPS: Final = 8
_PR_SET_DUMPABLE: Final = 4
_CAPABILITIES_3: Final = 0x2008_0522
_MS_BIND, _MNT_DETACH, _UMOUNT_NOFOLLOW = 4096, 2, 8
_FAN_NONBLOCK_CLOEXEC: Final = 0x3


# What is done as root


def mount(what: str, place: str, kind: str | None, flags: int) -> None:
    """Mount something; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    named = None if kind is None else kind.encode()
    if libc.mount(os.fsencode(what), os.fsencode(place), named, flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount_marker(instance: str, place: str) -> None:
    """Let the marker file of an instance be at another place, too; raises OSError."""
    mount(f"{instance}/{MARKER}", place, None, _MS_BIND)


def unmount_marker(place: str) -> None:
    """Undo `mount_marker`, as often as it was done."""
    while ctypes.CDLL(None).umount2(os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass


def read_file(place: str) -> bytes:
    """Return what a file of the kernel's says; raises OSError."""
    with open(place, "rb", buffering=0) as file:
        return file.read()


def write_file(place: str, text: bytes, flags: int = 0) -> None:
    """Write to a file that is there; raises OSError."""
    descriptor = os.open(place, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def names_off(
    root: str, note: Callable[[], contextlib.AbstractContextManager[None]]
) -> Iterator[None]:
    """Let an instance made meanwhile not fill the kernel's table of names: events have them.

    It is a third of what an event costs, and can be chosen only as the instance is made.  Not
    while anybody's events are enabled: it would change theirs.  `note`: for who cleans up.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # else it costs what it costs
            tracers = [
                root,
                *(f"{root}/instances/{name}" for name in os.listdir(f"{root}/instances")),
            ]
            if read_file(f"{root}/{NAMES_OPTION}").strip() == b"1" and not any(
                map(_records, tracers)
            ):
                stack.enter_context(note())
                stack.callback(restore_names, root)
                write_file(f"{root}/{NAMES_OPTION}", b"0")
        yield


def _records(tracer: str) -> bool:
    plugin = read_file(f"{tracer}/current_tracer").strip()
    return plugin != b"nop" or bool(read_file(f"{tracer}/set_event").strip())


def restore_names(root: str) -> None:
    """Set the table of names back to the kernel's default."""
    with contextlib.suppress(OSError):
        write_file(f"{root}/{NAMES_OPTION}", b"1")


def hand_instance(path: str, user: int) -> int:
    """Make an instance a user's; return the descriptor that alone leads there; raises OSError."""
    for below in (*_SHARED, *(f"per_cpu/{cpu}" for cpu in os.listdir(f"{path}/per_cpu"))):
        _give(path, below, user)
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _give(path: str, below: str, user: int) -> None:
    """Make a directory and the files in it the user's; what is a directory in it is not."""
    place = f"{path}/{below}" if below else path
    with os.scandir(place) as found:
        files = [entry.path for entry in found if entry.is_file(follow_symlinks=False)]
    for name in (place, *files):
        os.chown(name, user, -1, follow_symlinks=False)


def run_as(uid: int, gid: int, work: Callable[[], str]) -> str:
    """Do something to a user's files as that user, in a process of its own; return what it did.

    Raises OSError if it did not come to an end.
    """
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            become(uid, gid, [gid])
            set_capabilities(permitted=0, effective=0)
            os.write(writer, work().encode()[:4096] or b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        found = stream.read(4096).decode("utf-8", "replace")
    os.waitpid(child, 0)
    if not found:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return found.strip()


# The process that stays root


class Helper:
    """Answers one process of one user; each answer is a value and at most one descriptor."""

    def __init__(self, channel: socket.socket, user: int, parent: int, whose: str = "") -> None:
        self._channel, self._user, self._parent = channel, user, parent
        self._whose = whose or f"{parent}-{_began(parent)}"  # as its sessions are called
        self._made: dict[str, int] = {}  # instances, and the descriptors of their directories
        self._lock, self._held = "", -1  # of a flight recorder
        self._grouped: dict[str, Grouped] = {}  # control groups
        self._noted: set[str] = set()  # files of ours in /run
        self._shown: set[str] = set()  # markers that are mounted

    @staticmethod
    def part(arguments: list[str]) -> None:
        """Become the user who called sudo, and leave a helper behind, where that can record."""
        _part(arguments)

    @staticmethod
    def is_there() -> bool:
        """Tell whether this process has one."""
        return channel is not None

    def serve(self) -> None:
        """Answer until the other side is closed, then turn off what it left on."""
        try:
            self._answer()
        finally:
            self._undo()

    def _answer(self) -> None:
        while request := self._channel.recv(_MOST):
            descriptor = -1
            try:
                words = json.loads(request)
                # By name, of these alone: nothing that is sent is looked up elsewhere.
                act = _ACTS[words[0]]
                value, descriptor = act(self, *map(_plain, words[1:]))
                answer = [0, value]
            except OSError as error:
                answer = [error.errno or errno.EIO, ""]
            except Exception:  # noqa: BLE001 - whatever is sent, what it left on is turned off
                answer = [errno.EPERM, ""]
            sent = [descriptor] if descriptor >= 0 else []
            socket.send_fds(self._channel, [json.dumps(answer).encode()], sent)
            if sent and descriptor not in self._made.values():
                os.close(descriptor)

    def mount(self) -> tuple[object, int]:
        """Mount tracefs where it is not."""
        if not os.path.isdir(f"{TRACEFS}/instances"):
            mount("nodev", TRACEFS, "tracefs", 0)
        return "", -1

    def read(self, name: str) -> tuple[object, int]:
        """Open a list or a description of the kernel's, to read it."""
        if not _READ.fullmatch(name):
            raise PermissionError(errno.EPERM, name)
        return "", os.open(f"{TRACEFS}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def make(self, name: str) -> tuple[object, int]:
        """Make an instance that is the user's, which only the descriptor of it leads to."""
        path = self._instance(name)
        if len(self._made) >= _INSTANCES:
            raise OSError(errno.ENOSPC, name)
        with names_off(TRACEFS, lambda: self._noting(f"{name}.option")):
            os.mkdir(path)
        self._made[name] = directory = hand_instance(path, self._user)
        return "", directory

    def own(self, name: str, *events: str) -> tuple[object, int]:
        """Give the user the files of events in an instance."""
        path, groups = self._instance(name), set()
        if len(events) > EVENTS or not all(map(_EVENT.fullmatch, events)):
            raise PermissionError(errno.EPERM, name)
        for event in events:
            group = event.partition("/")[0]
            for below in (*([f"events/{group}"] if group not in groups else ()), f"events/{event}"):
                with contextlib.suppress(FileNotFoundError):  # this kernel has no such event
                    _give(path, below, self._user)
            groups.add(group)
        return "", -1

    def remove(self, name: str) -> tuple[object, int]:
        """Remove an instance, which is busy as long as the user holds a file of it."""
        os.rmdir(self._instance(name))
        if (directory := self._made.pop(name, -1)) >= 0:
            os.close(directory)
        return "", -1

    def left(self) -> tuple[object, int]:
        """Name the instances that there are: of whoever is dead the user is told."""
        return [name for name in os.listdir(f"{TRACEFS}/instances") if _NAME.fullmatch(name)], -1

    def watch(self) -> tuple[object, int]:
        """Open what tells who writes to files that the user may watch (fanotify)."""
        found = ctypes.CDLL(None, use_errno=True).fanotify_init(_FAN_NONBLOCK_CLOEXEC, os.O_RDONLY)
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "", found

    def note(self, name: str, text: str) -> tuple[object, int]:
        """Note in the registry what somebody may have to finish: this user's, whatever is sent."""
        self._check(name)
        self._write(f"{name}.json", self._with_owner(text))
        return "", -1

    def forget(self, name: str) -> tuple[object, int]:
        """Undo `note`."""
        self._check(name)
        self._unlink(f"{name}.json")
        return "", -1

    # Where its user, or root, asks a flight recorder

    def lock(self, name: str, text: str) -> tuple[object, int]:
        """Hold the lock of a flight recorder, which says whose it is."""
        from critpath_record.shown import hold_lock

        if not _LOCK.fullmatch(name) or self._lock:
            raise PermissionError(errno.EPERM, name)
        # Root's file: who can write to one could fill /run, and undo the lock.
        self._held = hold_lock(name, self._group(), self._with_owner(text))
        self._lock = name
        return "", -1

    def listen(self) -> tuple[object, int]:
        """Open the socket of the flight recorder whose lock is held."""
        from critpath_record.shown import open_server

        if not self._lock:
            raise PermissionError(errno.EPERM, "no lock")
        return "", open_server(self._lock, self._user).detach()

    def unlock(self) -> tuple[object, int]:
        """Undo `lock` and `listen`."""
        name, self._lock = self._lock, ""
        if name:
            for file in (f"{PLACE}/{name}.sock", f"{PLACE}/{name}"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
            os.close(self._held)
        return "", -1

    # What is shared with other users' programs

    def show(self, name: str, session: str, users: str) -> tuple[object, int]:
        """Let users' programs write to the marker of an instance; return where it is."""
        from critpath_record.shown import show_marker

        path = self._instance(name)
        self._check(session)
        self._shown.add(session)
        return show_marker(path, session, [int(user) for user in users.split(",")]), -1

    def hide(self, session: str) -> tuple[object, int]:
        """Undo `show`."""
        from critpath_record.shown import hide_marker

        self._check(session)
        hide_marker(session)
        self._shown.discard(session)
        return "", -1

    def ask(self, session: str) -> tuple[object, int]:
        """Open the socket on which programs ask to mark."""
        from critpath_record.shown import open_requests

        self._check(session)
        self._noted.add(f"{PLACE}/{session}.ask")
        return "", open_requests(session).detach()

    def tell(self, session: str) -> tuple[object, int]:
        """Ask runtimes which task runs: by a file that is there, with nothing in it."""
        from critpath_record.shown import tell_tasks

        self._check(session)
        self._noted.add(tell_tasks(session))
        return "", -1

    def hush(self, session: str) -> tuple[object, int]:
        """Undo `tell`."""
        from critpath_record.shown import hush_tasks

        self._check(session)
        self._noted.discard(hush_tasks(session))
        return "", -1

    # The control group that a command is counted in

    def group(self, name: str) -> tuple[object, int]:
        """Make a control group; who sends to the descriptor is put there, if the user's."""
        from critpath_record.grouped import Grouped

        self._check(name)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._grouped[name] = made = Grouped(name, self._parent, self._user)
            made.serve(ours)
            return "", os.dup(theirs.fileno())

    def ungroup(self, name: str) -> tuple[object, int]:
        """Undo `group`."""
        self._check(name)
        self._grouped[name].remove()
        del self._grouped[name]
        return "", -1

    # Below: what the acts share

    def _check(self, name: str) -> None:
        """Only what carries the name of a session of the process that asks."""
        if not (found := _NAME.fullmatch(name)) or found[1] != self._whose:
            raise PermissionError(errno.EPERM, name)

    def _instance(self, name: str) -> str:
        self._check(name)
        return f"{TRACEFS}/instances/{name}"

    def _with_owner(self, text: str) -> bytes:
        document = {**json.loads(text), "owner": [self._user, self._group()], "parted": True}
        if len(kept := json.dumps(document).encode()) > _LONGEST:
            raise ValueError(text)
        return kept

    def _group(self) -> int:
        with contextlib.suppress(OSError):
            return os.stat(f"/proc/{self._parent}").st_gid or self._user
        return self._user

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        self._write(name, b"")
        try:
            yield
        finally:
            self._unlink(name)

    def _write(self, name: str, text: bytes) -> None:
        """Write a file of the registry anew, below a directory that is root's alone."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(REGISTRY, 0o700)
        with _own_directory(REGISTRY) as directory:
            unfinished = f".{name}.{os.getpid()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(unfinished, flags, 0o600, dir_fd=directory)
            try:
                os.write(descriptor, text)
                os.rename(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(unfinished, dir_fd=directory)
                raise
            finally:
                os.close(descriptor)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), _own_directory(REGISTRY) as directory:
            os.unlink(name, dir_fd=directory)

    def _undo(self) -> None:
        """Turn off what a process that was killed left on; who cleans up finds the rest."""
        for session in [*self._shown]:
            with contextlib.suppress(OSError):
                self.hide(session)
        for name in self._made:
            for file, text, flags in (("tracing_on", b"0", 0), ("set_event", b"", os.O_TRUNC)):
                with contextlib.suppress(OSError):
                    write_file(f"{TRACEFS}/instances/{name}/{file}", text, flags)
        for place in self._noted:
            with contextlib.suppress(OSError):
                os.unlink(place)
        with contextlib.suppress(OSError):
            if self._lock:  # the file stays, for who cleans up
                os.unlink(f"{PLACE}/{self._lock}.sock")
        for group in self._grouped.values():
            with contextlib.suppress(OSError):
                group.remove()


_ACTS: Final[dict[str, Callable[..., tuple[object, int]]]] = {
    act.__name__: act
    for act in (
        *(Helper.mount, Helper.read, Helper.make, Helper.own, Helper.remove, Helper.watch),
        *(Helper.note, Helper.forget, Helper.left, Helper.show, Helper.hide, Helper.ask),
        *(Helper.tell, Helper.hush, Helper.group, Helper.ungroup),
        *(Helper.lock, Helper.listen, Helper.unlock),
    )
}


def _plain(word: Any) -> str:
    if not isinstance(word, str) or "\0" in word:
        raise TypeError(word)
    return word


@contextlib.contextmanager
def _own_directory(place: str) -> Iterator[int]:
    """Open a directory that is root's alone; raises OSError else."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(place, flags)
    try:
        about = os.fstat(directory)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise PermissionError(errno.EPERM, place)
        yield directory
    finally:
        os.close(directory)


# How a process is parted


channel: socket.socket | None = None  # to the helper, where there is one
_turn: Final = _thread.allocate_lock()  # one request at a time


def _part(arguments: list[str]) -> None:
    global channel  # noqa: PLW0603 - the process' one
    uid, gid = (_number(os.environ.get(name, "")) for name in ("SUDO_UID", "SUDO_GID"))
    if os.geteuid() or not uid or not gid or not _can_be_parted(arguments):
        return
    import pwd

    groups, known = [gid], {}
    with contextlib.suppress(KeyError):  # of a directory service that is away: a number
        user = pwd.getpwuid(uid)
        groups = os.getgrouplist(user.pw_name, gid)
        known = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    if not _may_run(uid, gid, groups, _flies_to(arguments)):
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    # Twice: the helper is nobody's child whom this process would have to wait for.
    if not (child := os.fork()):
        if not os.fork():
            ours.close()
            _serve(theirs, uid, parent)
        os._exit(0)
    os.waitpid(child, 0)
    theirs.close()
    become(uid, gid, groups)
    os.environ.update(known)  # sudo has root's there
    channel = ours


def _can_be_parted(arguments: list[str]) -> bool:
    if arguments[:1] != ["record"]:
        return False
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    words = {word.partition("=")[0] for word in own}
    recorders = [
        word.partition("=")[2] or following
        for word, following in zip(own, [*own[1:], ""], strict=True)
        if word.partition("=")[0] == "--recorder"
    ]
    if words & {*_WHOLE} or words >= {"--always", "--functions"}:
        return False
    if {*recorders} - {"ftrace", "counts", "auto"}:
        return False
    named = recorders in (["ftrace"], ["counts"]) or words & {"--hosts", "--always"}
    return bool(named) or not _has_lttng()


def _flies_to(arguments: list[str]) -> str:
    """Return where a flight recorder makes its dumps, "" if it is none or that is not known."""
    if "--always" not in arguments:
        return ""
    text = "\0".join(["", *arguments, ""])
    found = re.search(r"\0(?:-o\0?|--output[=\0])([^\0]+)\0", text)
    return os.path.abspath(found[1]) if found else ""


def _may_run(uid: int, gid: int, groups: list[int], place: str) -> bool:
    """Tell whether a user can read this critpath and its Python: not where both are root's own.

    Where a place is given, the user may write there, too: what only root can exchange is root's.
    """
    before = os.getgroups()
    needed = [os.__file__, __file__, sys.executable, *filter(os.path.exists, sys.path)]
    try:
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        while place and not os.path.exists(place):
            place = os.path.dirname(place)
        if place and not os.access(place, os.W_OK, effective_ids=True):
            return False
        return all(os.access(one, os.R_OK, effective_ids=True) for one in needed)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def _has_lttng() -> bool:
    """Tell whether LTTng's kernel tracer may be what records: its daemon is root's."""
    if os.path.isdir("/sys/module/lttng_tracer"):
        return True
    with contextlib.suppress(OSError):
        return b"lttng-tracer.ko" in read_file(f"/lib/modules/{os.uname().release}/modules.dep")
    return False


def _began(pid: int) -> int:
    """Return when a process began (ticks of the clock), which no later one of its number did."""
    return int(read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19])


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 2**32 - 1 else 0


def _serve(theirs: socket.socket, uid: int, parent: int) -> NoReturn:
    """Be the helper: deaf to what ends its parent, which it hears of by the channel."""
    import signal

    try:
        os.setsid()
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGPIPE,
        ):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, 1 << 16)
        ctypes.CDLL(None).prctl(15, b"critpath-root", 0, 0, 0)  # PR_SET_NAME
        Helper(theirs, uid, parent).serve()
    finally:
        os._exit(0)


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become a user for good, with `KEPT` at hand but not in use; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if {*os.getresuid(), *os.getresgid()} != {uid, gid}:
        raise PermissionError(errno.EPERM, "setresuid")
    set_capabilities(permitted=_bits(), effective=0)
    # What has these is no program that the user may look into or stop to change.
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _bits() -> int:
    return sum(1 << number for number in KEPT.values())


def set_capabilities(*, permitted: int, effective: int) -> None:
    """Set what the calling thread, and threads that it starts, may do; raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    words = [(effective >> at & 0xFFFF_FFFF, permitted >> at & 0xFFFF_FFFF, 0) for at in (0, 32)]
    data = (ctypes.c_uint32 * 6)(*words[0], *words[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def use_capabilities() -> None:
    """Take `KEPT` into use, as far as this process has them: it begins to record."""
    if channel is not None:
        set_capabilities(permitted=_bits(), effective=_bits())


def drop_capabilities() -> None:
    """Give them up for good: all that is left is files of the user's."""
    if channel is not None:
        set_capabilities(permitted=0, effective=0)


def ask(*words: str) -> tuple[Any, int]:
    """Ask the helper; return its answer and a descriptor, -1 for none; raises OSError."""
    if channel is None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    with _turn:
        channel.send(json.dumps(words).encode())
        text, descriptors, _, _ = socket.recv_fds(channel, _MOST, 1)
    code, value = json.loads(text) if text else (errno.EPIPE, "")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if code:
        raise OSError(code, os.strerror(code))
    return value, next(iter(descriptors), -1)
