/*
 * The application that critpath is evaluated on: requests of nine types, one after the
 * other, each marked as an execution, some of them with a fault.
 *
 *   app --executions N --seed S [--types a,b,c] --directory DIR [--truth FILE]
 *       [--fault KIND,KIND...] [--strength 1|2|3] [--share F] [--targets a,b]
 *       [--cgroup DIR --home DIR] [--rival MS] [--steps N] [--cached]
 *   app --calibrate        print how many steps a millisecond has here, for --steps
 *
 *   type      what one execution does (each about 5 to 12 ms)
 *   read      reads blocks from the disk (O_DIRECT), works a little on each; --cached: 32 at
 *             once, through the page cache, where they are unless memory is short
 *   write     appends to a file and waits for the disk and the journal (fsync)
 *   compute   computes
 *   lock      waits for a mutex that the thread `holder` has
 *   pipe      asks the process `helper` through pipes and waits for each answer
 *   socket    asks the process `peer` through a socket
 *   sleep     sleeps
 *   mix1      computes, asks `helper`, reads
 *   mix2      waits for `holder`, sleeps, asks `peer`
 *
 *   fault     by default in   what is wrong
 *   sleep     compute         it sleeps in between
 *   lock      lock            `holder` keeps the mutex longer
 *   convoy    lock            `convoy-1` to `convoy-4` queue for the mutex, too
 *   fsync     write           megabytes written and synced (fsync)
 *   reads     read            megabytes read
 *   helper    pipe            `helper` computes longer for each answer
 *   delay     socket          `peer` sleeps before each answer
 *   retry     pipe            `helper` is asked again and again
 *   intruder  compute         the process `intruder` computes on the same cpu
 *   priority  compute         nice, while `rival` computes on the same cpu (it does so for
 *                             --rival MS without the fault, too)
 *   quota     compute         this process is in the control group --cgroup meanwhile,
 *                             which somebody has given a quota; else in --home
 *
 * A fault costs about 1.5, 4 or 10 ms (--strength).  Everything runs on one cpu: how long
 * something takes must not depend on which cpus are free.  Work is a number of steps, the
 * same in every run, not a time: what takes longer shows.  All types run once unmarked.
 *
 * The order of types and the sizes of the work vary with --seed and with the number of
 * executions that the file --truth already has: runs that append to one file differ, and
 * differ in the same way each time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ, WRITE, COMPUTE, LOCK, PIPE, SOCKET, SLEEP, MIX1, MIX2, TYPES };
static const char *const type_names[TYPES] = {
	"read", "write", "compute", "lock", "pipe", "socket", "sleep", "mix1", "mix2"};

enum { BAD_NONE = -1, BAD_SLEEP, BAD_LOCK, BAD_CONVOY, BAD_FSYNC, BAD_READS, BAD_HELPER, BAD_DELAY,
       BAD_RETRY, BAD_INTRUDER, BAD_PRIORITY, BAD_QUOTA, FAULTS };
static const struct { const char *name; int type; } faults[FAULTS] = {
	{"sleep", COMPUTE}, {"lock", LOCK}, {"convoy", LOCK}, {"fsync", WRITE},
	{"reads", READ}, {"helper", PIPE}, {"delay", SOCKET}, {"retry", PIPE},
	{"intruder", COMPUTE}, {"priority", COMPUTE}, {"quota", COMPUTE}};
static const double extra_ms[4] = {0, 1.5, 4, 10};

enum { BLOCK = 4096, CACHED = 32 * BLOCK, LARGE = 256 * BLOCK, FILE_BLOCKS = 4096 };
enum { CONVOY = 4, LOWER = 19, MOST = 1000000 };
static const double PAUSE_MS = 0.3;

static double steps_per_ms = 900000;
static uint64_t chance;
static int data = -1, appended = -1, marker = -1, strength = 1;
static bool cached;
static double rival_ms;
static int base_nice;
static const char *cgroup = "", *home = "";
static volatile uint32_t sink;
static char *block;

static void fail(const char *what)
{
	fprintf(stderr, "app: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void usage(const char *what)
{
	fprintf(stderr, "app: %s (see the top of app.c)\n", what);
	exit(2);
}

/* ------------------------------------------------------------------ small things */

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double uniform(void) /* splitmix64, in [0, 1) */
{
	uint64_t z = chance += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static int below(int n) { return (int)(uniform() * n); }

/* What varies from execution to execution: 15 % up or down. */
static double about(double ms) { return ms * (0.85 + 0.3 * uniform()); }

/* How often something is done varies as well. */
static int from_to(int least, int most) { return least + below(most - least + 1); }

static void compute_steps(double steps)
{
	uint32_t x = 1;
	for (int64_t n = (int64_t)steps; n > 0; n--) x = x * 1664525u + 1013904223u;
	sink = x;
}

static void compute(double ms) { compute_steps(ms * steps_per_ms); }

static void sleep_ms(double ms)
{
	struct timespec t = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L};
	while (nanosleep(&t, &t) && errno == EINTR) {}
}

static void name(const char *text) { prctl(PR_SET_NAME, text); }

static void put(int file, const void *what, size_t size)
{
	if (write(file, what, size) != (ssize_t)size) fail("write");
}

static bool get(int file, void *what, size_t size)
{
	ssize_t n;
	do n = read(file, what, size); while (n < 0 && errno == EINTR);
	return n == (ssize_t)size;
}

/* --------------------------------------------- other processes: `helper`, `peer`, ... */

typedef struct { double compute, sleep; } Question;
typedef struct { int ask, answer; pid_t pid; } Other;
static Other helper, peer, intruder, rival;

static Other start(const char *title, bool by_socket)
{
	int there[2], back[2];
	if (by_socket) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, there)) fail("socketpair");
		if ((back[0] = dup(there[0])) < 0 || (back[1] = dup(there[1])) < 0) fail("dup");
		/* One end each: there[1] asks and back[0] answers are the same socket. */
		int end = back[0];
		back[0] = back[1];
		back[1] = end;
	} else if (pipe2(there, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) fail("pipe");
	pid_t parent = getpid(), pid = fork();
	if (pid < 0) fail("fork");
	if (!pid) {
		Question q;
		char done = 0;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent) _exit(1);
		name(title);
		close(there[1]);
		close(back[0]);
		while (get(there[0], &q, sizeof q)) {
			if (q.sleep > 0) sleep_ms(q.sleep);
			compute(q.compute);
			if (write(back[1], &done, 1) != 1) break;
		}
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	return (Other){there[1], back[0], pid};
}

static void begin_asking(Other other, double ms, double sleep)
{
	Question q = {ms, sleep};
	put(other.ask, &q, sizeof q);
}

static void end_asking(Other other)
{
	char done;
	if (!get(other.answer, &done, 1)) fail("no answer");
}

static void ask(Other other, double ms, double sleep)
{
	begin_asking(other, ms, sleep);
	end_asking(other);
}

static void stop(Other other)
{
	close(other.ask);
	close(other.answer);
	waitpid(other.pid, NULL, 0);
}

/* ------------------------------------- other threads: `holder`, `convoy-1`, `convoy-2` */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t told, has_it, called[CONVOY], comes[CONVOY];
static double hold_ms, convoy_ms;

static void *hold(void *unused)
{
	name("holder");
	for (;;) {
		sem_wait(&told);
		pthread_mutex_lock(&mutex);
		sem_post(&has_it);
		/* On one cpu it would else have computed before anybody waits. */
		sleep_ms(0.1);
		compute(hold_ms);
		pthread_mutex_unlock(&mutex);
	}
	return unused;
}

static void *queue(void *number)
{
	int mine = (int)(intptr_t)number;
	char title[32];
	snprintf(title, sizeof title, "convoy-%d", mine + 1);
	name(title);
	for (;;) {
		sem_wait(&called[mine]);
		sem_post(&comes[mine]);
		pthread_mutex_lock(&mutex);
		compute(convoy_ms);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void start_threads(void)
{
	pthread_t thread;
	sem_init(&told, 0, 0);
	sem_init(&has_it, 0, 0);
	if (pthread_create(&thread, NULL, hold, NULL)) fail("pthread_create");
	for (int i = 0; i < CONVOY; i++) {
		sem_init(&called[i], 0, 0);
		sem_init(&comes[i], 0, 0);
		if (pthread_create(&thread, NULL, queue, (void *)(intptr_t)i)) fail("pthread_create");
	}
}

/* Wait for the mutex, which `holder` has for so long, and others (each so long) want. */
static void wait_for_lock(double ms, double others)
{
	hold_ms = ms;
	convoy_ms = others;
	sem_post(&told);
	sem_wait(&has_it);
	for (int i = 0; i < CONVOY && others > 0; i++) {
		sem_post(&called[i]);
		sem_wait(&comes[i]);
	}
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

/* --------------------------------------------------------------------------- the disk */

static void open_data(const char *directory)
{
	char path[4200];
	snprintf(path, sizeof path, "%s/data", directory);
	if (posix_memalign((void **)&block, BLOCK, LARGE)) fail("memory");
	memset(block, 7, LARGE);
	data = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	struct stat is;
	if (data < 0 || fstat(data, &is)) fail(path);
	for (int i = 0; i < FILE_BLOCKS && is.st_size < (off_t)FILE_BLOCKS * BLOCK; i++)
		put(data, block, BLOCK);
	if (fsync(data)) fail(path);
	close(data);
	data = open(path, O_RDWR | O_CLOEXEC | (cached ? 0 : O_DIRECT));
	if (data < 0) fail(path);
	/* Read anew, all of it: the pages count for the control group that this runs in. */
	if (cached) {
		posix_fadvise(data, 0, 0, POSIX_FADV_DONTNEED);
		while (read(data, block, LARGE) > 0) {}
		posix_fadvise(data, 0, 0, POSIX_FADV_RANDOM);
	}
}

static void open_appended(const char *directory)
{
	char path[4200];
	snprintf(path, sizeof path, "%s/appended", directory);
	appended = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (appended < 0) fail(path);
}

static void read_block(size_t size)
{
	if (cached && size < CACHED) size = CACHED;
	off_t where = (off_t)below(FILE_BLOCKS - (int)(size / BLOCK) + 1) * BLOCK;
	if (pread(data, block, size, where) != (ssize_t)size) fail("read");
}

static void write_and_sync(size_t size)
{
	off_t where = (off_t)below(FILE_BLOCKS - (int)(size / BLOCK) + 1) * BLOCK;
	if (pwrite(data, block, size, where) != (ssize_t)size) fail("write");
	if (fsync(data)) fail("fsync");
}

/* The file grows, which is in the journal: a thread of the file system writes it. */
static void append(size_t size)
{
	put(appended, block, size);
	if (fsync(appended)) fail("fsync");
}

/* ------------------------------------------------------------------------- executions */

/* Each serves one execution of its type; `more` is what its fault costs, in ms. */

static void do_read(int fault, double more)
{
	for (int i = from_to(9, 13); i > 0; i--) {
		read_block(BLOCK);
		compute(about(0.4));
	}
	if (fault == BAD_READS)
		for (double end = now_ms() + more; now_ms() < end;) read_block(LARGE);
}

static void do_write(int fault, double more)
{
	for (int i = from_to(3, 5); i > 0; i--) {
		compute(about(0.8));
		append(4 * BLOCK);
	}
	if (fault == BAD_FSYNC)
		for (double end = now_ms() + more; now_ms() < end;) write_and_sync(LARGE);
}

static void do_compute(int fault, double more)
{
	compute(about(4));
	if (fault == BAD_SLEEP) sleep_ms(more);
	compute(about(4));
}

static void do_lock(int fault, double more)
{
	int times = from_to(2, 3);
	for (int i = 0; i < times; i++) {
		compute(about(0.8));
		wait_for_lock(about(2) + (fault == BAD_LOCK ? more / times : 0),
			      fault == BAD_CONVOY ? more / times / CONVOY : 0);
	}
}

static void do_pipe(int fault, double more)
{
	int times = from_to(4, 6);
	for (int i = 0; i < times; i++) {
		compute(about(0.4));
		ask(helper, about(1.2) + (fault == BAD_HELPER ? more / times : 0), 0);
	}
	for (; fault == BAD_RETRY && more > 0; more -= 1.2) ask(helper, about(1.2), 0);
}

static void do_socket(int fault, double more)
{
	int times = from_to(7, 10);
	for (int i = 0; i < times; i++) {
		compute(about(0.3));
		ask(peer, about(0.5), fault == BAD_DELAY ? more / times : 0);
	}
}

static void do_sleep(void)
{
	for (int i = from_to(3, 5); i > 0; i--) {
		compute(about(0.3));
		sleep_ms(about(1.5));
	}
}

static void do_mix1(void)
{
	compute(about(2));
	ask(helper, about(1.5), 0);
	compute(about(0.5));
	ask(helper, about(1.5), 0);
	for (int i = from_to(4, 5); i > 0; i--) {
		compute(about(0.3));
		read_block(BLOCK);
	}
}

static void do_mix2(void)
{
	compute(about(0.5));
	wait_for_lock(about(2), 0);
	compute(about(0.5));
	sleep_ms(about(1.5));
	for (int i = from_to(2, 4); i > 0; i--) {
		compute(about(0.3));
		ask(peer, about(0.7), 0);
	}
}

static void do_type(int type, int fault, double more)
{
	switch (type) {
	case READ: do_read(fault, more); break;
	case WRITE: do_write(fault, more); break;
	case COMPUTE: do_compute(fault, more); break;
	case LOCK: do_lock(fault, more); break;
	case PIPE: do_pipe(fault, more); break;
	case SOCKET: do_socket(fault, more); break;
	case SLEEP: do_sleep(); break;
	case MIX1: do_mix1(); break;
	default: do_mix2();
	}
}

/* Move this process; before and after an execution, as it can take long. */
static void move_to(const char *directory)
{
	char path[4400], pid[32];
	snprintf(path, sizeof path, "%s/cgroup.procs", directory);
	int size = snprintf(pid, sizeof pid, "%d\n", getpid());
	int file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, pid, (size_t)size) != size) fail(path);
	close(file);
}

static void mark(const char *what, int type, const char *key)
{
	char text[200];
	int size = snprintf(text, sizeof text, "critpath:%s %s %s\n", what, type_names[type], key);
	if (marker >= 0 && key[0] && write(marker, text, (size_t)size) != size) fail("marker");
}

/* Serve one execution; without a key it is not marked. */
static void serve(int type, int fault, const char *key)
{
	double more = fault == BAD_NONE ? 0 : extra_ms[strength];
	bool pressed = rival_ms > 0 && type == COMPUTE;
	if (fault == BAD_QUOTA) move_to(cgroup);
	if (fault == BAD_PRIORITY && setpriority(PRIO_PROCESS, 0, base_nice + LOWER)) fail("nice");
	sleep_ms(PAUSE_MS);
	mark("begin", type, key);
	if (fault == BAD_INTRUDER) begin_asking(intruder, more, 0);
	if (pressed) begin_asking(rival, rival_ms, 0);
	do_type(type, fault, more);
	mark("end", type, key);
	if (fault == BAD_INTRUDER) end_asking(intruder);
	if (pressed) end_asking(rival);
	if (fault == BAD_PRIORITY && setpriority(PRIO_PROCESS, 0, base_nice)) fail("nice");
	if (fault == BAD_QUOTA) move_to(home);
}

/* ---------------------------------------------------------------------------- options */

static int index_of(const char *text, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(text, names[i])) return i;
	return -1;
}

static void parse_types(char *text, bool chosen[TYPES])
{
	memset(chosen, 0, TYPES * sizeof *chosen);
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		int type = index_of(word, type_names, TYPES);
		if (type < 0) usage("no such type");
		chosen[type] = true;
	}
}

static int count_lines(const char *path)
{
	FILE *file = path ? fopen(path, "r") : NULL;
	int lines = 0, c;
	if (!file) return 0;
	while ((c = getc(file)) != EOF) lines += c == '\n';
	fclose(file);
	return lines;
}

static void calibrate(void)
{
	double best = 1e9, steps = 3e5;
	for (int i = 0; i < 500; i++) { /* short ones: some are not interrupted */
		double begin = now_ms();
		compute_steps(steps);
		if (now_ms() - begin < best) best = now_ms() - begin;
	}
	printf("%.0f\n", steps / best);
}

int main(int argc, char **argv)
{
	int executions = 100, wanted[FAULTS] = {0};
	uint64_t seed = 1;
	double share = 1;
	const char *directory = ".", *truth = NULL;
	bool types[TYPES], targets[TYPES], targeted = false;
	for (int i = 0; i < TYPES; i++) types[i] = true;
	for (int i = 1; i < argc; i++) {
		const char *option = argv[i];
		if (!strcmp(option, "--calibrate")) { calibrate(); return 0; }
		if (!strcmp(option, "--cached")) { cached = true; continue; }
		if (++i == argc) usage(option);
		char *value = argv[i];
		if (!strcmp(option, "--executions")) executions = atoi(value);
		else if (!strcmp(option, "--seed")) seed = strtoull(value, NULL, 10);
		else if (!strcmp(option, "--types")) parse_types(value, types);
		else if (!strcmp(option, "--targets")) { parse_types(value, targets); targeted = true; }
		else if (!strcmp(option, "--directory")) directory = value;
		else if (!strcmp(option, "--truth")) truth = value;
		else if (!strcmp(option, "--strength")) strength = atoi(value);
		else if (!strcmp(option, "--share")) share = atof(value);
		else if (!strcmp(option, "--cgroup")) cgroup = value;
		else if (!strcmp(option, "--home")) home = value;
		else if (!strcmp(option, "--rival")) rival_ms = atof(value);
		else if (!strcmp(option, "--steps")) steps_per_ms = atof(value);
		else if (!strcmp(option, "--fault")) {
			for (char *word = strtok(value, ","); word; word = strtok(NULL, ",")) {
				int kind = -1;
				for (int k = 0; k < FAULTS; k++)
					if (!strcmp(word, faults[k].name)) kind = k;
				if (kind < 0) usage("no such fault");
				wanted[kind] = 1;
			}
		} else usage(option);
	}
	if (executions < 1 || executions > MOST || strength < 1 || strength > 3 || share < 0
	    || share > 1 || steps_per_ms < 1) usage("a number out of range");
	if (wanted[BAD_QUOTA]) {
		if (!cgroup[0] || !home[0]) usage("the fault quota needs --cgroup and --home");
	}
	if (wanted[BAD_PRIORITY] && rival_ms <= 0) usage("the fault priority needs --rival");

	base_nice = getpriority(PRIO_PROCESS, 0);
	cpu_set_t free_cpus, one;
	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof free_cpus, &free_cpus)) fail("affinity");
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && !CPU_COUNT(&one); cpu--)
		if (CPU_ISSET(cpu, &free_cpus)) CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof one, &one)) fail("affinity");

	/* What is served: every type as often as the others, in a random order. */
	int *type = calloc((size_t)executions, sizeof *type);
	int *fault = calloc((size_t)executions, sizeof *fault), list[TYPES], n = 0;
	if (!type || !fault) fail("memory");
	int before = count_lines(truth);
	chance = seed * 0x2545f4914f6cdd1du + (uint64_t)before;
	for (int i = 0; i < TYPES; i++) if (types[i]) list[n++] = i;
	if (!n) usage("no type");
	int first = below(n);
	for (int i = 0; i < executions; i++) type[i] = list[(i + first) % n];
	for (int i = executions - 1; i > 0; i--) {
		int j = below(i + 1), kept = type[i];
		type[i] = type[j];
		type[j] = kept;
	}
	/* Of each affected type, this share is faulty; several faults of one take turns. */
	for (int t = 0; t < TYPES; t++) {
		int mine[FAULTS], kinds = 0, members = 0, turn = 0;
		for (int k = 0; k < FAULTS; k++)
			if (wanted[k] && (targeted ? targets[t] : faults[k].type == t))
				mine[kinds++] = k;
		for (int i = 0; i < executions; i++) members += type[i] == t;
		int left = members, faulty = kinds ? (int)(share * members + 0.5) : 0;
		for (int i = 0; i < executions; i++) {
			if (type[i] != t) continue;
			fault[i] = BAD_NONE;
			if (faulty && uniform() * left < faulty) {
				fault[i] = mine[turn++ % kinds];
				faulty--;
			}
			left--;
		}
	}

	name("app");
	open_data(directory);
	open_appended(directory);
	helper = start("helper", false);
	peer = start("peer", true);
	if (wanted[BAD_INTRUDER]) intruder = start("intruder", false);
	if (rival_ms > 0) rival = start("rival", false);
	start_threads();
	for (int i = 0; i < n; i++) serve(list[i], BAD_NONE, "");
	const char *path = getenv("CRITPATH_MARKER");
	if (path && *path && (marker = open(path, O_WRONLY | O_CLOEXEC)) < 0) fail(path);
	FILE *table = truth ? fopen(truth, "a") : NULL;
	if (truth && !table) fail(truth);
	if (table && !before) fprintf(table, "id,type,faulty\n");
	for (int i = 0; i < executions; i++) {
		char key[64];
		snprintf(key, sizeof key, "%d.%d", getpid(), i);
		serve(type[i], fault[i], key);
		if (table)
			fprintf(table, "%s,%s,%s\n", key, type_names[type[i]],
				fault[i] == BAD_NONE ? "" : faults[fault[i]].name);
	}
	if (table && fclose(table)) fail(truth);
	/* The last first: it has the others' ends of their pipes. */
	if (rival_ms > 0) stop(rival);
	if (wanted[BAD_INTRUDER]) stop(intruder);
	stop(peer);
	stop(helper);
	return 0;
}
