/* Asks another process over pipes, sleeps, and polls: pipe [helper|sleep|poll] */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int slow_helper, slow_sleep, slow_poll, to[2], from[2], silent[2];
static volatile unsigned long sum;

__attribute__((noinline)) static void compute_answer(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	long until = time.tv_sec * 1000000 + time.tv_nsec / 1000 + (slow_helper ? 9000 : 500);
	do {
		for (int i = 0; i < 50000; i++) sum += i; /* compute_answer */
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	} while (time.tv_sec * 1000000 + time.tv_nsec / 1000 < until);
}
static void help(void)
{
	char byte;
	prctl(PR_SET_NAME, "helper");
	while (read(to[0], &byte, 1) == 1) {
		compute_answer();
		if (write(from[1], &byte, 1) < 0) break;
	}
	_exit(0);
}
__attribute__((noinline)) static void ask_helper(void)
{
	char byte = 1;
	if (write(to[1], &byte, 1) < 0 || read(from[0], &byte, 1) < 0) exit(1); /* ask_helper */
}
__attribute__((noinline)) static void back_off(void)
{
	struct timespec time = {0, slow_sleep ? 8000000 : 300000};
	nanosleep(&time, 0); /* back_off */
}
__attribute__((noinline)) static void await_peer(void)
{
	struct pollfd peer = {silent[0], POLLIN, 0};
	poll(&peer, 1, slow_poll ? 9 : 1); /* await_peer */
}
int main(int count, char **words)
{
	const char *fault = count > 1 ? words[1] : "", *name = getenv("CRITPATH_MARKER_FD");
	int marks = name ? atoi(name) : 2;
	slow_helper = !strcmp(fault, "helper");
	slow_sleep = !strcmp(fault, "sleep");
	slow_poll = !strcmp(fault, "poll");
	if (pipe(to) || pipe(from) || pipe(silent)) return 1;
	if (!fork()) {
		close(to[1]);
		help();
	}
	close(to[0]);
	usleep(50000);
	for (int i = 0; i < 40; i++) {
		usleep(2000);
		dprintf(marks, "critpath:begin ask %d", i);
		ask_helper();
		back_off();
		await_peer();
		dprintf(marks, "critpath:end ask %d", i);
	}
	close(to[1]);
	wait(0);
	return 0;
}
