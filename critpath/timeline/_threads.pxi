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
    NET_SEND = 17
    NET_RECEIVE = 18
    VECTOR_ENTRY = 19
    VECTOR_EXIT = 20
    CURRENT = 21

    # critpath.model.State
    S_UNKNOWN = 0
    S_RUN = 1
    S_RUN_USER = 2
    S_RUN_SYSCALL = 3
    S_IRQ = 4
    S_SOFTIRQ = 5
    S_WAIT_CPU = 6
    S_WAIT_TASK = 7
    S_WAIT_NET = 9
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
    CPUS = 32768    # of a host, at most

    # What an event class says by the fields that it has.
    HAS_SUCCESS = 1
    HAS_NAME = 2
    HAS_TARGET = 4

    # What is known of a worker.
    SEEN = 1              # since Person.first
    EXITING = 2

ctypedef struct Meaning:
    # Of an event class: of system calls and vectors the qualifier, and what a thread
    # that it is about waits for (-1: not said).
    uint8_t kind
    uint8_t flags
    int32_t host
    int32_t detail
    int32_t state
    # Which field has the thread that it changes, and the bits of it: none if it has none.
    int32_t thread
    int32_t thread_bits

ctypedef struct Worker:
    # What events ask for and change: one line of the cache.
    int64_t since
    int64_t woken         # time of the wake that was seen, -1 none
    int64_t last
    int64_t row_end       # of its last row since the last cut, or the block's base
    int32_t waker         # source worker, -1: not a thread
    int32_t wake_detail   # what that wake means
    int32_t name
    int32_t cpu
    int32_t syscall       # code of the system call the thread is in, 0 none
    int8_t doing
    int8_t wake_state
    int8_t pending        # the wake came while the thread was still running
    int8_t known          # a bit each: SEEN, EXITING
    int8_t run_state      # what it is in while it runs: S_RUN while system calls are unknown
    int8_t syscall_state  # what one asleep in it waits for, -1: not said
    int32_t rows          # since the last cut

ctypedef struct Person:
    # What a worker is; rarely asked for.
    int64_t first         # event in which it was on a cpu, or changed itself; -1 none
    int64_t tid
    int64_t host
    int64_t pid
    int64_t parent
    int64_t born
    int32_t idle_cpu

ctypedef struct Context:
    int32_t kind
    int32_t key
    int32_t state         # what a thread woken from here was waiting for
    int32_t detail
    int32_t shown         # S_IRQ or S_SOFTIRQ

ctypedef struct Tail:
    # Packed rows of one processor since the last cut.
    Rows bytes
    int64_t rows
    int64_t end           # of the last one, or the block's base

ctypedef struct Processor:
    int64_t since
    int64_t top_since
    int64_t current_tid   # as the last switch names it
    int32_t current       # worker, -1 unknown
    int32_t idle          # worker
    int32_t host
    int32_t cpu
    int32_t index
    int32_t depth
    int32_t overflow      # contexts beyond DEPTH, to be popped unseen
    # Network events for which it is open who ran, and when the interrupt ends: the
    # first of a chain, -1 none.
    int32_t net_ran
    int32_t net_stolen
    int32_t ran_worker    # of the last row of occupation
    int64_t ran_end
    Tail stolen, ran
    Context stack[DEPTH]
    int64_t padding[5]    # to whole lines of the cache
