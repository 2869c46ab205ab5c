// tier NAME PORT [NEXT]: a link of a chain of servers, a thread for each connection. The line
// "NAME N" has it ask the next one N times, with some work for each, as clients of databases have;
// another goes on once. tier.js and tier.pl do the same.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char* name;
static int next;

static struct sockaddr_in place(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void work(int steps) {
    volatile int total = 0;
    for (int i = 0; i < steps; i++) total += i & 7;
}

static void* serve(void* connection) {
    int fd = (int)(long)connection, on = 1, onward = -1, size;
    char line[100], whom[50];
    struct sockaddr_in to = place(next);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (next) {
        onward = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(onward, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (connect(onward, (struct sockaddr*)&to, sizeof to)) return 0;
    }
    while ((size = read(fd, line, sizeof line - 1)) > 0) {
        int times = 1, mine;
        char answer[10];
        line[size] = 0;
        mine = sscanf(line, "%49s %d", whom, &times) == 2 && !strcmp(whom, name);
        work(5000);
        for (int i = 0; next && i < (mine ? times : 1); i++) {
            work(mine ? 60000 : 0);
            if (write(onward, mine ? "- 1\n" : line, mine ? 4 : size) < 0 || read(onward, answer, sizeof answer) <= 0) return 0;
        }
        if (write(fd, "ok\n", 3) < 0) break;
    }
    close(fd);
    if (onward >= 0) close(onward);
    return 0;
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = place(atoi(argv[2]));
    name = argv[1];
    next = argc > 3 ? atoi(argv[3]) : 0;
    prctl(PR_SET_NAME, name, 0, 0, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr*)&at, sizeof at) || listen(fd, 16)) return 1;
    for (;;) {
        pthread_t thread;
        pthread_create(&thread, 0, serve, (void*)(long)accept(fd, 0, 0));
        pthread_detach(thread);
    }
}
