"""The parts of the ftrace recorder: profiles, events, what is missing, what is read of /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.schema.ways import way_of_requests
from critpath_marks.sessions import new_session_name
from critpath_record import profiles
from critpath_record.ftrace import preflight as obstacle_module
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.cleanup import find_leftovers
from critpath_record.ftrace.drain import parse_cpus, watermark
from critpath_record.ftrace.events import (
    abbreviate_groups,
    find_net_devices,
    find_timer_functions,
    lttng_name,
    select_events,
)
from critpath_record.ftrace.preflight import buffer_bytes, find_needs
from critpath_record.ftrace.recorder import scan_cgroups
from critpath_record.ftrace.tracefs import scan_threads
from critpath_record.profiles import ProfileEvents, profile_events, profile_names, profile_path
from critpath_record.recorder import RecorderSettings

KERNEL = (
    *("sched/sched_switch", "sched/sched_waking", "sched/sched_process_fork", "sched/sched_wakeup"),
    *("task/task_newtask", "task/task_rename", "cgroup/cgroup_attach_task", "cgroup/cgroup_mkdir"),
    *("irq/softirq_entry", "irq/softirq_exit", "irq/softirq_raise"),
    *("timer/hrtimer_expire_entry", "timer/hrtimer_setup", "net/netif_receive_skb"),
    *("ftrace/print", "raw_syscalls/sys_enter", "kprobes/mine"),
    *("syscalls/sys_enter_read", "syscalls/sys_exit_read", "syscalls/sys_enter_readv"),
)


# ---------------------------------------------------------------------------- profiles


def test_the_profiles_are_there():
    assert {"minimal", "syscalls", "network", "full"} <= set(profile_names())
    for name in profile_names():
        assert profile_path(name).is_file()
        assert profile_events(name).tracepoints


def test_minimal_is_what_a_critical_path_needs_and_no_more():
    found = profile_events("minimal")
    assert found.syscalls == ()
    assert {"sched_switch", "sched_waking", "sched_wakeup_new"} <= set(found.tracepoints)
    assert "sched_wakeup" not in found.tracepoints
    assert all(not name.startswith("sched_stat") for name in found.tracepoints)


def test_system_calls_are_rules_of_their_own():
    assert profile_events("syscalls").syscalls == ("*",)
    full = profile_events("full")
    assert full.tracepoints == ("*",)
    assert full.syscalls == ("*",)


def profile_of(text: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> ProfileEvents:
    (place / "mine.lttng").write_text(text, encoding="utf-8")
    monkeypatch.setattr(profiles, "profile_directory", lambda: place)
    return profile_events("mine")


def test_what_is_off_or_of_user_space_is_not_the_kernels(tmp_path, monkeypatch):
    event = "<event><name>{}</name><enabled>{}</enabled><type>{}</type></event>"
    kernel = event.format("a", "true", "TRACEPOINT") + event.format("b", "false", "TRACEPOINT")
    kernel += event.format("c", "true", "KPROBE")
    kernel += "<event><enabled>true</enabled><type>SYSCALL</type></event>"
    user = event.format("d", "true", "TRACEPOINT")
    contexts = "<contexts><context><type>PID</type></context></contexts>"
    text = (
        f"<sessions><domain><type>KERNEL</type>{kernel}{contexts}</domain>"
        f"<domain><type>UST</type>{user}</domain></sessions>"
    )
    found = profile_of(text, tmp_path, monkeypatch)
    assert found == ProfileEvents(("a",), ("*",), ("pid",))


@pytest.mark.parametrize("text", ["<sessions>", "<sessions/>", ""])
def test_a_damaged_profile_is_an_error(tmp_path, monkeypatch, text):
    with pytest.raises(CritpathError, match=r"mine\.lttng"):
        profile_of(text, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["../minimal", "", "minimal.lttng", "nothing"])
def test_a_profile_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="no profile"):
        profile_path(name)


def test_a_users_own_session_file_is_a_profile(tmp_path, monkeypatch):
    mine = tmp_path / "of mine.lttng"
    mine.write_bytes(profile_path("network").read_bytes())
    assert profile_events(str(mine)) == profile_events("network")
    monkeypatch.chdir(tmp_path)
    assert profile_events("of mine.lttng") == profile_events("network")
    for damaged in (b"", b"<sessions>", b"\0", b"<sessions/>", b" " * (1 << 21)):
        mine.write_bytes(damaged)
        with pytest.raises(UsageError, match=r"of mine\.lttng"):
            profile_events(str(mine))


SOCKETS = (
    *("sock/sk_data_ready", "sock/sock_recv_length", "sock/sock_send_length"),
    *("sock/inet_sock_set_state", "tcp/tcp_rcv_space_adjust"),
)


def test_requests_are_recorded_by_sockets_or_by_what_the_tracer_has_instead():
    profile = profile_events("requests")
    found = select_events(profile, (*KERNEL, *SOCKETS))
    assert {*SOCKETS} <= {*found.events}
    assert not [e for e in found.events if e.startswith(("syscalls/", "net/"))]
    assert not {*found.missing} - {*profile_events("minimal").tracepoints}
    older = select_events(profile, (*KERNEL, *SOCKETS[3:]))
    assert {"syscalls/sys_enter_read", "net/netif_receive_skb", *SOCKETS[3:]} <= {*older.events}
    assert "syscalls/sys_enter_readv" in older.events
    assert "sk_data_ready" not in older.missing
    names = [lttng_name(*event.split("/")) for event in found.events]
    assert way_of_requests(names) == "sockets"
    assert way_of_requests(profile_events("minimal").tracepoints) == ""
    assert way_of_requests(("syscall_entry_*", "syscall_exit_*")) == "calls"
    assert way_of_requests(("*",)) == "sockets"


# -------------------------------------------------------------------- what it comes to


def test_names_are_translated_and_what_a_fork_needs_comes_with_it():
    profile = ProfileEvents(
        (
            "sched_process_fork",
            "irq_softirq_entry",
            "timer_hrtimer_expire_entry",
            "net_if_receive_skb",
        )
    )
    found = select_events(profile, KERNEL)
    assert found.missing == ()
    assert found.events == (
        *("cgroup/cgroup_attach_task", "irq/softirq_entry", "net/netif_receive_skb"),
        *("sched/sched_process_fork", "task/task_newtask", "timer/hrtimer_expire_entry"),
    )


def test_a_pattern_is_of_lttngs_names():
    assert select_events(ProfileEvents(("irq_softirq_*",)), KERNEL).events == (
        *("irq/softirq_entry", "irq/softirq_exit", "irq/softirq_raise"),
    )
    assert select_events(ProfileEvents(("timer_hrtimer_init",)), KERNEL).events == (
        "timer/hrtimer_setup",
    )


def test_everything_is_without_what_others_defined():
    found = select_events(ProfileEvents(("*",)), KERNEL)
    groups = {event.partition("/")[0] for event in found.events}
    assert groups == {"sched", "task", "cgroup", "irq", "timer", "net"}


def test_system_calls_are_asked_for_by_name():
    found = select_events(ProfileEvents(("sched_switch",), ("read", "nope")), KERNEL)
    assert found.missing == ("system call nope",)
    assert found.events[1:] == ("syscalls/sys_enter_read", "syscalls/sys_exit_read")
    assert len(select_events(ProfileEvents((), ("*",)), KERNEL).events) == 3


def test_what_the_converter_makes_is_not_missing():
    profile = ProfileEvents(("lttng_statedump_process_state", "lttng_logger", "sched_odd"))
    assert select_events(profile, KERNEL).missing == ("sched_odd",)


def test_whole_groups_are_one_name():
    names = abbreviate_groups(("task/task_newtask", "task/task_rename", "irq/softirq_exit"), KERNEL)
    assert names == ["irq:softirq_exit", "task:*"]


# ------------------------------------------------------------------------ small things


def test_interrupts_of_network_devices_are_told_by_the_bus(tmp_path):
    (tmp_path / "interrupts").write_text(
        "           CPU0       CPU1\n"
        " 16:   5   0   IO-APIC   16-fasteoi   uhci_hcd:usb3, wlan0\n"
        " 37:   0   0   PCI-MSIX-0000:00:03.0   0-edge      virtio2-input.0\n"
        " 41:   7   1   PCI-MSIX-0000:00:05.0   0-edge      tsnep-3\n"
        " 42:   7   1   PCI-MSIX-0000:00:06.0   0-edge      nvme0q0\n"
        "NMI:   0   0   Non-maskable interrupts\n"
    )
    net, bus = tmp_path / "net", tmp_path / "bus"
    for device, place, numbers in (
        ("eth0", bus / "3" / "virtio2", bus / "3" / "msi_irqs" / "37"),
        ("eth1", bus / "5", bus / "5" / "msi_irqs" / "41"),
        ("wlan0", bus / "7", bus / "7" / "msi_irqs" / "16"),
    ):
        place.mkdir(parents=True)
        numbers.parent.mkdir()
        numbers.touch()
        (net / device).mkdir(parents=True)
        (net / device / "device").symlink_to(place)
    (net / "lo").mkdir()
    found = find_net_devices(net, tmp_path / "interrupts")
    assert found == "virtio2-input.0=eth0,tsnep-3=eth1"  # what is shared may be another's
    assert find_net_devices(tmp_path / "none", tmp_path / "interrupts") == ""


def test_timer_functions_are_found_by_their_whole_names(tmp_path):
    symbols = tmp_path / "kallsyms"
    symbols.write_text(
        "ffff0010 t tcp_write_timer\nffff0020 T process_timeout\nffff0030 t __process_timeout\n"
        "ffff0040 d process_timeout\nffff0050 t tcp_write_timer_handler\n"
        "ffff0060 t tcp_write_timer\n0000 t tcp_delack_timer\nffff0070 t neigh_timer_handler\t[m]\n"
    )
    found = "ffff0010=tcp_write_timer,ffff0020=process_timeout,ffff0060=tcp_write_timer"
    assert find_timer_functions(symbols) == found
    assert find_timer_functions(tmp_path / "none") == ""


def test_the_statedump_has_every_thread_of_ours():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        rows = {row[1]: row for row in scan_threads()}
    finally:
        ended.set()
        thread.join()
    _, tid, tgid, _, comm, state, cpu, kernel, namespace = rows[thread.native_id]
    assert (tid, tgid, kernel) == (thread.native_id, os.getpid(), 0)
    assert state in {"S", "R"}  # R while it is on its way to sleep
    assert rows[os.getpid()][3] == os.getppid()
    assert namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert 0 <= cpu < (os.cpu_count() or 1)
    name = Path(f"/proc/{os.getpid()}/comm").read_text(encoding="utf-8").strip()
    assert rows[os.getpid()][4] == name[:15]
    assert comm
    assert all(len(row[4].encode()) <= 45 for row in rows.values())  # replaced bytes are 3 each


def test_control_groups_are_those_of_proc():
    mine = {row[2:] for row in scan_cgroups() if row[1] == os.getpid()}
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    told = {(int(number), path) for number, _, path in (line.split(":", 2) for line in lines)}
    assert mine == {(number, path) for number, path in told if path != "/" or number == 0}


@pytest.mark.parametrize(
    ("text", "cpus"), [("0\n", [0]), ("0-3", [0, 1, 2, 3]), ("0,2-3,8", [0, 2, 3, 8])]
)
def test_sets_of_cpus_are_read(text, cpus):
    assert parse_cpus(text) == cpus


def test_readers_are_woken_for_about_a_megabyte():
    assert watermark(8 << 20) == 12
    assert watermark(1 << 30) == 1
    assert watermark(4096) == 50


def test_the_size_of_a_page_is_the_kernels():
    text = "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
    assert raws.page_bytes(text) == 4096
    with pytest.raises(CritpathError, match="unknown form"):
        raws.page_bytes("field: int data;")


def test_the_kernels_counts_are_read():
    text = "entries: 5\noverrun: 2\ncommit overrun: 1\noldest event ts:  12.5\ndropped events: 3\n"
    assert tracefs.parse_stats(text) == {
        "entries": 5,
        "overrun": 2,
        "commit overrun": 1,
        "dropped events": 3,
    }


def test_raw_data_that_is_none_is_refused(tmp_path):
    with pytest.raises(UnreadableError):
        raws.read_description(tmp_path)
    (tmp_path / "raw.json").write_text('{"format": "critpath/raw/9"}', encoding="utf-8")
    with pytest.raises(UnreadableError, match="critpath/raw/1"):
        raws.read_description(tmp_path)


# -------------------------------------------------------------------------- obstacles


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a machine that can record, of files."""
    root = tmp_path / "with space"
    (root / "events/sched/sched_switch").mkdir(parents=True)
    (root / "instances").mkdir()
    (root / "trace_clock").write_text("[local] global mono boot\n", encoding="ascii")
    place = str(root).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\nnodev {place} tracefs rw 0 0\n", encoding="ascii")
    monkeypatch.setattr(tracefs, "_MOUNTS", mounts)
    monkeypatch.setattr(obstacle_module, "_LOCKDOWN", tmp_path / "lockdown")
    monkeypatch.setattr(obstacle_module, "_FILE_SYSTEMS", tmp_path / "filesystems")
    monkeypatch.setattr(obstacle_module, "_MEMORY", tmp_path / "meminfo")
    (tmp_path / "filesystems").write_text("nodev\ttracefs\n", encoding="ascii")
    (tmp_path / "meminfo").write_text("MemAvailable:  8388608 kB\n", encoding="ascii")
    return root


def names(settings: RecorderSettings | None = None) -> list[str]:
    return [obstacle.name for obstacle in find_needs(settings)]


def test_a_machine_that_can_record_has_no_missing_requirements(machine):
    assert tracefs.find() == machine
    assert find_needs() == []


def test_all_obstacles_are_named_at_once(machine, tmp_path):
    (tmp_path / "lockdown").write_text("none integrity [confidentiality]\n", encoding="ascii")
    (tmp_path / "meminfo").write_text("MemAvailable:  10 kB\n", encoding="ascii")
    (machine / "trace_clock").write_text("[local] global\n", encoding="ascii")
    (machine / "events/sched/sched_switch").rmdir()
    assert names() == ["lockdown", "memory", "events", "clock"]
    assert all(o.do and "\n" not in o.what + o.do for o in find_needs())


def test_a_lockdown_for_integrity_does_not_concern_tracefs(machine, tmp_path):
    assert machine.is_dir()
    (tmp_path / "lockdown").write_text("none [integrity] confidentiality\n", encoding="ascii")
    assert names() == []


def test_buffers_beyond_the_memory_are_an_obstacle(machine):
    assert machine.is_dir()
    settings = RecorderSettings(new_session_name(), Path(), buffer_bytes=1 << 40)
    [obstacle] = find_needs(settings)
    assert obstacle.name == "memory"
    assert "--buffer-size" in obstacle.do


def test_the_recorders_own_choice_fits_the_memory(machine, tmp_path, monkeypatch):
    assert machine.is_dir()
    settings = RecorderSettings(new_session_name(), Path())
    assert buffer_bytes(settings) == 8 << 20
    monkeypatch.setattr(obstacle_module, "online_cpus", lambda: list(range(256)))
    (tmp_path / "meminfo").write_text("MemAvailable:  8388608 kB\n", encoding="ascii")
    assert 1 << 20 <= buffer_bytes(settings) < 8 << 20
    assert buffer_bytes(RecorderSettings("", Path(), buffer_bytes=4096)) == 4096


def test_tracefs_that_is_not_mounted_is_no_obstacle_to_root(machine, monkeypatch, tmp_path):
    assert machine.is_dir()
    (tmp_path / "mounts").write_text("proc /proc proc rw 0 0\n", encoding="ascii")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    [obstacle] = find_needs()
    assert (obstacle.name, obstacle.fatal) == ("tracefs", False)
    assert find_leftovers() == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert names() == ["root", "tracefs"]
    assert all(o.fatal for o in find_needs())
    (tmp_path / "filesystems").write_text("nodev\tproc\n", encoding="ascii")
    assert names() == ["tracefs"]


def test_tracefs_of_others_needs_root(machine, monkeypatch):
    assert machine.is_dir()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert names() == ["root"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert names() == ["tracefs"]


def test_tracefs_that_cannot_be_mounted_is_an_obstacle(machine, monkeypatch, tmp_path):
    def refuse():
        raise CritpathError("tracefs cannot be mounted", "on the machine itself")

    assert machine.is_dir()
    (tmp_path / "mounts").write_text("proc /proc proc rw 0 0\n", encoding="ascii")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tracefs, "mount", refuse)
    [obstacle] = find_needs(RecorderSettings(new_session_name(), Path()))
    assert (obstacle.name, obstacle.what, obstacle.fatal) == (
        *("tracefs", "tracefs cannot be mounted"),
        True,
    )


def test_tracefs_of_which_a_part_is_hidden_is_an_obstacle(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (machine / "trace_clock").unlink()
    assert names() == ["tracefs"]
    (machine / "instances").rmdir()
    assert names() == ["instances"]


def test_a_machine_that_does_not_tell_its_memory_is_taken_for_large_enough(machine, tmp_path):
    assert machine.is_dir()
    (tmp_path / "meminfo").unlink()
    assert names() == []
    assert buffer_bytes(RecorderSettings(new_session_name(), Path())) == 8 << 20


def test_no_leftover_is_taken_from_a_living_owner(machine):
    (machine / "instances" / new_session_name()).mkdir()
    (machine / "instances/somebody-elses").mkdir()
    dead = new_session_name().replace(f"-{os.getpid()}-", "-4194999-")
    (machine / "instances" / dead).mkdir()
    assert [(x.kind, x.session) for x in find_leftovers()] == [("instance", dead)]


def test_an_instance_that_cannot_be_made_says_what_to_do(machine):
    (machine / "instances/x").mkdir()
    with pytest.raises(CritpathError, match="instances/x"):
        tracefs.Instance.at(machine, "x").make()
    with pytest.raises(CritpathError, match="trace_clock") as refused:
        tracefs.Instance.at(machine, "x").write("trace_clock", "mono")
    assert "critpath doctor" in refused.value.do
