"""Where a process is when it ends, and what it is called by then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from critpath.executions.find import find_executions
from critpath.executions.membership import ProcessPlaces
from critpath.executions.specification import parse_specification
from critpath.model import Run
from critpath.model.containers import ControlGroup


def add_process(made, start, tid, program="./x", parent=50, **more):
    """Fork, exec and exit within 100 ns."""
    made.add(start, 0, "sched_process_fork", parent_tid=parent, child_tid=tid, **more)
    made.add(start + 10, 0, "sched_process_exec", tid=tid, filename=program)
    made.add(start + 90, 0, "sched_process_exit", tid=tid, comm="x")


def test_a_program_that_moves_itself_after_its_exec_is_in_its_group(record):
    made = record()
    made.add(1, 0, "cgroup_attach_task", pid=50, dst_path="/user.slice")
    add_process(made, 100, 7)  # sh -c 'echo $$ > cgroup.procs; exec work'
    made.add(120, 0, "cgroup_attach_task", pid=7, dst_path="/job")
    add_process(made, 300, 8)
    events = made.events()
    assert find_executions(events, "process,cgroup=/job").tid.tolist() == [7]
    assert find_executions(events, "process,cgroup=/user.slice").tid.tolist() == [8]


def test_a_move_is_told_of_the_first_thread_and_is_of_all(record):
    made = record()
    fork = {"parent_pid": 50, "child_pid": 50}
    made.add(1, 0, "cgroup_attach_task", pid=50, dst_path="/before")
    made.add(10, 0, "sched_process_fork", parent_tid=50, child_tid=51, **fork)
    made.add(20, 0, "cgroup_attach_task", pid=50, dst_path="/after")
    # What another thread of the moved process forks is there too.
    add_process(made, 100, 7, parent=51, parent_pid=50, child_pid=7)
    made.switch(200, 0, (0, "swapper/0"), (51, "two"))
    made.switch(300, 0, (51, "two"), (0, "swapper/0"))
    events = made.events()
    assert find_executions(events, "process,cgroup=/after").tid.tolist() == [7]
    assert sorted(find_executions(events, "thread,cgroup=/after").tid.tolist()) == [7, 51]
    assert len(find_executions(events, "thread,cgroup=/before")) == 0


def test_a_process_may_be_born_in_another_group(record):
    """clone3 with CLONE_INTO_CGROUP: no move is told of, only where it is in the end."""
    made = record()
    made.add(1, 0, "cgroup_attach_task", pid=50, dst_path="/parent")
    for start, tid in ((100, 7), (300, 8), (500, 9)):
        add_process(made, start, tid)
    made.add(520, 0, "cgroup_attach_task", pid=9, dst_path="/moved")
    made.add(530, 0, "sched_process_fork", parent_tid=8, child_tid=10)
    made.add(535, 0, "sched_process_exec", tid=10, filename="./x")
    made.add(540, 0, "sched_process_exit", tid=10, comm="x")
    for time, tid, path in ((900, 8, "/born"), (901, 9, "/later"), (902, 50, "/parent")):
        made.add(time, 0, "critpath_statedump_cgroup", pid=tid, dst_path=path)
    events = made.events()

    def inside(path):
        return find_executions(events, f"process,cgroup={path}").tid.tolist()

    assert inside("/parent") == [7]  # inherited: nothing says otherwise
    assert inside("/born") == [8, 10]  # since its birth, and what it forks is there too
    assert inside("/moved") == [9]  # who was moved was where its parent is until then
    assert inside("/later") == []


def test_every_hierarchy_counts(record):
    """Version 1 has a hierarchy per controller; a move in one is none in the others."""
    made = record()
    for time, root, path in ((1, 4, "/memory/job"), (2, 7, "/cpu/job"), (3, 4, "/memory/other")):
        made.add(time, 0, "cgroup_attach_task", pid=50, dst_root=root, dst_path=path)
    add_process(made, 100, 7)
    events = made.events()
    assert find_executions(events, "process,cgroup=/cpu").tid.tolist() == [7]
    assert find_executions(events, "process,cgroup=/memory/other").tid.tolist() == [7]
    assert len(find_executions(events, "process,cgroup=/memory/job")) == 0


def test_older_tracers_name_every_namespace_that_a_thread_is_seen_in(record):
    """LTTng before 2.12: one event per level with the state, the deepest first."""
    made = record()
    state = "lttng_statedump_process_state"
    made.add(1, 0, state, tid=50, ns_inum=111, ns_level=0)
    made.add(2, 0, state, tid=60, ns_inum=222, ns_level=1)
    made.add(3, 0, state, tid=60, ns_inum=111, ns_level=0)
    add_process(made, 100, 7, parent=50)
    add_process(made, 300, 8, parent=60)
    events = made.events()
    assert find_executions(events, "process,ns=222").tid.tolist() == [8]
    assert find_executions(events, "process,ns=111").tid.tolist() == [7]


def test_places_that_there_are_are_named_where_nothing_is_in_those_asked_for(record):
    made = record()
    made.add(1, 0, "lttng_statedump_process_pid_ns", tid=50, ns_inum=111, ns_level=0)
    made.add(2, 0, "cgroup_attach_task", pid=50, dst_path="/a\x1b[31m")
    add_process(made, 100, 7)
    events = made.events()
    for kind in ("process", "thread"):
        note = find_executions(events, f"{kind},ns=222").notes[0]
        assert note == "nothing in pid namespace 222: threads are known in 111 (2)"
    note = find_executions(events, "process,cgroup=/b").notes[0]
    assert note == "nothing in control group /b: threads are known in /a\ufffd[31m (2)"
    note = find_executions(events, "process,cgroup_ns=5").notes[0]
    assert note == "nothing in cgroup namespace 5: the trace names none"


def test_a_thread_is_chosen_by_any_name_that_it_ever_has(record):
    made = record()
    # Created with the name of its parent; it renames itself.
    made.switch(10, 0, (0, "swapper/0"), (7, "main"))
    made.switch(20, 0, (7, "worker-with-a-l"), (8, "main"))
    made.switch(30, 0, (8, "main"), (0, "swapper/0"))
    events = made.events()
    found = find_executions(events, "thread,comm=worker-with-a-long-name")
    assert found.tid.tolist() == [7]
    assert sorted(find_executions(events, "thread,comm=main").tid.tolist()) == [7, 8]


def test_a_name_of_another_thread_with_the_same_id_does_not_count(record):
    made = record()
    for start, name in ((100, "first"), (300, "second")):
        made.add(start, 0, "sched_process_fork", parent_tid=50, child_tid=7)
        made.switch(start + 10, 0, (0, "swapper/0"), (7, name))
        made.switch(start + 50, 0, (7, name), (0, "swapper/0"))
    found = find_executions(made.events(), "thread,comm=second")
    assert found.begin.tolist() == [300]


def test_processes_of_an_interleaved_command_are_not_of_these_runs(record):
    made = record()
    add_process(made, 100, 7, "/bin/cat")
    add_process(made, 300, 8, "/bin/cat")  # of a run of the other command
    add_process(made, 500, 9, "/bin/cat")
    runs = (Run(1, 70, 500, 600, 0), Run(2, 71, 90, 200, 0))
    found = find_executions(made.events(), "process,comm=cat", runs=runs)
    assert found.tid.tolist() == [7, 9]
    assert "1 run outside the recording's runs" in found.notes
    none = find_executions(made.events(), "process,comm=cat", runs=runs[:1])
    assert none.tid.tolist() == [9]


def test_a_mark_out_of_a_namespace_is_about_whom_its_process_was_forked_by(record):
    """``critpath mark`` in a container: it knows its shell by another number."""
    made = record()
    for start, tid, what in ((100, 7, "begin"), (300, 8, "end")):
        made.add(start, 0, "sched_process_fork", parent_tid=50, child_tid=tid)
        made.switch(start + 10, 0, (50, "sh"), (tid, "critpath"))
        made.add(start + 20, 0, "print", buf=f"critpath:{what} job @4026532281:2\n")
        made.switch(start + 30, 0, (tid, "critpath"), (50, "sh"))
        made.add(start + 40, 0, "sched_process_exit", tid=tid, comm="critpath")
    found = find_executions(made.events(), "marker")
    assert found.tid.tolist() == [50]
    assert found.id == ("50@120",)
    assert found.comm == ("sh",)


ID = "0123456789abcdef" * 4
DB = ControlGroup(f"/libpod_parent/libpod-{ID}", "podman", ID, "db", image="postgres:15")
CRON = ControlGroup("/system.slice/cron.service", "systemd", unit="cron.service")


def in_containers(record):
    """Two processes of a container, one of a unit and one of nobody."""
    made = record()
    made.add(1, 0, "critpath_statedump_cgroup", pid=50, dst_root=4, dst_path=DB.path)
    made.add(2, 0, "critpath_statedump_cgroup", pid=50, dst_root=9, dst_path="/x")
    made.add(3, 0, "critpath_statedump_cgroup", pid=60, dst_root=4, dst_path=CRON.path)
    add_process(made, 100, 7, parent=50)
    add_process(made, 300, 8, parent=60)
    add_process(made, 500, 9, parent=70)
    add_process(made, 700, 10, parent=60)
    made.add(720, 0, "cgroup_attach_task", pid=10, dst_root=4, dst_path=f"{DB.path}/container")
    return made.events()


@pytest.mark.parametrize(
    ("name", "found"),
    [("db", [7, 10]), (ID[:12], [7, 10]), ("cron", [8]), ("cron.service", [8]), ("web", [])],
)
def test_processes_of_a_container(record, name, found):
    specification = parse_specification(f"process,container={name}")
    where = replace(specification.where, groups=(DB, CRON))
    events = in_containers(record)
    executions = find_executions(events, replace(specification, where=where))
    assert executions.tid.tolist() == found
    if not found:
        assert "nothing in web: the recording has container db, unit cron" in str(executions.notes)


def test_a_container_by_its_id_where_no_recorder_named_it(record):
    events = in_containers(record)
    assert find_executions(events, f"process,container={ID}").tid.tolist() == [7, 10]
    assert find_executions(events, "process,container=cron").tid.tolist() == [8]


def test_where_processes_are(record):
    events = in_containers(record)
    places = ProcessPlaces(events, {"": (DB, CRON)})
    assert [places.at(0, pid, 10_000) for pid in (50, 60, 7, 8, 9, 10)] == [
        *("container db", "unit cron.service", "container db", "unit cron.service", ""),
        "container db",
    ]
    assert places.at(0, 10, 710) == "unit cron.service"
    assert not ProcessPlaces(events, {})


def test_a_container_that_nobody_named_is_its_short_id(record):
    events = in_containers(record)
    assert ProcessPlaces(events, {"": (CRON,)}).at(0, 7, 200) == f"container {ID[:12]}"
