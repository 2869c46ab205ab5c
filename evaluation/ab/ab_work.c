/* ab_work KIND N [PERCENT MS]: N of one kind of work; in PERCENT of its executions it sleeps
 * MS besides.
 *
 * cpu: N loops. fsync: 4 times N bytes written and synced. pipes: N round trips with a child.
 * web: a request to 127.0.0.1, port N, answered whole.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int spin(long n) {
    volatile uint64_t sum = 0;
    for (long i = 0; i < n; i++) sum += sum * 31 + (uint64_t)i;
    return 0;
}

static int sync_file(long n) {
    char name[] = "ab_work.XXXXXX", *data = calloc(1, (size_t)n);
    int file = mkstemp(name);
    if (file < 0 || !data) return 1;
    unlink(name);
    for (int i = 0; i < 4; i++)
        if (write(file, data, (size_t)n) != n || fsync(file)) return 1;
    return 0;
}

static int trip(long n) {
    int to[2], from[2];
    char byte = 0;
    if (pipe(to) || pipe(from)) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (!child) {
        close(to[1]);
        while (read(to[0], &byte, 1) == 1)
            if (write(from[1], &byte, 1) != 1) break;
        _exit(0);
    }
    for (long i = 0; i < n; i++)
        if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 1;
    close(to[1]);
    return waitpid(child, NULL, 0) != child;
}

static int request(long port) {
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const char *text = "GET / HTTP/1.0\r\n\r\n";
    char answer[4096];
    long all = 0, got;
    int one = socket(AF_INET, SOCK_STREAM, 0);
    peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (one < 0 || connect(one, (struct sockaddr *)&peer, sizeof peer)) return 1;
    if (write(one, text, strlen(text)) < 0) return 1;
    while ((got = read(one, answer, sizeof answer)) > 0) all += got;
    return all == 0;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 1000;
    int percent = argc > 3 ? atoi(argv[3]) : 0;
    int ms = argc > 4 ? atoi(argv[4]) : 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t state = (uint64_t)now.tv_nsec * 2654435761u ^ (uint64_t)getpid();
    state ^= state >> 17;
    if ((int)(state % 100) < percent) usleep((useconds_t)ms * 1000);
    if (!strcmp(kind, "cpu")) return spin(n);
    if (!strcmp(kind, "fsync")) return sync_file(n);
    if (!strcmp(kind, "pipes")) return trip(n);
    if (!strcmp(kind, "web")) return request(n);
    return 2;
}
