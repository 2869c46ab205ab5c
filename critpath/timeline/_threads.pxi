# What the replay knows of threads and processors.  Included by _replay.pyx.

cdef enum:
    # critpath.model.Kind
    SWITCH = 1
    WAKING = 2
    WAKEUP = 3
    WAKEUP_NEW = 4
    FORK = 5
    EXEC = 6
    EXIT = 7
    IRQ_ENTRY = 8
    IRQ_EXIT = 9
    SOFTIRQ_ENTRY = 10
    SOFTIRQ_EXIT = 11
    TIMER_ENTRY = 12
    TIMER_EXIT = 13
    STATEDUMP = 14
    SYSCALL_ENTRY = 15
    SYSCALL_EXIT = 16
    VECTOR_ENTRY = 19
    VECTOR_EXIT = 20

    # critpath.model.State
    S_UNKNOWN = 0
    S_RUN = 1
    S_RUN_USER = 2
    S_RUN_SYSCALL = 3
    S_IRQ = 4
    S_SOFTIRQ = 5
    S_WAIT_CPU = 6
    S_WAIT_TASK = 7
    S_WAIT_STOPPED = 17
    S_WAIT_UNEXPLAINED = 19

    # What a thread is doing now.
    NEVER = 0       # not observed yet
    RUNNING = 1
    RUNNABLE = 2
    ASLEEP = 3
    STOPPED = 4
    DEAD = 5
    LOST = 6        # observed, but an event that should have been there was not
    UNBORN = 7      # forked, not yet woken for the first time

    # Interrupt contexts, as the exit event must match its entry.
    C_IRQ = 1
    C_SOFTIRQ = 2
    C_TIMER = 3
    C_VECTOR = 4

    DEPTH = 16
    NO_WAKE = 0

ctypedef struct Worker:
    int64_t tid
    int64_t host
    int64_t pid
    int64_t first
    int64_t last
    int64_t parent
    int64_t born
    int32_t name
    int32_t idle_cpu
    int32_t doing
    int32_t cpu
    int64_t since
    # A wake seen: source worker (-1: not a thread), its time (-1: none), what it means.
    int64_t waker
    int64_t woken
    int32_t wake_state
    int32_t wake_detail
    int32_t pending       # the wake came while the thread was still running
    int32_t exiting
    int32_t syscall       # code of the system call the thread is in, 0 none
    int32_t in_syscall    # -1 not known yet, 0 no, 1 yes

ctypedef struct Context:
    int32_t kind
    int32_t key
    int32_t state         # what a thread woken from here was waiting for
    int32_t detail
    int32_t shown         # S_IRQ or S_SOFTIRQ

ctypedef struct Processor:
    int64_t host
    int32_t cpu
    int64_t current       # worker, -1 unknown
    int64_t since
    int64_t idle          # worker
    int64_t top_since
    int32_t depth
    int32_t overflow      # contexts beyond DEPTH, to be popped unseen
    Context stack[DEPTH]
