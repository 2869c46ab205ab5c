/*
 * What the overhead of recording is measured on.
 *
 *   workload requests N DIR    a server: N requests of four types, two worker threads
 *   workload pingpong N CPU    two processes on one cpu pass a byte N times through pipes
 *
 * Prints nanoseconds, elapsed and of cpu time.  A request computes for about a millisecond and then does
 * what its type says: reads 64 KiB of a file, asks a helper process through pipes, takes
 * a lock that the other worker uses too, or writes 16 KiB to a file.  The second is the
 * worst case: nothing but switches and wakes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 400000, READ = 65536, WRITE = 16384, TYPES = 4 };

static int requests, taken, to_helper[2], from_helper[2], data;
static const char *directory;
static pthread_mutex_t counter = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t helper_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static volatile uint32_t sink;

static void fail(const char *what) { perror(what); exit(1); }

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t used(int who)
{
	struct rusage r;
	if (getrusage(who, &r)) fail("getrusage");
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000LL
		+ (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000LL;
}

static void compute(int steps)
{
	uint32_t x = 1;
	while (steps--) x = x * 1664525u + 1013904223u;
	sink = x;
}

static void serve(int number)
{
	char buffer[READ], path[4096], answer;
	compute(STEPS);
	switch (number % TYPES) {
	case 0:
		for (int i = 0; i < READ / 4096; i++)
			if (pread(data, buffer, 4096, i * 4096) != 4096) fail("pread");
		break;
	case 1:
		pthread_mutex_lock(&helper_lock);
		for (int i = 0; i < 4; i++)
			if (write(to_helper[1], "?", 1) != 1 || read(from_helper[0], &answer, 1) != 1)
				fail("helper");
		pthread_mutex_unlock(&helper_lock);
		break;
	case 2:
		pthread_mutex_lock(&shared);
		compute(STEPS / 4);
		pthread_mutex_unlock(&shared);
		break;
	default:
		snprintf(path, sizeof path, "%s/out.%d", directory, number % 8);
		int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
		memset(buffer, 0, WRITE);
		if (file < 0 || write(file, buffer, WRITE) != WRITE) fail(path);
		close(file);
	}
}

static void *work(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&counter);
		int mine = taken < requests ? taken++ : -1;
		pthread_mutex_unlock(&counter);
		if (mine < 0) return unused;
		serve(mine);
	}
}

static void run_requests(void)
{
	char path[4096], block[READ];
	snprintf(path, sizeof path, "%s/data", directory);
	data = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
	memset(block, 1, sizeof block);
	if (data < 0 || write(data, block, sizeof block) != sizeof block) fail(path);
	if (pipe2(to_helper, O_CLOEXEC) || pipe2(from_helper, O_CLOEXEC)) fail("pipe");
	pid_t helper = fork();
	if (!helper) {
		char byte;
		close(to_helper[1]);
		while (read(to_helper[0], &byte, 1) == 1) {
			compute(STEPS / 40);
			if (write(from_helper[1], "!", 1) != 1) break;
		}
		_exit(0);
	}
	pthread_t thread[2];
	for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
	close(to_helper[1]);
	waitpid(helper, NULL, 0);
}

static void run_pingpong(int rounds, int cpu)
{
	int there[2], back[2];
	char byte = 0;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one)) fail("affinity");
	if (pipe(there) || pipe(back)) fail("pipe");
	pid_t other = fork();
	for (int i = 0; i < rounds; i++)
		if (other ? write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1
			  : read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
			fail("ping-pong");
	if (!other) _exit(0);
	waitpid(other, NULL, 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "now")) { printf("%lld\n", (long long)now()); return 0; }
	if (argc != 4) { fprintf(stderr, "usage: workload now | requests|pingpong N DIR|CPU\n"); return 2; }
	requests = atoi(argv[2]);
	directory = argv[3];
	int64_t begin = now();
	if (!strcmp(argv[1], "requests")) run_requests();
	else run_pingpong(requests, atoi(argv[3]));
	long long elapsed = now() - begin;
	printf("%lld %lld\n", elapsed, (long long)(used(RUSAGE_SELF) + used(RUSAGE_CHILDREN)));
	return 0;
}
