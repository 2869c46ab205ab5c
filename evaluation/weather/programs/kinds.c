// Programs with a fault each, chosen by the name they are called by: NAME a|b|c (a: before, b: after,
// c: after, a little slower only).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int slow, mild;

static int choose(int before, int little, int much) { return slow ? mild ? little : much : before; }
static int mark_fd = -1;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void burn(double ms) {
    double end = cpu_ms() + ms;
    while (cpu_ms() < end) {
    }
}

static void nap(double ms) {
    struct timespec t = {(time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000};
    nanosleep(&t, 0);
}

static void call_thread(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void mark(const char* what, const char* name, int key) {
    if (mark_fd >= 0) dprintf(mark_fd, "critpath:%s %s %d\n", what, name, key);
}

// cachecli: 6 pages of a memcached, of 1 or 20 keys each
static int run_cachecli(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(11299)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(s, IPPROTO_TCP, 1, &one, sizeof one);
    if (connect(s, (struct sockaddr*)&to, sizeof to)) return 1;
    char answer[512];
    for (int page = 0; page < 6; page++) {
        for (int k = 0; k < choose(1, 4, 20); k++) {
            if (write(s, "get k\r\n", 7) < 0 || read(s, answer, sizeof answer) < 0) return 1;
        }
        burn(.4);
    }
    return 0;
}

// epollherd: 80 threads wait for one eventfd, each woken for every job, or one alone
static int jobs;
static sem_t done;
static void* wait_epoll(void* unused) {
    (void)unused;
    call_thread("worker");
    int e = epoll_create1(0);
    struct epoll_event what = {.events = EPOLLIN | (slow ? 0 : EPOLLEXCLUSIVE)};
    epoll_ctl(e, EPOLL_CTL_ADD, jobs, &what);
    for (;;) {
        uint64_t n;
        epoll_wait(e, &what, 1, -1);
        if (read(jobs, &n, 8) == 8) {
            burn(.3);
            sem_post(&done);
        }
    }
}

static int run_epollherd(void) {
    pthread_t t;
    jobs = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK);
    sem_init(&done, 0, 0);
    for (int i = 0; i < 80; i++) pthread_create(&t, 0, wait_epoll, 0);
    nap(8);
    for (int i = 0; i < 12; i++) {
        uint64_t n = 1;
        if (write(jobs, &n, 8) < 0) return 1;
        while (sem_wait(&done)) {
        }
    }
    return 0;
}

// forkherd: 50 children wait for one pipe: by poll (all are woken), or by read (one is)
static int run_forkherd(void) {
    int job[2], answer[2];
    if (pipe(job) || pipe(answer)) return 1;
    pid_t children[50];
    for (int i = 0; i < 50; i++) {
        if (!(children[i] = fork())) {
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
            call_thread("prefork");
            if (slow) fcntl(job[0], F_SETFL, O_NONBLOCK);
            for (;;) {
                char c;
                struct pollfd p = {job[0], POLLIN, 0};
                if (slow) poll(&p, 1, -1);
                if (read(job[0], &c, 1) != 1) continue;
                burn(.4);
                if (write(answer[1], "x", 1) < 0) _exit(1);
            }
        }
    }
    nap(10);
    for (int i = 0; i < 12; i++) {
        char c;
        mark("begin", "job", i);
        if (write(job[1], "j", 1) < 0 || read(answer[0], &c, 1) < 0) return 1;
        mark("end", "job", i);
        nap(2);
    }
    for (int i = 0; i < 50; i++) kill(children[i], SIGKILL);
    while (wait(0) > 0) {
    }
    return 0;
}

static int by_value(const void* a, const void* b) {
    return (*(const int*)a > *(const int*)b) - (*(const int*)a < *(const int*)b);
}

// sorter: sorts three times as much
static int run_sorter(void) {
    int n = choose(30000, 39000, 90000);
    int* numbers = malloc(sizeof *numbers * 90000);
    memset(numbers, 1, sizeof *numbers * 90000);
    unsigned seed = 7;
    for (int i = 0; i < n; i++) numbers[i] = (seed = seed * 1103515245 + 12345) >> 8;
    qsort(numbers, n, sizeof *numbers, by_value);
    return numbers[0] > numbers[n - 1];
}

// pinned: 24 ms of work on cpu 1, whether a hog is there or not
static int run_pinned(void) {
    pin(1);
    for (int i = 0; i < 6; i++) {
        burn(4);
        nap(.2);
    }
    return 0;
}

// twokinds: requests of two kinds by turns, for a thread on cpu 0 and one on cpu 1
static sem_t asked[2], answered;
static void* serve(void* which) {
    int cpu = (int)(intptr_t)which;
    pin(cpu);
    call_thread(cpu ? "beta" : "alpha");
    for (;;) {
        while (sem_wait(&asked[cpu])) {
        }
        burn(3);
        sem_post(&answered);
    }
}

static int run_twokinds(void) {
    pthread_t t;
    pin(0);
    sem_init(&answered, 0, 0);
    for (int i = 0; i < 2; i++) {
        sem_init(&asked[i], 0, 0);
        pthread_create(&t, 0, serve, (void*)(intptr_t)i);
    }
    for (int i = 0; i < 8; i++) {
        mark("begin", i & 1 ? "orders" : "items", i);
        sem_post(&asked[i & 1]);
        while (sem_wait(&answered)) {
        }
        mark("end", i & 1 ? "orders" : "items", i);
        nap(1);
    }
    return 0;
}

// mapper: each block is mapped anew and given back, or used again
static int run_mapper(void) {
    size_t size = 6 << 20, times = mild ? 2 : 8;
    if (slow) {
        mallopt(M_MMAP_THRESHOLD, 1 << 20);
        mallopt(M_TRIM_THRESHOLD, 1 << 20);
    } else {
        mallopt(M_MMAP_MAX, 0);
        mallopt(M_TRIM_THRESHOLD, 1 << 30);
        free(malloc(size));
    }
    for (size_t i = 0; i < 8; i++) {
        if (i == times) mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 1 << 30);
        volatile char* block = malloc(size);
        madvise((void*)(((uintptr_t)block + 4095) & ~4095ul), size - 4096, MADV_NOHUGEPAGE);
        for (size_t k = 0; k < size; k += 4096) block[k] = 1;
        burn(.5);
        free((void*)block);
    }
    return 0;
}

// pool: three workers, called after their thread ids, have a job each, three times as long
static void* work_named(void* unused) {
    char name[16];
    (void)unused;
    snprintf(name, sizeof name, "wkr-%d", (int)syscall(SYS_gettid));
    call_thread(name);
    nap(2);
    burn(choose(8, 10, 24) / 2.);
    return 0;
}

static int run_pool(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        pthread_create(&t, 0, work_named, 0);
        pthread_join(t, 0);
    }
    return 0;
}

// underhog a|b CMD...: tells the hog whether to run, then is the command
static volatile char* map_flag(void) {
    const char* path = getenv("HOG_FLAG");
    int f = open(path ? path : "/dev/shm/critpath-hog", O_RDWR | O_CREAT, 0666);
    if (ftruncate(f, 4096)) exit(1);
    return mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
}

static int run_underhog(char** argv) {
    *map_flag() = slow;
    nap(4);
    execvp(argv[2], argv + 2);
    return 127;
}

// The hog on cpu 1, while it is asked to: realtime (jackd), 12 of 15 ms; ordinary of weight (batchd)
static int run_hog(int realtime) {
    volatile char* flag = map_flag();
    struct sched_param p = {30};
    pin(1);
    if (realtime) sched_setscheduler(0, SCHED_RR, &p);
    // Of its session, where the kernel shares cpus among sessions.
    else if (setpriority(PRIO_PROCESS, 0, -15) || system("echo -15 >/proc/$PPID/autogroup")) return 1;
    for (;;) {
        if (*flag) burn(realtime ? 12 : 20);
        nap(realtime || !*flag ? 3 : .05);
    }
}

// indexer: a neighbour that computes without an end
static int run_indexer(void) {
    for (;;) burn(1000);
}

int main(int argc, char** argv) {
    char* name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    mild = argc > 1 && argv[1][0] == 'c';
    slow = mild || (argc > 1 && argv[1][0] == 'b');
    if (getenv("CRITPATH_MARKER_FD")) mark_fd = atoi(getenv("CRITPATH_MARKER_FD"));
    // Of LTTng, whose recorder says so; others may write there as well.
    if (getenv("CRITPATH_RECORDER")) mark_fd = open("/proc/lttng-logger", O_WRONLY);
    if (!strcmp(name, "cachecli")) return run_cachecli();
    if (!strcmp(name, "epollherd")) return run_epollherd();
    if (!strcmp(name, "forkherd")) return run_forkherd();
    if (!strcmp(name, "sorter")) return run_sorter();
    if (!strcmp(name, "pinned")) return run_pinned();
    if (!strcmp(name, "twokinds")) return run_twokinds();
    if (!strcmp(name, "mapper")) return run_mapper();
    if (!strcmp(name, "pool")) return run_pool();
    if (!strcmp(name, "underhog")) return run_underhog(argv);
    if (!strcmp(name, "jackd")) return run_hog(1);
    if (!strcmp(name, "batchd")) return run_hog(0);
    if (!strcmp(name, "indexer")) return run_indexer();
    return 2;
}
