/* A server of threads: each request takes a lock that is held, for longer once a file is there. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *slow;

__attribute__((noinline)) static void flush_log(void)
{
    struct timespec time = {0, access(slow, F_OK) ? 500000 : 20000000};
    pthread_mutex_lock(&lock);
    nanosleep(&time, 0);
    pthread_mutex_unlock(&lock);
}

static void *serve(void *given)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char asked[4096];
    int peer = (int)(long)given;
    while (read(peer, asked, sizeof asked) > 0) {
        flush_log();
        if (write(peer, answer, sizeof answer - 1) < 0)
            break;
    }
    close(peer);
    return 0;
}

int main(int count, char **words)
{
    struct sockaddr_in address = {AF_INET, htons(atoi(words[1])), {htonl(INADDR_LOOPBACK)}, {0}};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    slow = words[count - 1];
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
        return 1;
    for (;;) {
        pthread_t thread;
        int peer = accept(listener, 0, 0);
        if (peer < 0 || pthread_create(&thread, 0, serve, (void *)(long)peer))
            return 1;
        pthread_detach(thread);
    }
}
