/*
 * Sleeps in many places, and writes down from where: frames FILE.  A line per sleep: thread, time
 * before it, and the addresses, within the program, to which the call that sleeps and the call of
 * its function return.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern const char __executable_start;
enum { MOST = 20000 };
static struct { int tid; long long time; const void *inner, *outer; } rows[MOST];
static int count, pipes[2];
static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

/* To where a function of its own returns is the place of the call. */
__attribute__((noinline)) static const void *here(void) { return __builtin_return_address(0); }

static void note(const void *inner, const void *outer)
{
	struct timespec now;
	int at = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (at >= MOST) return;
	rows[at].tid = gettid();
	rows[at].time = now.tv_sec * 1000000000LL + now.tv_nsec;
	rows[at].inner = inner;
	rows[at].outer = outer;
}
/* `here` and what sleeps are on one line: their addresses have one function and line. */
#define SLEEP(call) do { note(here(), __builtin_return_address(0)); call; } while (0)
#define SITE __attribute__((noinline)) static void

SITE in_nanosleep(void) { struct timespec t = {0, 100000}; SLEEP(nanosleep(&t, 0)); __asm__(""); }
SITE in_poll(void) { struct pollfd p = {pipes[0], POLLIN, 0}; SLEEP(poll(&p, 1, 1)); __asm__(""); }
SITE in_usleep(void) { SLEEP(usleep(150)); __asm__(""); }
SITE in_condition(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 200000;
	if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	pthread_mutex_lock(&other);
	SLEEP(pthread_cond_timedwait(&never, &other, &t));
	pthread_mutex_unlock(&other);
}
SITE in_select(void) { struct timeval t = {0, 200}; SLEEP(select(0, 0, 0, 0, &t)); __asm__(""); }
/* Inlined into who calls it. */
static inline __attribute__((always_inline)) void twice(void (*site)(void))
{
	site();
	__asm__ volatile("" ::: "memory");
	site();
	__asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void serve(int which)
{
	switch (which) {
	case 0: twice(in_nanosleep); break;
	case 1: twice(in_poll); break;
	case 2: twice(in_usleep); break;
	case 3: twice(in_condition); break;
	default: twice(in_select);
	}
	__asm__ volatile("" ::: "memory");
}
static void *work(void *unused)
{
	for (int i = 0; i < 500; i++) serve(i % 5);
	return unused;
}
int main(int words, char **word)
{
	pthread_t thread;
	if (words < 2 || pipe(pipes)) return 2;
	pthread_create(&thread, 0, work, 0);
	work(0);
	pthread_join(thread, 0);
	FILE *out = fopen(word[1], "w");
	for (int i = 0; out && i < count && i < MOST; i++)
		fprintf(out, "%d %lld 0x%lx 0x%lx\n", rows[i].tid, rows[i].time,
			(long)((const char *)rows[i].inner - &__executable_start),
			(long)((const char *)rows[i].outer - &__executable_start));
	return 0;
}
