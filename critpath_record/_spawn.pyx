# cython: language_level=3
"""Starts a process from a program that has threads.

Between fork and exec the child may only do what is safe in a signal handler: any lock
of the C library or of Python could be held by a thread that is not there any more.
So everything it needs is laid out before, and it is plain C.
"""

from cpython.bytes cimport PyBytes_AsString
from libc.stdlib cimport calloc, free

import errno
import os
import stat

# ---------------------------------------- between fork and exec, in C: only async-signal-safe calls

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <grp.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <sys/types.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>

    /* What the C library's wrappers do to all threads is wrong in the child. */
    #ifdef SYS_setgroups32
    #define CRITPATH_SETGROUPS SYS_setgroups32
    #define CRITPATH_SETRESGID SYS_setresgid32
    #define CRITPATH_SETRESUID SYS_setresuid32
    #else
    #define CRITPATH_SETGROUPS SYS_setgroups
    #define CRITPATH_SETRESGID SYS_setresgid
    #define CRITPATH_SETRESUID SYS_setresuid
    #endif
    #ifndef CLOSE_RANGE_CLOEXEC
    #define CLOSE_RANGE_CLOEXEC (1U << 2)
    #endif

    enum { STEP_EXEC = 1, STEP_CWD, STEP_USER, STEP_DESCRIPTORS, STEP_PRIORITY, STEP_GROUP };

    typedef struct {
        const char *path;       /* of the program */
        char **argv, **envp;
        char **shell;           /* argv for /bin/sh if the kernel knows no such format */
        const char *cwd;        /* or NULL */
        int change_user;
        uid_t uid;
        gid_t gid;
        size_t n_groups;
        gid_t *groups;
        sigset_t mask;
        sigset_t ignored;
        int *keep;
        size_t n_keep;
        int death_signal;       /* 0: none */
        int nice, policy, priority;
        int set_nice, set_policy;
        int streams[3];         /* become stdin, stdout and stderr; -1: inherited */
        int group;              /* cgroup.procs of the control group that it joins; -1: none */
        int group_answers;      /* it is a socket of who puts it there instead */
        volatile int64_t *executed; /* where the child may write when it executes */
    } critpath_plan;

    typedef struct { int32_t step, error; } critpath_failure;

    static void critpath_fail(int channel, int step, int error) {
        critpath_failure failure = {step, error};
        ssize_t ignored = write(channel, &failure, sizeof failure);
        (void)ignored;
        _exit(127);
    }

    static int64_t critpath_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void critpath_join(const critpath_plan *p, int channel) {
        char answer = '0';
        ssize_t got;
        if (p->group < 0) return;
        if (write(p->group, "0", 1) != 1) critpath_fail(channel, STEP_GROUP, errno);
        if (!p->group_answers) return;
        do {
            got = read(p->group, &answer, 1);
        } while (got < 0 && errno == EINTR);
        if (got != 1 || answer != '0') critpath_fail(channel, STEP_GROUP, EPERM);
    }

    static int critpath_inherit(const critpath_plan *p, int channel) {
        if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
            /* Linux before 5.11. */
            long most = sysconf(_SC_OPEN_MAX);
            if (most < 0 || most > 65536) most = 65536;
            for (int fd = 3; fd < most; fd++) {
                int flags = fcntl(fd, F_GETFD);
                if (flags >= 0) (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
            }
        }
        for (size_t i = 0; i < p->n_keep; i++) {
            if (p->keep[i] == channel) continue;
            int flags = fcntl(p->keep[i], F_GETFD);
            if (flags < 0) {
                /* Closed meanwhile: nothing that could be inherited. */
                if (errno == EBADF) continue;
                return -1;
            }
            if (fcntl(p->keep[i], F_SETFD, flags & ~FD_CLOEXEC) != 0) return -1;
        }
        return 0;
    }

    static void critpath_child(const critpath_plan *p, int channel, pid_t parent) {
        struct sigaction plain;
        /* All signals are blocked here: no handler of the parent can run. */
        for (int s = 1; s < NSIG; s++) {
            if (s == SIGKILL || s == SIGSTOP) continue;
            for (size_t i = 0; i < sizeof plain; i++) ((volatile char *)&plain)[i] = 0;
            plain.sa_handler = sigismember(&p->ignored, s) == 1 ? SIG_IGN : SIG_DFL;
            (void)sigaction(s, &plain, NULL);
        }
        if (p->set_policy) {
            struct sched_param param;
            param.sched_priority = p->priority;
            if (sched_setscheduler(0, p->policy, &param) != 0)
                critpath_fail(channel, STEP_PRIORITY, errno);
        }
        if (p->set_nice && setpriority(PRIO_PROCESS, 0, p->nice) != 0)
            critpath_fail(channel, STEP_PRIORITY, errno);
        for (int fd = 0; fd < 3; fd++)
            if (p->streams[fd] >= 0 && dup2(p->streams[fd], fd) < 0)
                critpath_fail(channel, STEP_DESCRIPTORS, errno);
        if (critpath_inherit(p, channel) != 0)
            critpath_fail(channel, STEP_DESCRIPTORS, errno);
        /* Older kernels ask who writes, not who opened the file. */
        if (p->change_user) critpath_join(p, channel);
        if (p->change_user) {
            uid_t real = 0, effective = 0, saved = 0;
            if (syscall(CRITPATH_SETGROUPS, p->n_groups, p->groups) != 0
                || syscall(CRITPATH_SETRESGID, p->gid, p->gid, p->gid) != 0
                || syscall(CRITPATH_SETRESUID, p->uid, p->uid, p->uid) != 0)
                critpath_fail(channel, STEP_USER, errno);
            /* -1 changes nothing: never go on as somebody else. */
            if (getresuid(&real, &effective, &saved) != 0 || real != p->uid
                || effective != p->uid || saved != p->uid)
                critpath_fail(channel, STEP_USER, EPERM);
        }
        /* What a recorder has that is no root: none of it is the program's. */
        #ifdef PR_CAP_AMBIENT
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        #endif
        if (p->cwd && chdir(p->cwd) != 0) critpath_fail(channel, STEP_CWD, errno);
        if (p->death_signal) {
            /* After the change of user, which clears it. */
            (void)prctl(PR_SET_PDEATHSIG, (unsigned long)p->death_signal, 0, 0, 0);
            /* It died before it could be asked for. */
            if (getppid() != parent) (void)raise(SIGKILL);
        }
        (void)sigprocmask(SIG_SETMASK, &p->mask, NULL);
        /* As late as can be: what is counted in the group is the program's. */
        if (!p->change_user) critpath_join(p, channel);
        *p->executed = critpath_now();
        (void)execve(p->path, p->argv, p->envp);
        int error = errno;
        if (error == ENOEXEC && p->shell) {
            (void)execve("/bin/sh", p->shell, p->envp);
            error = errno;
        }
        critpath_fail(channel, STEP_EXEC, error);
    }

    /* Returns the pid, or -1 with errno; the time is that just before the fork. */
    static pid_t critpath_start(const critpath_plan *p, int channel, int64_t *begin) {
        sigset_t all, before;
        pid_t parent = getpid();
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        *begin = critpath_now();
        /* Copying what this process has mapped would take longer than a short program. A child
           that becomes another user gets its own copy all the same: that user could reach into
           what it shares with us. */
        pid_t pid = p->change_user ? fork() : vfork();
        if (pid == 0) critpath_child(p, channel, parent);
        int error = errno;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        errno = error;
        return pid;
    }

    static ssize_t critpath_failed(int channel, critpath_failure *failure) {
        ssize_t got;
        do {
            got = read(channel, failure, sizeof *failure);
        } while (got < 0 && errno == EINTR);
        return got;
    }

    static int critpath_subreaper(int on) {
        int before = 0;
        if (prctl(PR_GET_CHILD_SUBREAPER, (unsigned long)&before, 0, 0, 0) != 0
            || prctl(PR_SET_CHILD_SUBREAPER, (unsigned long)on, 0, 0, 0) != 0)
            return -1;
        return before;
    }

    /* Collects the child without hanging: 0 while it runs. */
    static pid_t critpath_collect(pid_t pid, int *status, int64_t *end) {
        pid_t got = waitpid(pid, status, WNOHANG);
        *end = critpath_now();
        return got;
    }
    """
    ctypedef int pid_t
    ctypedef unsigned int uid_t
    ctypedef unsigned int gid_t
    ctypedef long long int64_t
    ctypedef struct sigset_t:
        pass
    ctypedef struct critpath_plan:
        const char* path
        char** argv
        char** envp
        char** shell
        const char* cwd
        int change_user
        uid_t uid
        gid_t gid
        size_t n_groups
        gid_t* groups
        sigset_t mask
        sigset_t ignored
        int* keep
        size_t n_keep
        int death_signal
        int nice
        int policy
        int priority
        int set_nice
        int set_policy
        int streams[3]
        int group
        int group_answers
        int64_t* executed
    ctypedef struct critpath_failure:
        int step
        int error
    enum:
        STEP_EXEC
        STEP_CWD
        STEP_USER
        STEP_DESCRIPTORS
        STEP_PRIORITY
        STEP_GROUP
    int sigemptyset(sigset_t*)
    int sigaddset(sigset_t*, int)
    pid_t critpath_start(const critpath_plan*, int, int64_t*) nogil
    ssize_t critpath_failed(int, critpath_failure*) nogil
    pid_t critpath_collect(pid_t, int*, int64_t*) nogil
    int critpath_subreaper(int)
    int get_errno "(errno)"


_STEPS = {
    STEP_EXEC: "exec",
    STEP_CWD: "chdir",
    STEP_USER: "user",
    STEP_DESCRIPTORS: "descriptors",
    STEP_PRIORITY: "priority",
    STEP_GROUP: "group",
}


class SpawnError(OSError):
    """The child could not become the program; `step`: of `_STEPS`, at what it failed."""

    step = "exec"


cdef char** _texts(list texts) except NULL:
    """Lay out pointers into bytes that the caller keeps alive."""
    cdef char** table = <char**>calloc(len(texts) + 1, sizeof(char*))
    cdef Py_ssize_t i
    if table == NULL:
        raise MemoryError
    for i in range(len(texts)):
        table[i] = PyBytes_AsString(texts[i])
    return table


def spawn(bytes path not None, list argv not None, list env not None, *, bytes cwd=None,
          user=None, mask=(), ignored=(), keep=(), int death_signal=0, nice=None,
          scheduler=None, streams=(-1, -1, -1), int group=-1):
    """Start a program, with bytes for texts, as a child of the calling thread.

    A file that is no format of the kernel's is run by ``/bin/sh``.  `env`: ``NAME=value``.  `user`:
    uid, gid and groups.  `mask`, `ignored`: signals, of which all others are as by default.
    `keep`: descriptors beyond 2 that it inherits, and no others.  `death_signal`: when the thread
    dies; 0 for none.  `nice`, `scheduler`: else inherited.  `streams`: its first three
    descriptors; -1 for what is inherited.  `group`: of ``cgroup.procs`` that it joins, or a socket
    of who puts it there; -1 for none.

    Returns its pid, the time just before the fork, and just before the exec (ns, CLOCK_MONOTONIC;
    that of the fork where it runs as another user).  Raises SpawnError if it fails before or at
    exec, and is collected then; OSError if there can be no process.
    """
    cdef critpath_plan plan
    cdef critpath_failure failure
    cdef int64_t begin = 0
    cdef int64_t executed = 0
    cdef pid_t pid
    cdef int reader, writer, error, i
    cdef ssize_t got
    cdef list shell = [b"/bin/sh", path, *argv[1:]]
    for text in (path, *argv, *env, *(() if cwd is None else (cwd,))):
        if not isinstance(text, bytes):
            raise TypeError("bytes only")
        if b"\0" in text:
            raise ValueError("embedded null byte")
    if not argv:
        raise ValueError("no arguments")
    plan.path = path
    plan.argv = plan.envp = plan.shell = NULL
    plan.groups = NULL
    plan.keep = NULL
    reader = writer = -1
    try:
        plan.argv = _texts(argv)
        plan.envp = _texts(env)
        plan.shell = _texts(shell)
        plan.cwd = NULL if cwd is None else PyBytes_AsString(cwd)
        plan.change_user = user is not None
        if user is not None:
            plan.uid, plan.gid, groups = user
            plan.n_groups = len(groups)
            plan.groups = <gid_t*>calloc(len(groups) + 1, sizeof(gid_t))
            if plan.groups == NULL:
                raise MemoryError
            for i in range(len(groups)):
                plan.groups[i] = groups[i]
        sigemptyset(&plan.mask)
        for number in mask:
            sigaddset(&plan.mask, number)
        sigemptyset(&plan.ignored)
        for number in ignored:
            sigaddset(&plan.ignored, number)
        plan.n_keep = len(keep)
        plan.keep = <int*>calloc(len(keep) + 1, sizeof(int))
        if plan.keep == NULL:
            raise MemoryError
        for i in range(len(keep)):
            plan.keep[i] = keep[i]
        plan.death_signal = death_signal
        plan.set_nice = nice is not None
        plan.nice = 0 if nice is None else nice
        plan.set_policy = scheduler is not None
        plan.policy, plan.priority = (0, 0) if scheduler is None else scheduler
        plan.executed = &executed
        plan.group = group
        plan.group_answers = group >= 0 and stat.S_ISSOCK(os.fstat(group).st_mode)
        for i in range(3):
            plan.streams[i] = streams[i]
        reader, writer = os.pipe2(os.O_CLOEXEC)
        with nogil:
            pid = critpath_start(&plan, writer, &begin)
            error = get_errno
        os.close(writer)
        writer = -1
        if pid < 0:
            raise OSError(error, os.strerror(error))
        with nogil:
            got = critpath_failed(reader, &failure)
        if got == sizeof(failure):
            os.waitpid(pid, 0)
            wrong = SpawnError(failure.error, os.strerror(failure.error))
            wrong.step = _STEPS.get(failure.step, "exec")
            raise wrong
        return pid, begin, executed or begin
    finally:
        free(plan.argv)
        free(plan.envp)
        free(plan.shell)
        free(plan.groups)
        free(plan.keep)
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)


def collect(int pid):
    """Return a child's status and the time just after the wait (ns); None while it runs."""
    cdef int status = 0
    cdef int64_t end = 0
    cdef pid_t got
    cdef int error
    with nogil:
        got = critpath_collect(pid, &status, &end)
        error = get_errno
    if got == 0 or (got < 0 and error == errno.EINTR):
        return None
    if got < 0:
        raise OSError(error, os.strerror(error))
    return status, end


def become_subreaper(bint on):
    """Have orphaned descendants become our children, or not; return whether it was so."""
    cdef int before = critpath_subreaper(on)
    if before < 0:
        raise OSError(get_errno, os.strerror(get_errno))
    return bool(before)
