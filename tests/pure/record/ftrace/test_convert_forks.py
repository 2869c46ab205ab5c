"""Which process and namespace the sides of a fork belong to."""

from __future__ import annotations

import struct

import pytest

from critpath_record.ctf.statedump import ThreadState
from critpath_record.ftrace.convert import CLONE_NEWPID, CLONE_THREAD, resolve_forks

FIRST, INNER = 4026531836, 4026532000


def thread(tid, tgid=None, time=0, namespace=FIRST):
    return ThreadState(time, tid, tgid or tid, 1, "x", "S", 0, kernel=False, namespace=namespace)


def newtask(time, parent, child, flags=0):
    return struct.pack("<QIiiQ", time, 0, parent, child, flags)


def fork(time, parent, child):
    return struct.pack("<QIiiQ", time, 1, parent, child, 0)


def born(time, parent, child, flags=0):
    return newtask(time, parent, child, flags) + fork(time + 1, parent, child)


def resolve(*cpus, threads=(), later=()):
    found = resolve_forks(cpus, threads, later)
    return [list(struct.iter_unpack("<iIiI", one)) for one in found]


def test_threads_share_their_process_and_processes_do_not():
    of = resolve(
        born(10, 100, 101, CLONE_THREAD) + born(20, 101, 102, CLONE_THREAD) + born(30, 102, 200),
        threads=[thread(100, namespace=INNER)],
    )
    assert of == [
        [(100, INNER, 100, INNER), (100, INNER, 100, INNER), (100, INNER, 200, INNER)],
    ]


def test_forks_of_all_cpus_are_taken_in_order_of_time():
    first, second = born(10, 100, 101, CLONE_THREAD), born(20, 101, 102)
    assert resolve(second, first, threads=[thread(100)]) == [
        [(100, FIRST, 102, FIRST)],
        [(100, FIRST, 100, FIRST)],
    ]


def test_a_thread_that_the_statedump_came_to_later_is_known_from_the_begin():
    of = resolve(born(10, 101, 102), threads=[thread(101, 100, time=50)])
    assert of == [[(100, FIRST, 102, FIRST)]]


def test_a_number_that_is_used_again_is_another_thread():
    of = resolve(
        born(10, 1, 101, CLONE_THREAD) + born(20, 2, 101) + born(30, 101, 102, CLONE_THREAD),
        threads=[thread(1), thread(2)],
    )
    assert of[0][2] == (101, FIRST, 101, FIRST)


@pytest.mark.parametrize(("later", "inner"), [((), 0), ([thread(50, time=99, namespace=7)], 7)])
def test_a_new_namespace_is_known_only_from_the_end(later, inner):
    of = resolve(born(10, 1, 50, CLONE_NEWPID) + born(20, 50, 51), threads=[thread(1)], later=later)
    assert of == [[(1, FIRST, 50, inner), (50, inner, 51, inner)]]


def test_what_was_seen_at_the_end_goes_before_what_is_inherited():
    # As after unshare(CLONE_NEWPID): the fork itself looks like any other.
    of = resolve(born(10, 1, 50), threads=[thread(1)], later=[thread(50, time=99, namespace=INNER)])
    assert of == [[(1, FIRST, 50, INNER)]]


def test_nothing_is_known_of_the_parent():
    assert resolve(born(10, 7, 8) + born(20, 8, 9, CLONE_THREAD)) == [
        [(7, 0, 8, 0), (8, 0, 8, 0)],
    ]


def test_a_thread_without_its_newtask_is_known_from_the_end():
    of = resolve(fork(10, 7, 8), threads=[thread(7)], later=[thread(8, 7, time=99)])
    assert of == [[(7, FIRST, 7, FIRST)]]
