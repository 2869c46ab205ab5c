# Waits with a time-out: sleeps that a timer ended, tries between them, and who had what was waited
# for (docs/critical-path.md, "Holders").  Included by _replay.pyx.

cdef extern from "stdlib.h" nogil:
    int64_t llabs(int64_t)

cdef enum:
    SHORT_TRY = 50000     # ns that a thread runs between two sleeps of one wait
    TIMER_SLACK = 100000  # ns that a timer may be late
    MOST_TRIES = 4096     # of one wait
    WOULD_BLOCK = -11     # what a file lock that another has returns
    # Instead of a holder.
    NO_HOLDER = -1        # who ended the wait slept at the time-out
    SOME_HOLDER = -2      # so it did, but for a third thread, which nobody knows of
    OPEN_TRY = -3         # it is not known yet whether it was one

ctypedef struct TimedSleep:
    int64_t begin
    int64_t end
    int64_t since         # the holder had not slept
    int32_t worker
    int32_t waker         # who ended the wait
    int32_t holder
    int32_t attempt       # at a file lock before it, -1 none
    int32_t before        # of the same wait, -1 none
    int32_t observed      # whether who ended the wait did so by the futex that was waited on
    int64_t futex         # 0 none that is known
    int32_t tries         # so far
    int32_t syscall

ctypedef struct TimedLength:
    int32_t worker
    float length

ctypedef struct Retries:
    Rows sleeps
    Rows timed            # every sleep that a timer ended, also those that were no tries
    Rows locks            # who tried to get, or gave back, a file lock
    int32_t unused        # of the sleeps, the first that was no try


cdef void follow_locks(Handling* kinds) noexcept nogil:
    kinds[KIND_FILE_LOCK] = Handling(on_lock, on_lock, 0, 0, 0)


cdef int on_lock(Replay self, Processor* p, int64_t t, const int64_t* v,
                 const EventSemantics* of) except -1 nogil:
    note_lock(&self.retries, &self.table, p, p != NULL and v[0] == WOULD_BLOCK)
    return DONE


cdef void clear_retries(Retries* retries) noexcept:
    clear(&retries.sleeps)
    clear(&retries.timed)
    clear(&retries.locks)


cdef inline void note_futex(ThreadTable* table, int32_t index, int64_t address) noexcept nogil:
    """A thread begins a system call, or ends one: of a futex, by its address."""
    if address:
        # The two words that waiters of one condition variable sleep on in turns are one wait.
        table.infos[index].futex = address >> 3
        table.workers[index].known |= IN_FUTEX
    else:
        table.workers[index].known &= ~IN_FUTEX


cdef inline int64_t futex_of(const ThreadTable* table, int32_t index) noexcept nogil:
    return table.infos[index].futex if table.workers[index].known & IN_FUTEX else 0


cdef inline void note_waker(ThreadTable* table, Py_ssize_t woken, int32_t waker) noexcept nogil:
    """Remember since when a waker has not slept, and the same of who woke it."""
    cdef Waker* noted = &table.infos[woken].noted
    noted.worker = waker
    noted.futex = 0
    if waker >= 0:
        noted.futex = futex_of(table, waker)
        noted.awake = table.infos[waker].awake
        noted.before = table.infos[waker].by.worker
        noted.before_awake = table.infos[waker].by.awake


cdef inline void drop_tries(Retries* retries, ThreadTable* table, int32_t index) noexcept nogil:
    """Forget timed sleeps of a worker: it did something else in between."""
    cdef const ThreadInfo* info = &table.infos[index]
    table.workers[index].known &= ~RETRYING
    # As one: their lines of the cache are not waited for.
    (<TimedSleep*>retries.sleeps.data)[info.first_tried].before = retries.unused
    retries.unused = info.tried


cdef inline void count_run(Retries* retries, ThreadTable* table, int32_t index,
                           int64_t t) noexcept nogil:
    """Count how long a worker has run since a timer woke it."""
    table.infos[index].ran += t - table.workers[index].since
    if table.infos[index].ran > SHORT_TRY:
        drop_tries(retries, table, index)


cdef void add_try(Retries* retries, ThreadTable* table, int32_t index, int64_t t) noexcept nogil:
    """A timer ends a sleep: if the next one begins soon, it is the same wait."""
    cdef TimedSleep* sleeps = <TimedSleep*>retries.sleeps.data
    cdef Worker* w = &table.workers[index]
    cdef ThreadInfo* info = &table.infos[index]
    (<TimedLength*>retries.timed.data)[retries.timed.size] = TimedLength(index, <float>(t - w.since))
    retries.timed.size += 1
    cdef int32_t before = info.tried if w.known & RETRYING else -1, i = retries.unused
    cdef int64_t futex = futex_of(table, index)
    if before >= 0 and (sleeps[before].tries >= MOST_TRIES or sleeps[before].syscall != w.syscall
                        or sleeps[before].futex != futex):
        drop_tries(retries, table, index)
        before = -1
        i = retries.unused
    if i >= 0:
        retries.unused = sleeps[i].before
        prefetch(&sleeps[max(retries.unused, 0)])  # for the next
    else:
        i = <int32_t>retries.sleeps.size
        retries.sleeps.size += 1
    sleeps[i] = TimedSleep(w.since, t, t, index, -1, OPEN_TRY, -1, before, 0, futex,
                           sleeps[before].tries + 1 if before >= 0 else 1, w.syscall)
    if w.known & REFUSED:
        # What it waits for is known; the tries before it were for the same.
        if w.known & RETRYING:
            sleeps[i].before = -1
            drop_tries(retries, table, index)
        sleeps[i].attempt = info.attempt
        sleeps[i].holder = NO_HOLDER
        return
    if before < 0:
        info.first_tried = i
    info.tried = i
    info.ran = 0
    w.known |= RETRYING


cdef void end_try(Retries* retries, ThreadTable* table, int32_t index, int64_t t) noexcept nogil:
    """End a sleep: by a timer, or by who ends a wait whose time-outs were before it."""
    cdef TimedSleep* sleeps = <TimedSleep*>retries.sleeps.data
    cdef TimedSleep* one
    cdef Worker* w = &table.workers[index]
    cdef ThreadInfo* info = &table.infos[index]
    cdef const Waker* by = &info.by
    cdef int32_t i, observed
    cdef int64_t length
    info.awake = t
    info.by = info.noted
    if w.woken < 0 or w.waker < 0:
        info.by.worker = -1
    if info.by.worker < 0 or by.before != index:
        info.kept = Asker(by.awake, t, by.worker)
    if w.woken >= 0 and w.waker < 0 and w.wake_state == STATE_WAIT_TIMER:
        add_try(retries, table, index, t)
    elif w.known & RETRYING:
        one = &sleeps[info.tried]
        observed = one.futex != 0 and by.futex == one.futex
        # A wait with a time-out cannot last longer than that.
        if (by.worker < 0 or by.worker == index or one.syscall != w.syscall
                or one.futex != futex_of(table, index) or (not observed and (
                    50 * (t - w.since) > 51 * (one.end - one.begin) + 50 * TIMER_SLACK))):
            drop_tries(retries, table, index)
        else:
            w.known &= ~RETRYING
            i = info.tried
            length = one.end - one.begin
            while i >= 0:
                one = &sleeps[i]
                # Another time-out is of another wait: a sleep on purpose, before this one.
                if (not observed
                        and 10 * llabs(one.end - one.begin - length) > length + 10 * TIMER_SLACK):
                    info.tried = i
                    drop_tries(retries, table, index)
                    break
                one.waker = by.worker
                one.holder = NO_HOLDER
                one.observed = observed
                if observed or by.awake <= one.end:
                    one.holder = by.worker
                    one.since = by.awake
                elif by.before >= 0 and by.before != index and by.before_awake <= one.end:
                    one.holder = by.before
                    one.since = by.before_awake
                elif by.before >= 0 and by.before != index:
                    one.holder = SOME_HOLDER
                i = one.before
    w.known &= ~REFUSED


cdef inline void note_lock(Retries* retries, ThreadTable* table, const Processor* p,
                           int refused) noexcept nogil:
    """A thread gets, gives back or is refused a file lock."""
    cdef int32_t worker = -1 if p == NULL or p.current == p.idle else p.current
    (<int32_t*>retries.locks.data)[retries.locks.size] = worker
    if worker >= 0 and refused:
        table.workers[worker].known |= REFUSED
        table.infos[worker].attempt = <int32_t>retries.locks.size
    retries.locks.size += 1


cdef holder_columns(Retries* retries):
    """Return what `critpath.timeline.holders.HolderRecord` has, in its order."""
    cdef TimedSleep* sleeps = <TimedSleep*>retries.sleeps.data
    cdef Py_ssize_t i, n = retries.sleeps.size, m = retries.locks.size
    columns = np.empty((8, n), np.int64)
    cdef int64_t[:, ::1] into = columns
    cdef TimedLength* all_ = <TimedLength*>retries.timed.data
    timed = np.empty(retries.timed.size, np.int32)
    lengths = np.empty(retries.timed.size, np.float32)
    cdef int32_t[::1] timed_ = timed
    cdef float[::1] lengths_ = lengths
    for i in range(<Py_ssize_t>retries.timed.size):
        timed_[i], lengths_[i] = all_[i].worker, all_[i].length
    locks = np.empty(m, np.int32)
    cdef int32_t[::1] tried = locks
    for i in range(m):
        tried[i] = (<int32_t*>retries.locks.data)[i]
    for i in range(n):
        into[0, i], into[1, i], into[2, i] = sleeps[i].worker, sleeps[i].begin, sleeps[i].end
        into[3, i], into[4, i], into[5, i] = sleeps[i].holder, sleeps[i].since, sleeps[i].waker
        into[6, i], into[7, i] = sleeps[i].attempt, sleeps[i].observed
    kept = columns[:, columns[3] > OPEN_TRY]
    return *kept[:, np.lexsort((kept[2], kept[0]))], locks, timed, lengths
