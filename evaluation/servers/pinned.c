/* Seven threads that work in stages behind a barrier, all on one processor by mistake.
 *
 * pinned [--spread] [STAGES [ROUNDS]]. Someone pinned the program to processor 0 (a line left from a
 * measurement): while its threads wait for each other there, the other processors idle. --spread
 * is the fix. Threads have unequal work, so that they do not wait for a processor alike. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 7 };

static pthread_barrier_t barrier;
static int stages = 40;
static long rounds = 150000;

static void work(long much)
{
    for (volatile long i = 0; i < much; i++)
        ;
}

static void *worker(void *number)
{
    long mine = (long)number;
    for (int stage = 0; stage < stages; stage++) {
        work(rounds + rounds / 8 * ((mine + stage) % THREADS));
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    int spread = count > 1 && strcmp(words[1], "--spread") == 0;
    if (count > 1 + spread)
        stages = atoi(words[1 + spread]);
    if (count > 2 + spread)
        rounds = atol(words[2 + spread]);
    if (!spread) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) {
            perror("sched_setaffinity");
            return 1;
        }
    }
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)i) != 0) {
            perror("pthread_create");
            return 1;
        }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
