/* Asks a server over a number of connections, one request at a time on each, and logs what it saw.
 *
 * client PORT CONNECTIONS REQUESTS MODE THINK_US OUTPUT [DEPTH]
 *
 * MODE: http, http-close (a connection for each request), http-shop (a path for each of three
 * kinds, a traceparent), redis, memcached, lines; over UDP dns, udp-lines, udp-memcached. Each row of
 * OUTPUT: id, local port, CLOCK_MONOTONIC before the write and after the last read (ns), thread.
 * DEPTH requests are written at once (redis: pipelining). Environment ADDRESS: whom to ask instead
 * of this machine. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int port, connections, requests, think, depth = 1;
static const char *mode;
static FILE *output;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int next_id;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int open_connection(int *local)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)}, me;
    socklen_t size = sizeof me;
    int one = 1, udp = !strncmp(mode, "udp-", 4) || !strcmp(mode, "dns");
    int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0);
    inet_pton(AF_INET, getenv("ADDRESS") ? getenv("ADDRESS") : "127.0.0.1", &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("connect");
        exit(1);
    }
    if (!udp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    getsockname(fd, (struct sockaddr *)&me, &size);
    *local = ntohs(me.sin_port);
    return fd;
}

/* A question for the address of nID.test. */
static int ask_name(char *to, int id)
{
    char name[16];
    int length = sprintf(name, "n%d", id);
    char head[12] = {id >> 8, id, 1, 0, 0, 1}, tail[] = "\4test\0\0\1\0\1";
    memcpy(to, head, 12);
    to[12] = length;
    memcpy(to + 13, name, length);
    memcpy(to + 13 + length, tail, 10);
    return 23 + length;
}

/* The number of bytes that the answer has, -1 while that is not known. */
static long answer_bytes(const char *data)
{
    if (!strncmp(mode, "http", 4)) {
        const char *end = strstr(data, "\r\n\r\n"), *length = strcasestr(data, "content-length:");
        if (!end)
            return -1;
        return end + 4 - data + (length && length < end ? atol(length + 15) : 0);
    }
    if (!strncmp(mode, "udp-", 4) || !strcmp(mode, "dns"))
        return 0;
    const char *mark = !strcmp(mode, "memcached") ? "END\r\n" : "\n";
    const char *at = data;
    for (int i = 0; i < depth; i++) {
        at = strstr(at, mark);
        if (!at)
            return -1;
        at += strlen(mark);
    }
    return at - data;
}

static void *ask(void *unused)
{
    static const int room = 1 << 20;
    char *data = malloc(room), text[8192];
    int local, fd = open_connection(&local), thread = syscall(SYS_gettid);
    unsigned seed = local;
    const char *kinds[] = {"order", "carts", "stock"};
    char trace[80];
    for (;;) {
        int id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED);
        if (id >= requests)
            break;
        if (think)
            usleep(rand_r(&seed) % think);
        if (!strcmp(mode, "http-close") && fd < 0)
            fd = open_connection(&local);
        int size = 0, shop = !strcmp(mode, "http-shop");
        sprintf(trace, "traceparent: 00-%032x-%016x-01\r\n", id + 1, id + 1);
        if (!strcmp(mode, "dns"))
            size = ask_name(text, id);
        for (int i = 0; i < (size ? 0 : depth); i++)
            size += !strncmp(mode, "http", 4)
                ? sprintf(text + size, "GET /%s?id=%d HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: %d\r\n%s\r\n",
                          shop ? kinds[id % 3] : "", id, id, shop ? trace
                          : !strcmp(mode, "http-close") ? "Connection: close\r\n" : "")
                : !strcmp(mode, "redis")     ? sprintf(text + size, "INCR k%d\r\n", id % 50)
                : !strcmp(mode, "memcached") ? sprintf(text + size, "get k%d\r\n", id % 50)
                : !strcmp(mode, "udp-memcached")
                ? (memcpy(text, "\0\1\0\0\0\1\0\0", 8), 8 + sprintf(text + 8, "get k%d\r\n", id % 50))
                                             : sprintf(text + size, "%d\n", id);
        int64_t begin = now();
        if (write(fd, text, size) != size) {
            perror("write");
            exit(1);
        }
        long got = 0, wanted = -1;
        while (wanted < 0 || got < wanted) {
            long n = read(fd, data + got, room - 1 - got);
            if (n <= 0) {
                fprintf(stderr, "no answer to %d after %ld bytes\n", id, got);
                exit(1);
            }
            got += n;
            data[got] = 0;
            if (wanted < 0)
                wanted = answer_bytes(data);
        }
        int64_t end = now();
        pthread_mutex_lock(&lock);
        fprintf(output, "%d %d %lld %lld %d\n", id, local, (long long)begin, (long long)end,
                thread);
        pthread_mutex_unlock(&lock);
        if (!strcmp(mode, "http-close")) {
            close(fd);
            fd = -1;
        }
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    port = atoi(argv[1]), connections = atoi(argv[2]), requests = atoi(argv[3]);
    mode = argv[4], think = atoi(argv[5]), output = fopen(argv[6], "w");
    depth = argc > 7 ? atoi(argv[7]) : 1;
    if (!output)
        return 1;
    pthread_t *threads = calloc(connections, sizeof *threads);
    for (int i = 0; i < connections; i++)
        pthread_create(&threads[i], NULL, ask, NULL);
    for (int i = 0; i < connections; i++)
        pthread_join(threads[i], NULL);
    return fclose(output) != 0;
}
