/* A reader and workers: the reader receives, workers take from a queue and answer (futex).
 *
 * pool PORT WORKERS REDIS_PORT TRUTH. A request is a line with its number; each makes one
 * sub-request of its worker's own connection to Redis. Each row of TRUTH: id, thread, begin, end,
 * the client's port, and "PORT:BEGIN:END" for each sub-request. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct item {
    int fd, id;
};
static struct item queue[4096];
static unsigned head, tail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int redis_port;
static FILE *truth;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in at(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    return a;
}

static void work(long rounds)
{
    for (volatile long i = 0; i < rounds; i++)
        ;
}

static void *worker(void *unused)
{
    struct sockaddr_in to = at(redis_port), me, peer;
    socklen_t size = sizeof me;
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, tid = syscall(SYS_gettid);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("redis");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    getsockname(fd, (struct sockaddr *)&me, &size);
    unsigned seed = tid;
    for (;;) {
        char text[128];
        pthread_mutex_lock(&lock);
        while (head == tail)
            pthread_cond_wait(&more, &lock);
        struct item mine = queue[head++ % 4096];
        pthread_mutex_unlock(&lock);
        int64_t begin = now();
        work(50000 + rand_r(&seed) % 300000);
        int n = sprintf(text, "INCR p%d\r\n", mine.id % 50);
        int64_t asked = now();
        if (write(fd, text, n) != n || read(fd, text, sizeof text) <= 0)
            exit(1);
        int64_t answered = now();
        work(rand_r(&seed) % 100000);
        size = sizeof peer;
        getpeername(mine.fd, (struct sockaddr *)&peer, &size);
        n = sprintf(text, "%d\n", mine.id);
        if (write(mine.fd, text, n) != n)
            continue;
        int64_t end = now();
        flockfile(truth);
        fprintf(truth, "%d %d %lld %lld %d %d:%lld:%lld\n", mine.id, tid, (long long)begin,
                (long long)end, ntohs(peer.sin_port), ntohs(me.sin_port), (long long)asked,
                (long long)answered);
        fflush(truth);
        funlockfile(truth);
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1, workers = atoi(argv[2]);
    struct sockaddr_in here = at(atoi(argv[1]));
    redis_port = atoi(argv[3]);
    truth = fopen(argv[4], "a");
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!truth || bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, 256))
        return 1;
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, worker, NULL);
    }
    prctl(PR_SET_NAME, "reader");
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, ready[64];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int n = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            char text[128];
            int fd = ready[i].data.fd;
            if (fd == listening) {
                event.data.fd = accept(listening, NULL, NULL);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            long got = read(fd, text, sizeof text - 1);
            if (got <= 0) {
                close(fd);
                continue;
            }
            text[got] = 0;
            pthread_mutex_lock(&lock);
            queue[tail++ % 4096] = (struct item){fd, atoi(text)};
            pthread_cond_signal(&more);
            pthread_mutex_unlock(&lock);
        }
    }
}
