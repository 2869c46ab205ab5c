/* Serves executions that wait for a lock, a condition and a disk: lock [lock|condition|fsync] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t full = PTHREAD_COND_INITIALIZER, empty = PTHREAD_COND_INITIALIZER;
static volatile int done, items, wanted;
static int slow_lock, slow_condition, slow_disk, audit;

static void nap(long us)
{
	struct timespec time = {0, us * 1000};
	nanosleep(&time, 0);
}
__attribute__((noinline)) static void flush_log(void)
{
	pthread_mutex_lock(&lock);
	nap(slow_lock ? 6000 : 200); /* flush_log */
	pthread_mutex_unlock(&lock);
}
static void *log_all(void *unused)
{
	pthread_setname_np(pthread_self(), "logger");
	while (!done) {
		flush_log();
		nap(300);
	}
	return unused;
}
__attribute__((noinline)) static void fetch_item(void)
{
	nap(slow_condition ? 8000 : 300); /* fetch_item */
}
static void *produce(void *unused)
{
	pthread_setname_np(pthread_self(), "producer");
	pthread_mutex_lock(&queue);
	while (!done) {
		while (!wanted && !done) pthread_cond_wait(&empty, &queue);
		pthread_mutex_unlock(&queue);
		fetch_item();
		pthread_mutex_lock(&queue);
		wanted = 0, items = 1;
		pthread_cond_signal(&full);
	}
	pthread_mutex_unlock(&queue);
	return unused;
}
__attribute__((noinline)) static void take_item(void)
{
	pthread_mutex_lock(&queue);
	items = 0, wanted = 1;
	pthread_cond_signal(&empty);
	while (!items) pthread_cond_wait(&full, &queue); /* take_item */
	pthread_mutex_unlock(&queue);
}
__attribute__((noinline)) static void get_connection(void)
{
	pthread_mutex_lock(&lock); /* get_connection */
	pthread_mutex_unlock(&lock);
}
__attribute__((noinline)) static void write_audit(void)
{
	for (int i = 0; i < (slow_disk ? 12 : 1); i++) {
		if (pwrite(audit, "audit line\n", 11, 11 * i) < 0) exit(1);
		fsync(audit); /* write_audit */
	}
}
int main(int count, char **words)
{
	const char *fault = count > 1 ? words[1] : "", *name = getenv("CRITPATH_MARKER_FD");
	int marks = name ? atoi(name) : 2;
	pthread_t threads[2];
	slow_lock = !strcmp(fault, "lock");
	slow_condition = !strcmp(fault, "condition");
	slow_disk = !strcmp(fault, "fsync");
	audit = open("audit.log", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pthread_create(&threads[0], 0, log_all, 0);
	pthread_create(&threads[1], 0, produce, 0);
	nap(50000);
	for (int i = 0; i < 40; i++) {
		nap(2000);
		dprintf(marks, "critpath:begin serve %d", i);
		get_connection();
		take_item();
		write_audit();
		dprintf(marks, "critpath:end serve %d", i);
	}
	pthread_mutex_lock(&queue);
	done = 1;
	pthread_cond_signal(&empty);
	pthread_mutex_unlock(&queue);
	pthread_join(threads[0], 0);
	pthread_join(threads[1], 0);
	return 0;
}
