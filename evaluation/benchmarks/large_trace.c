/* A machine that never was: a scheduler, its threads and its interrupts, simulated, and
 * every event of it written as LTTng 2.13's kernel tracer writes it.  large_trace.py
 * compiles this, writes the metadata beside and says what the parts are for.
 *
 *     large_trace KERNEL-DIR UST-DIR events cpus threads executions seed subbuffer loss
 *                 missing uuid-kernel uuid-ust      (the last two: 32 hexadecimal digits)
 *
 * One queue of things to come (a heap by time) drives everything: bursts that end, timers
 * and ticks that expire, interrupts.  Threads follow scripts of a few operations: run,
 * wait for the disk, take a lock, call a thread of another pool.  What is recorded follows
 * from that, so switches and wakes fit each other as they do in a real trace: a thread is
 * woken only while it sleeps, and runs only on one processor.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;

#define MAX_CPUS 256
#define T0 5231884217345LL /* since the machine was started, ns */
#define US 1000LL
#define MS 1000000LL

static void die(const char *what) {
	fprintf(stderr, "large_trace: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ------------------------------------------------------------------ random numbers */

static u64 seed_state[2];
static float exponential[4096]; /* quantiles of an exponential of mean 1, shuffled by use */

static inline u64 draw(void) { /* xorshift128+ */
	u64 a = seed_state[0], b = seed_state[1];
	seed_state[0] = b;
	a ^= a << 23;
	seed_state[1] = a ^ b ^ (a >> 18) ^ (b >> 5);
	return seed_state[1] + b;
}
static inline u32 below(u32 n) { return (u32)(((draw() >> 32) * (u64)n) >> 32); }
static inline int chance(u32 per_thousand) { return below(1000) < per_thousand; }
static inline i64 around(i64 mean) { return 1 + (i64)((double)mean * exponential[draw() >> 52]); }

static void start_random(u64 seed) {
	for (int i = 0; i < 2; i++) { /* splitmix64 */
		u64 z = (seed += 0x9e3779b97f4a7c15ULL);
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
		seed_state[i] = z ^ (z >> 31);
	}
	/* -ln(1 - q) without libm: ln(1+x) by halving until the series is short. */
	for (int i = 0; i < 4096; i++) {
		double x = 1.0 / (1.0 - (i + 0.5) / 4096), sum = 0;
		while (x > 1.5)
			x /= 2, sum += 0.69314718055994531;
		double y = (x - 1) / (x + 1), power = y, series = 0;
		for (int k = 1; k < 30; k += 2, power *= y * y)
			series += power / k;
		exponential[i] = (float)(sum + 2 * series);
	}
}

/* ------------------------------------------------------- streams: packets of a channel */

struct stream {
	int file, index, cpu, large;
	u8 *data;
	u32 used, room;
	u64 offset, sequence, discarded;
	i64 begin, last;
	u64 packet_events, to_lose;
	u8 uuid[16];
};

static struct stream kernel[MAX_CPUS], user[MAX_CPUS];
static u64 wanted_events, events, lost, missing;
static double loss_share, missing_share;
static int done;

enum { HEADER = 84, PAGE = 4096 };

/* Ids as lttng-modules 2.13 gives them: backwards in the order they were enabled in. */
enum {
	STATE_PROCESS, STATE_END, STATE_START, TIMER_EXIT, TIMER_ENTRY, SOFTIRQ_EXIT,
	SOFTIRQ_ENTRY, IRQ_EXIT, IRQ_ENTRY, P_EXIT, P_EXEC, P_FORK, WAKEUP_NEW, WAKING,
	WAKEUP, SWITCH, KINDS
};
enum { MARK_BEGIN, MARK_END };
static u64 count[KINDS], marks[2];

static inline u8 *put(u8 *p, const void *data, size_t size) {
	memcpy(p, data, size);
	return p + size;
}
static inline u8 *put8(u8 *p, u8 x) { *p = x; return p + 1; }
static inline u8 *put32(u8 *p, u32 x) { return put(p, &x, 4); }
static inline u8 *put64(u8 *p, u64 x) { return put(p, &x, 8); }
static inline u8 *big64(u8 *p, u64 x) { return put64(p, __builtin_bswap64(x)); }

static void write_all(int file, const u8 *data, size_t size) {
	while (size) {
		ssize_t n = write(file, data, size);
		if (n < 0)
			die("write");
		data += n;
		size -= (size_t)n;
	}
}

static void close_packet(struct stream *s, i64 end) {
	u32 size = (s->used + PAGE - 1) / PAGE * PAGE;
	u8 *p = put32(s->data, 0xc1fc1fc1u);
	p = put(p, s->uuid, 16);
	p = put32(p, 0); /* stream */
	p = put64(p, (u64)s->cpu);
	p = put64(p, (u64)s->begin);
	p = put64(p, (u64)end);
	p = put64(p, (u64)s->used * 8);
	p = put64(p, (u64)size * 8);
	p = put64(p, s->sequence);
	p = put64(p, s->discarded);
	p = put32(p, (u32)s->cpu);
	memset(s->data + s->used, 0, size - s->used);
	write_all(s->file, s->data, size);
	u8 entry[72];
	p = big64(entry, s->offset);
	p = big64(p, (u64)size * 8);
	p = big64(p, (u64)s->used * 8);
	p = big64(p, (u64)s->begin);
	p = big64(p, (u64)end);
	p = big64(p, s->discarded);
	p = big64(p, 0);
	p = big64(p, (u64)s->cpu);
	big64(p, s->sequence);
	write_all(s->index, entry, sizeof entry);
	if (loss_share > 0 && !s->large && s->packet_events && chance(250))
		/* No sub-buffer was free for a while: in one of four packets, so four times it. */
		s->to_lose = (u64)(4 * loss_share / (1 - loss_share) * (double)s->packet_events);
	s->offset += size;
	s->sequence++;
	s->begin = s->last = end;
	s->used = HEADER;
	s->packet_events = 0;
}

static void open_stream(struct stream *s, const char *directory, const char *channel, int cpu,
			u32 room, const u8 *uuid) {
	char name[4096];
	*s = (struct stream){.cpu = cpu, .room = room, .used = HEADER, .begin = T0, .last = T0};
	memcpy(s->uuid, uuid, 16);
	s->large = channel[0] == 'u';
	s->data = malloc(room + PAGE);
	snprintf(name, sizeof name, "%s/%s_%d", directory, channel, cpu);
	s->file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (s->file < 0 || !s->data)
		die(name);
	snprintf(name, sizeof name, "%s/index/%s_%d.idx", directory, channel, cpu);
	s->index = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (s->index < 0)
		die(name);
	u8 head[16], *p = put32(head, __builtin_bswap32(0xc1f1dcc1u));
	p = put32(p, __builtin_bswap32(1));
	p = put32(p, __builtin_bswap32(1));
	put32(p, __builtin_bswap32(72));
	write_all(s->index, head, 16);
}

/* Room for an event and its header; 0 if it is lost, or all were written. */
static inline u8 *open_event(struct stream *s, u32 id, i64 at, u32 size) {
	if (done)
		return NULL;
	if (s->to_lose) {
		s->to_lose--;
		s->discarded++;
		lost++;
		return NULL;
	}
	if (s->used + size + 16 > s->room) {
		close_packet(s, at);
		if (s->to_lose)
			return open_event(s, id, at, size);
	}
	u8 *p = s->data + s->used;
	u64 since = (u64)(at - s->last);
	s->last = at;
	s->packet_events++;
	if (++events == wanted_events)
		done = 1;
	if (s->large) {
		u8 head[2] = {(u8)id, 0};
		if (!(since >> 32))
			return put32(put(p, head, 2), (u32)at);
		head[0] = head[1] = 0xff;
		return put64(put32(put(p, head, 2), id), (u64)at);
	}
	if (!(since >> 27))
		return put32(p, id | (u32)at << 5);
	return put64(put32(put8(p, 31), id), (u64)at);
}
static inline void shut_event(struct stream *s, u8 *p) { s->used = (u32)(p - s->data); }

/* ------------------------------------------------------------------- the machine */

enum { IDLE = -1 };
enum { RUNNING, QUEUED, WAKES, ASLEEP, FREE };
enum { S_RUN = 0, S_SLEEP = 1, S_DISK = 2, S_ZOMBIE = 32, S_IDLE = 128, S_PREEMPTED = 256 };

enum operation {
	END, /* of the script: from its beginning again */
	RUN, /* a: mean time on the processor, us */
	DISK, /* a: mean time it takes, us */
	NET, /* a: mean time until the answer, us */
	NAP, /* a: mean time, us */
	LOCK, UNLOCK, /* one of group b's a (at most 4) locks for every 8 processors; that one */
	CALL, CALL_D, /* a: pool; sleeps until it is done */
	MAYBE, /* a: of a thousand, else skips b operations */
	TAKE, /* a job of the pool: sleeps until there is one, runs the job's script */
	REPLY, /* to who called */
	BEGIN, FINISH, /* marks, if the job is one that is traced */
	FORK, EXEC, EXIT
};
struct op { u8 what, b; int a; };

enum pool { WEB, WEB2, WEB3, WEB4, APP, DB, CACHE, SEARCH, LOG, KWORKER, POOLS };

#define DB_CALL {CALL, 0, DB}, {RUN, 0, 30}
static const struct op read_s[] = {{BEGIN}, {RUN, 0, 40}, {CALL, 0, CACHE}, {RUN, 0, 30},
	{DISK, 0, 350}, {RUN, 0, 60}, {FINISH}, {REPLY}, {END}};
static const struct op search_s[] = {{BEGIN}, {RUN, 0, 80}, {CALL, 0, SEARCH}, {RUN, 0, 200},
	{LOCK, 0, 2}, {RUN, 0, 30}, {UNLOCK}, {CALL, 0, SEARCH}, {RUN, 0, 100}, {FINISH}, {REPLY},
	{END}};
static const struct op write_s[] = {{BEGIN}, {RUN, 0, 50}, {LOCK, 0, 2}, {RUN, 0, 20},
	{DISK, 0, 600}, {UNLOCK}, {RUN, 0, 20}, {CALL, 0, LOG}, {RUN, 0, 40}, {FINISH}, {REPLY}, {END}};
static const struct op report_s[] = {{BEGIN}, {RUN, 0, 50}, DB_CALL, DB_CALL, DB_CALL, DB_CALL,
	DB_CALL, DB_CALL, DB_CALL, DB_CALL, DB_CALL, DB_CALL, {DISK, 0, 400}, {RUN, 0, 2000},
	{FINISH}, {REPLY}, {END}};
static const struct op proxy_s[] = {{BEGIN}, {RUN, 0, 30}, {NET, 0, 1500}, {RUN, 0, 50},
	{NET, 0, 900}, {RUN, 0, 20}, {NAP, 0, 500}, {RUN, 0, 10}, {FINISH}, {REPLY}, {END}};
static const struct op *const app_scripts[] = {read_s, search_s, write_s, report_s, proxy_s};
static const char *const app_types[] = {"read", "search", "write", "report", "proxy"};

static const struct op web_s[] = {{RUN, 0, 30}, {LOCK, 1, 4}, {RUN, 0, 8}, {UNLOCK},
	{MAYBE, 1, 500}, {CALL, 0, DB}, {RUN, 0, 40}, {MAYBE, 1, 300}, {CALL, 0, CACHE}, {RUN, 0, 25},
	{MAYBE, 1, 60}, {DISK, 0, 300}, {RUN, 0, 15}, {REPLY}, {END}};
static const struct op db_s[] = {{RUN, 0, 40}, {LOCK, 2, 4}, {RUN, 0, 12}, {UNLOCK},
	{MAYBE, 1, 200}, {DISK, 0, 250}, {RUN, 0, 20}, {REPLY}, {END}};
static const struct op cache_s[] = {{RUN, 0, 15}, {REPLY}, {END}};
static const struct op find_s[] = {{RUN, 0, 120}, {CALL, 0, CACHE}, {RUN, 0, 80}, {REPLY}, {END}};
static const struct op log_s[] = {{RUN, 0, 20}, {CALL_D, 0, KWORKER}, {RUN, 0, 8}, {REPLY}, {END}};
static const struct op kworker_s[] = {{RUN, 0, 12}, {DISK, 0, 200}, {RUN, 0, 5}, {REPLY}, {END}};

static const struct op worker_loop[] = {{TAKE}, {END}};
static const struct op timer_loop[] = {{NAP, 0, 50000}, {RUN, 0, 15}, {END}};
static const struct op daemon_loop[] = {{NAP, 0, 200000}, {RUN, 0, 10}, {MAYBE, 2, 300},
	{CALL, 0, LOG}, {RUN, 0, 10}, {END}};
static const struct op disk_loop[] = {{NAP, 0, 5000}, {RUN, 0, 10}, {DISK, 0, 300}, {RUN, 0, 6}, {END}};
static const struct op batch_loop[] = {{RUN, 0, 12000}, {MAYBE, 1, 300}, {NAP, 0, 4000}, {END}};
static const struct op shell_loop[] = {{RUN, 0, 150}, {FORK}, {RUN, 0, 60}, {NAP, 0, 9000}, {END}};
static const struct op child_script[] = {{RUN, 0, 120}, {EXEC}, {RUN, 0, 250}, {DISK, 0, 250},
	{RUN, 0, 900}, {MAYBE, 1, 400}, {DISK, 0, 250}, {RUN, 0, 80}, {EXIT}, {END}};
static const struct op sessiond_script[] = {{NAP, 0, 200000}, {RUN, 0, 30}, {END}};

struct job { int caller, execution; const struct op *script; int type; };
struct queue { struct job *ring; u32 head, tail, room; int idle; };
struct mutex { int owner, first, last; };

struct thread {
	i64 stamp, remaining; /* of its last event; of its burst */
	const struct op *loop, *at, *after; /* after: where its job was taken */
	struct job job;
	int tid, pid, prio, cpu, next, parent, mutex;
	u8 state, pool, pinned, batch, first_wake, waits;
	short sleep;
	char comm[17];
};
struct cpu {
	i64 clock, began, until;
	int current, first, last, queued, resched, tick;
	u32 turn;
	char idle_comm[17];
};

static struct thread *threads;
static struct cpu cpus[MAX_CPUS];
static struct queue queues[POOLS];
static struct mutex mutexes[3 * 4 * (1 + MAX_CPUS / 8)];
static u64 idle_mask[MAX_CPUS / 64];
static int ncpus, nthreads, free_child = IDLE, next_tid, next_execution, begun, ended;

/* What is to come. */
enum { BURST, TICK, TIMER, DISK_DONE, NET_DONE, ARRIVAL, IPI, RESCHED };
struct coming { i64 at; u32 order, turn; int a; u8 what; };
static struct coming *heap;
static u32 heap_used, heap_room, heap_order;

static inline int sooner(const struct coming *x, const struct coming *y) {
	return x->at < y->at || (x->at == y->at && x->order < y->order);
}
static void expect(i64 at, int what, int a, u32 turn) {
	if (heap_used == heap_room) {
		heap_room = heap_room ? 2 * heap_room : 4096;
		heap = realloc(heap, heap_room * sizeof *heap);
		if (!heap)
			die("memory");
	}
	struct coming new = {at, heap_order++, turn, a, (u8)what};
	u32 i = heap_used++;
	while (i && sooner(&new, &heap[(i - 1) / 4])) {
		heap[i] = heap[(i - 1) / 4];
		i = (i - 1) / 4;
	}
	heap[i] = new;
}
static struct coming next_coming(void) {
	struct coming first = heap[0], moved = heap[--heap_used];
	u32 i = 0;
	for (;;) {
		u32 child = 4 * i + 1, best = child;
		if (child >= heap_used)
			break;
		for (u32 k = child + 1; k < child + 4 && k < heap_used; k++)
			if (sooner(&heap[k], &heap[best]))
				best = k;
		if (!sooner(&heap[best], &moved))
			break;
		heap[i] = heap[best];
		i = best;
	}
	heap[i] = moved;
	return first;
}

/* ------------------------------------------------------------------------- events */

/* The time of the next event on a processor, not before `least`. */
static inline i64 tick_on(int c, i64 least) {
	i64 at = cpus[c].clock + 120 + (i64)(draw() >> 54);
	return cpus[c].clock = at > least ? at : least;
}
static inline u8 *begin_event(int c, u32 id, i64 at, u32 size) {
	u8 *p = open_event(&kernel[c], id, at, size + 8);
	if (!p)
		return NULL;
	int now = cpus[c].current;
	count[id]++;
	p = put32(p, now < 0 ? 0 : (u32)threads[now].pid);
	return put32(p, now < 0 ? 0 : (u32)threads[now].tid);
}
static void record_wake(int c, u32 id, i64 at, const struct thread *t, int target) {
	u8 *p = begin_event(c, id, at, 28);
	if (!p)
		return;
	p = put(p, t->comm, 16);
	p = put32(p, (u32)t->tid);
	p = put32(p, (u32)t->prio);
	shut_event(&kernel[c], put32(p, (u32)target));
}
static void record_switch(int c, i64 at, int from, int to, u64 state) {
	if (missing_share > 0 && (double)(draw() >> 11) < missing_share * 9007199254740992.0) {
		missing++;
		return;
	}
	u8 *p = begin_event(c, SWITCH, at, 56);
	if (!p)
		return;
	p = put(p, from < 0 ? cpus[c].idle_comm : threads[from].comm, 16);
	p = put32(p, from < 0 ? 0 : (u32)threads[from].tid);
	p = put32(p, from < 0 ? 20 : (u32)threads[from].prio);
	p = put64(p, state);
	p = put(p, to < 0 ? cpus[c].idle_comm : threads[to].comm, 16);
	p = put32(p, to < 0 ? 0 : (u32)threads[to].tid);
	shut_event(&kernel[c], put32(p, to < 0 ? 20 : (u32)threads[to].prio));
}
static void record_number(int c, u32 id, u32 number) { /* softirqs */
	u8 *p = begin_event(c, id, tick_on(c, 0), 4);
	if (p)
		shut_event(&kernel[c], put32(p, number));
}
static void record_irq_entry(int c, u32 irq, const char *name) {
	u32 size = (u32)strlen(name) + 1;
	u8 *p = begin_event(c, IRQ_ENTRY, tick_on(c, 0), 4 + size);
	if (p)
		shut_event(&kernel[c], put(put32(p, irq), name, size));
}
static void record_irq_exit(int c, u32 irq) {
	u8 *p = begin_event(c, IRQ_EXIT, tick_on(c, 0), 8);
	if (p)
		shut_event(&kernel[c], put32(put32(p, irq), 1));
}
static void record_timer_entry(int c, u64 timer, u64 function) {
	i64 at = tick_on(c, 0);
	u8 *p = begin_event(c, TIMER_ENTRY, at, 24);
	if (p)
		shut_event(&kernel[c], put64(put64(put64(p, timer), (u64)(at - 200)), function));
}
static void record_timer_exit(int c, u64 timer) {
	u8 *p = begin_event(c, TIMER_EXIT, tick_on(c, 0), 8);
	if (p)
		shut_event(&kernel[c], put64(p, timer));
}
static void record_fork(int c, const struct thread *parent, const struct thread *child) {
	u8 *p = begin_event(c, P_FORK, tick_on(c, 0), 65);
	if (!p)
		return;
	p = put(p, parent->comm, 16);
	p = put32(p, (u32)parent->tid);
	p = put32(p, (u32)parent->pid);
	p = put32(p, 4026531836u);
	p = put(p, child->comm, 16);
	p = put32(p, (u32)child->tid);
	p = put32(put8(p, 1), (u32)child->tid);
	p = put32(p, (u32)child->pid);
	shut_event(&kernel[c], put32(p, 4026531836u));
}
static void record_exec(int c, const struct thread *t, const char *file) {
	u32 size = (u32)strlen(file) + 1;
	u8 *p = begin_event(c, P_EXEC, tick_on(c, 0), 8 + size);
	if (p)
		shut_event(&kernel[c], put32(put32(put(p, file, size), (u32)t->tid), (u32)t->tid));
}
static void record_exit(int c, const struct thread *t) {
	u8 *p = begin_event(c, P_EXIT, tick_on(c, 0), 24);
	if (p)
		shut_event(&kernel[c], put32(put32(put(p, t->comm, 16), (u32)t->tid), (u32)t->prio));
}
static void record_mark(int c, const struct thread *t, u32 id) {
	const char *type = app_types[t->job.type];
	u32 size = (u32)strlen(type) + 1;
	u8 *p = open_event(&user[c], id, tick_on(c, 0), 29 + size);
	if (!p)
		return;
	marks[id]++;
	p = put32(put32(p, (u32)t->pid), (u32)t->tid);
	p = put(p, t->comm, 17);
	shut_event(&user[c], put(put32(p, (u32)t->job.execution), type, size));
	if (id == MARK_BEGIN)
		begun++;
	else
		ended++;
}
static void record_state(int c, const struct thread *t) {
	u8 *p = begin_event(c, STATE_PROCESS, tick_on(c, 0), 60);
	if (!p)
		return;
	int in_kernel = t->pool == KWORKER || t->loop == disk_loop;
	p = put32(put32(put32(p, (u32)t->tid), (u32)t->pid), in_kernel ? 2 : 1);
	p = put(p, t->comm, 16);
	p = put32(p, in_kernel ? 1 : 0);
	p = put32(put32(p, in_kernel ? 2 : 1), 0);
	p = put32(p, 5); /* it waits */
	shut_event(&kernel[c], put64(put32(p, (u32)t->cpu), 0));
}
static void record_plain(int c, u32 id) {
	u8 *p = begin_event(c, id, tick_on(c, 0), 0);
	if (p)
		shut_event(&kernel[c], p);
}

/* ---------------------------------------------------------------------- scheduler */

static inline void enqueue(int c, int t) {
	threads[t].next = IDLE;
	threads[t].state = QUEUED;
	threads[t].cpu = c;
	if (cpus[c].first == IDLE)
		cpus[c].first = t;
	else
		threads[cpus[c].last].next = t;
	cpus[c].last = t;
	cpus[c].queued++;
}
static inline int dequeue(int c, int movable) {
	int before = IDLE, t = cpus[c].first;
	while (movable && t != IDLE && threads[t].pinned)
		before = t, t = threads[t].next;
	if (t == IDLE)
		return IDLE;
	if (before == IDLE)
		cpus[c].first = threads[t].next;
	else
		threads[before].next = threads[t].next;
	if (cpus[c].last == t)
		cpus[c].last = before;
	cpus[c].queued--;
	return t;
}
static inline int is_idle(int c) { return idle_mask[c / 64] >> (c % 64) & 1; }
static inline void set_idle(int c, int yes) {
	u64 bit = 1ULL << (c % 64);
	idle_mask[c / 64] = yes ? idle_mask[c / 64] | bit : idle_mask[c / 64] & ~bit;
}
static int any_idle(int near) {
	int words = (ncpus + 63) / 64;
	for (int i = 0; i < words; i++) {
		int w = (near / 64 + i) % words;
		u64 mask = idle_mask[w];
		if (mask) {
			int turn = near % 64;
			u64 turned = turn ? mask >> turn | mask << (64 - turn) : mask;
			return w * 64 + (__builtin_ctzll(turned) + turn) % 64;
		}
	}
	return IDLE;
}
static int place(int c, const struct thread *t) {
	if (t->pinned || is_idle(t->cpu))
		return t->cpu;
	if (is_idle(c))
		return c;
	int found = any_idle(t->cpu);
	if (found != IDLE)
		return found;
	return cpus[c].queued < cpus[t->cpu].queued ? c : t->cpu;
}
static int busiest(void) {
	int most = IDLE;
	for (int c = 0; c < ncpus; c++)
		if (cpus[c].queued > (most == IDLE ? 0 : cpus[most].queued))
			most = c;
	return most;
}

static void switch_on(int c, int state) {
	struct cpu *p = &cpus[c];
	int from = p->current, to = dequeue(c, 0);
	p->resched = 0;
	if (to == IDLE && from != IDLE && state != S_RUN && state != S_PREEMPTED) {
		int most = busiest();
		if (most != IDLE)
			to = dequeue(most, 1);
	}
	if (to == IDLE && (from == IDLE || state == S_RUN || state == S_PREEMPTED))
		return; /* nothing else wants to run */
	i64 least = 0;
	if (to != IDLE)
		least = threads[to].stamp + 300;
	i64 at = tick_on(c, least);
	record_switch(c, at, from, to, (u64)state);
	if (from != IDLE) {
		threads[from].stamp = at;
		threads[from].cpu = c;
		if (state == S_RUN || state == S_PREEMPTED) {
			i64 left = p->until - at;
			threads[from].remaining = left > 500 ? left : 500;
			enqueue(c, from);
		} else
			threads[from].state = state == S_ZOMBIE ? FREE : ASLEEP;
	}
	p->current = to;
	p->began = at;
	p->turn++;
	set_idle(c, to == IDLE);
	if (to == IDLE)
		return;
	threads[to].state = RUNNING;
	threads[to].cpu = c;
	threads[to].stamp = at;
	p->until = at + threads[to].remaining;
	expect(p->until, BURST, c, p->turn);
	if (!p->tick) {
		p->tick = 1;
		expect(at + 4 * MS - at % (4 * MS) + c * 7 * US, TICK, c, 0);
	}
}

static void queue_woken(int c, int t, int target, i64 at) {
	struct thread *w = &threads[t];
	w->stamp = at;
	enqueue(target, t);
	struct cpu *p = &cpus[target];
	int now = p->current, urgent = now == IDLE;
	if (now != IDLE && !w->batch)
		urgent = threads[now].batch || at - p->began > 2 * MS;
	if (!urgent)
		return;
	if (target == c)
		p->resched = 1;
	else
		expect(at + 900 + (i64)(draw() >> 53), RESCHED, target, p->turn);
}

/* Wake a thread from processor c: its wakeup is recorded there, or, where the thread goes
 * to another processor that is idle, by that one. */
static void wake(int c, int t) {
	struct thread *w = &threads[t];
	int target = place(c, w);
	i64 at = tick_on(c, w->stamp + 200);
	if (w->first_wake) {
		w->first_wake = 0;
		record_wake(c, WAKEUP_NEW, at, w, target);
		queue_woken(c, t, target, at);
		return;
	}
	record_wake(c, WAKING, at, w, w->cpu);
	w->stamp = at;
	if (target != c && is_idle(target)) {
		w->state = WAKES;
		w->cpu = target;
		set_idle(target, 0);
		expect(at + 700 + (i64)(draw() >> 53), IPI, t, 0);
		return;
	}
	at = tick_on(c, 0);
	record_wake(c, WAKEUP, at, w, target);
	queue_woken(c, t, target, at);
}

static inline void settle(int c) { /* the end of an interrupt, or of what a thread did */
	if (cpus[c].resched || (cpus[c].current == IDLE && cpus[c].queued))
		switch_on(c, chance(250) ? S_PREEMPTED : S_RUN);
}
static void settle_idle(int c) { /* the idle thread is never "preempted" with a state */
	if (cpus[c].current == IDLE) {
		if (cpus[c].queued)
			switch_on(c, S_RUN);
		else
			cpus[c].resched = 0;
	} else
		settle(c);
}

/* ------------------------------------------------------------------- what threads do */

static void submit(int c, int pool, struct job job) {
	struct queue *q = &queues[pool];
	if (q->head - q->tail == q->room)
		return; /* only arrivals can be so many: a full backlog refuses them */
	q->ring[q->head++ % q->room] = job;
	int t = q->idle;
	if (t == IDLE)
		return;
	q->idle = threads[t].next;
	wake(c, t);
}
static const struct op *job_script(int pool) {
	static const struct op *const scripts[POOLS] = {
		[WEB] = web_s, [WEB2] = web_s, [WEB3] = web_s, [WEB4] = web_s, [APP] = read_s,
		[DB] = db_s, [CACHE] = cache_s, [SEARCH] = find_s, [LOG] = log_s, [KWORKER] = kworker_s};
	return scripts[pool];
}
static struct job app_job(int execution) {
	u32 x = below(100);
	int type = x < 35 ? 0 : x < 60 ? 1 : x < 80 ? 2 : x < 90 ? 3 : 4;
	return (struct job){IDLE, execution, app_scripts[type], type};
}

static const char *const programs[] = {"/usr/bin/cc1", "/usr/bin/git", "/usr/bin/grep",
	"/usr/bin/python3.11", "/usr/bin/tar", "/usr/lib/postfix/sbin/cleanup"};

static void fork_child(int c, int parent) {
	int t = free_child;
	if (t == IDLE)
		return;
	free_child = threads[t].next;
	struct thread *child = &threads[t], *p = &threads[parent];
	i64 stamp = child->stamp;
	*child = (struct thread){.stamp = stamp, .loop = child_script, .at = child_script,
		.job = {.caller = IDLE}, .prio = 20, .cpu = c, .parent = parent, .mutex = IDLE,
		.state = ASLEEP, .pool = POOLS, .first_wake = 1};
	child->tid = child->pid = next_tid++;
	child->remaining = 60 * US;
	memcpy(child->comm, p->comm, sizeof p->comm);
	record_fork(c, p, child);
	wake(c, t);
}

/* Let the thread that runs on c go on with its script, until it needs time or sleeps. */
static void advance(int c) {
	int me = cpus[c].current;
	struct thread *t = &threads[me];
	for (;;) {
		const struct op *op = t->at++;
		i64 now = cpus[c].clock;
		int state = S_RUN;
		switch (op->what) {
		case END:
			t->at = t->after ? t->after : t->loop;
			t->after = NULL;
			continue;
		case RUN:
			cpus[c].until = now + around(op->a * US);
			expect(cpus[c].until, BURST, c, cpus[c].turn);
			settle(c);
			return;
		case DISK:
			expect(now + 60 * US + around(op->a * US), DISK_DONE, me, 0);
			state = S_DISK;
			break;
		case NET:
			expect(now + 80 * US + around(op->a * US), NET_DONE, me, 0);
			state = S_SLEEP;
			break;
		case NAP:
			expect(now + 50 * US + around(op->a * US), TIMER, me, 0);
			state = S_SLEEP;
			break;
		case LOCK: {
			t->mutex = op->b * 4 * (1 + MAX_CPUS / 8) + (int)below((u32)(op->a * ((ncpus + 7) / 8)));
			struct mutex *m = &mutexes[t->mutex];
			if (m->owner == IDLE) {
				m->owner = me;
				continue;
			}
			t->next = IDLE;
			if (m->first == IDLE)
				m->first = me;
			else
				threads[m->last].next = me;
			m->last = me;
			state = S_SLEEP;
			break;
		}
		case UNLOCK: { /* hands it over, so that no waiter is passed by */
			struct mutex *m = &mutexes[t->mutex];
			m->owner = m->first;
			if (m->owner != IDLE) {
				m->first = threads[m->owner].next;
				wake(c, m->owner);
			}
			continue;
		}
		case CALL:
		case CALL_D:
			submit(c, op->a, (struct job){me, 0, job_script(op->a), 0});
			state = op->what == CALL ? S_SLEEP : S_DISK;
			break;
		case MAYBE:
			if (!chance((u32)op->a))
				t->at += op->b;
			continue;
		case TAKE: {
			struct queue *q = &queues[t->pool];
			if (q->head == q->tail) {
				t->at = op; /* again when woken */
				t->next = q->idle;
				q->idle = me;
				state = t->sleep;
				break;
			}
			t->job = q->ring[q->tail++ % q->room];
			t->after = t->at;
			t->at = t->job.script;
			continue;
		}
		case REPLY:
			if (t->job.caller != IDLE)
				wake(c, t->job.caller);
			t->job.caller = IDLE;
			continue;
		case BEGIN:
		case FINISH:
			if (t->job.execution)
				record_mark(c, t, op->what == BEGIN ? MARK_BEGIN : MARK_END);
			continue;
		case FORK: {
			int had = free_child != IDLE;
			fork_child(c, me);
			if (!had)
				continue;
			state = S_SLEEP; /* until it has ended */
			break;
		}
		case EXEC: {
			const char *file = programs[below(sizeof programs / sizeof *programs)];
			const char *name = strrchr(file, '/') + 1;
			memset(t->comm, 0, sizeof t->comm);
			memcpy(t->comm, name, strlen(name) < 15 ? strlen(name) : 15);
			record_exec(c, t, file);
			continue;
		}
		case EXIT:
			record_exit(c, t);
			wake(c, t->parent);
			switch_on(c, S_ZOMBIE);
			t->next = free_child;
			free_child = me;
			return;
		}
		t->remaining = 1500 + (i64)(draw() >> 52); /* what the kernel does when it is woken */
		switch_on(c, state);
		return;
	}
}

/* --------------------------------------------------------------------- interrupts */

static u64 tick_timer(int c) { return 0xffff888237c1f3c0ULL + (u64)c * 0x40000; }
static const u64 TICK_FUNCTION = 0xffffffff8115c2a0ULL, NAP_FUNCTION = 0xffffffff8114a510ULL;

static i64 enter(int c, i64 at) {
	if (cpus[c].clock < at)
		cpus[c].clock = at;
	return cpus[c].clock;
}
static void leave(int c, i64 since) { /* what an interrupt takes, the thread runs later */
	cpus[c].until += cpus[c].clock - since;
	settle_idle(c);
}

static void tick(int c, i64 at) {
	struct cpu *p = &cpus[c];
	if (p->current == IDLE) {
		p->tick = 0; /* until something runs here */
		return;
	}
	i64 since = enter(c, at);
	record_timer_entry(c, tick_timer(c), TICK_FUNCTION);
	record_timer_exit(c, tick_timer(c));
	if (chance(300)) {
		u32 vector = chance(500) ? 1 : chance(500) ? 7 : 9;
		record_number(c, SOFTIRQ_ENTRY, vector);
		record_number(c, SOFTIRQ_EXIT, vector);
	}
	if (p->queued && at - p->began > 3 * MS)
		p->resched = 1;
	expect(at + 4 * MS, TICK, c, 0);
	leave(c, since);
}
static void expire(int t, i64 at) {
	int c = threads[t].cpu;
	i64 since = enter(c, at);
	u64 timer = 0xffffc90000a00000ULL + (u64)t * 0x4000 + 0xe68;
	record_timer_entry(c, timer, NAP_FUNCTION);
	wake(c, t);
	record_timer_exit(c, timer);
	leave(c, since);
}
static void disk_done(int t, i64 at) {
	int c = threads[t].cpu; /* each processor has its queue */
	char name[32];
	snprintf(name, sizeof name, "nvme0q%d", c + 1);
	i64 since = enter(c, at);
	record_irq_entry(c, (u32)(40 + c), name);
	record_irq_exit(c, (u32)(40 + c));
	record_number(c, SOFTIRQ_ENTRY, 4);
	wake(c, t);
	record_number(c, SOFTIRQ_EXIT, 4);
	leave(c, since);
}
/* A packet that came: for a thread that waits for it (t), or a job for a pool. */
static void packet_came(int t, int pool, i64 at) {
	static const char *const names[] = {"virtio0-input.0", "virtio0-input.1", "virtio0-input.2",
		"virtio0-input.3"};
	u32 which = pool < 0 ? below(4) : (u32)pool % 4;
	int c = (int)(which * 5 + 1) % ncpus;
	i64 since = enter(c, at);
	record_irq_entry(c, 25 + which, names[which]);
	record_irq_exit(c, 25 + which);
	record_number(c, SOFTIRQ_ENTRY, 3);
	if (t >= 0)
		wake(c, t);
	else
		submit(c, pool, pool == APP ? app_job(0) : (struct job){IDLE, 0, job_script(pool), 0});
	record_number(c, SOFTIRQ_EXIT, 3);
	leave(c, since);
}
static void begin_execution(i64 at) {
	int c = (int)below((u32)ncpus);
	i64 since = enter(c, at);
	record_irq_entry(c, 29, "virtio1-input.0");
	record_irq_exit(c, 29);
	record_number(c, SOFTIRQ_ENTRY, 3);
	submit(c, APP, app_job(++next_execution));
	record_number(c, SOFTIRQ_EXIT, 3);
	leave(c, since);
}

/* ----------------------------------------------------------------- the population */

static int made, made_tid = 900;

static struct thread *make(const char *format, int number, const struct op *loop, int pid) {
	struct thread *t = &threads[made++];
	*t = (struct thread){.loop = loop, .at = loop, .job = {.caller = IDLE}, .prio = 20,
		.cpu = (int)below((u32)ncpus), .parent = IDLE, .mutex = IDLE, .state = ASLEEP,
		.pool = POOLS, .sleep = S_SLEEP, .stamp = T0, .remaining = 2000, .next = IDLE};
	t->tid = ++made_tid;
	t->pid = pid ? pid : t->tid;
	snprintf(t->comm, 16, format, number);
	return t;
}
static void make_pool(int pool, const char *format, int size) {
	struct queue *q = &queues[pool];
	q->room = 1;
	while (q->room < (u32)(2 * nthreads + 1024))
		q->room *= 2;
	q->ring = malloc(q->room * sizeof *q->ring);
	if (!q->ring)
		die("memory");
	q->idle = IDLE;
	int pid = pool == KWORKER ? 0 : made_tid + 1;
	for (int i = 0; i < size; i++) {
		struct thread *t = make(format, i, worker_loop, pid);
		t->pool = (u8)pool;
		t->sleep = pool == KWORKER ? S_IDLE : S_SLEEP;
		t->next = q->idle;
		q->idle = made - 1;
	}
}
static void start_later(void) { /* the thread made last, at some time of its first period */
	expect(T0 + 3 * MS + (i64)below(40 * 1000 * 1000), TIMER, made - 1, 0);
}

static void populate(void) {
	static const char *const names[POOLS] = {"web-%d", "api-%d", "auth-%d", "feed-%d",
		"worker-%d", "postgres-%d", "memcached-%d", "searchd-%d", "rsyslog-%d", "kworker/u16:%d"};
	/* Shares of a thousand of the threads; what is left are daemons with timers. */
	static const int share[POOLS] = {120, 100, 80, 60, 32, 90, 24, 32, 12, 20};
	threads = calloc((size_t)nthreads + 1, sizeof *threads);
	if (!threads)
		die("memory");
	make("lttng-sessiond", 0, sessiond_script, 0);
	for (int pool = 0; pool < POOLS; pool++) {
		int size = nthreads * share[pool] / 1000;
		make_pool(pool, names[pool], size > 2 ? size : 2);
	}
	int batch = ncpus / 4 > 1 ? ncpus / 4 : 1, shells = ncpus / 2 + 2, disks = ncpus;
	for (int i = 0; i < disks && made < nthreads; i++, start_later()) {
		struct thread *t = make("jbd2/nvme0n1-%d", i, disk_loop, 0);
		t->pinned = 1;
		t->cpu = i;
	}
	for (int i = 0; i < batch && made < nthreads; i++, start_later()) {
		struct thread *t = make("batch-%d", i, batch_loop, 0);
		t->batch = 1;
		t->prio = 30;
	}
	for (int i = 0; i < shells && made < nthreads; i++, start_later())
		make("sh", i, shell_loop, 0);
	int children = shells, daemons = nthreads - made - children;
	for (int i = 0; i < daemons; i++, start_later())
		make(i % 3 ? "timer-%d" : "agent-%d", i, i % 3 ? timer_loop : daemon_loop, 0);
	for (; made < nthreads; made++) {
		threads[made].state = FREE;
		threads[made].stamp = T0;
		threads[made].next = free_child;
		free_child = made;
	}
	next_tid = made_tid + 1000;
}

static void read_uuid(const char *text, u8 *uuid) {
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			exit(2);
		uuid[i] = (u8)byte;
	}
}

int main(int n, char **argument) {
	if (n != 13)
		return 2;
	u8 uuid[2][16];
	wanted_events = strtoull(argument[3], NULL, 10);
	ncpus = atoi(argument[4]);
	nthreads = atoi(argument[5]);
	int executions = atoi(argument[6]);
	start_random(strtoull(argument[7], NULL, 10));
	u32 room = (u32)strtoul(argument[8], NULL, 10);
	loss_share = atof(argument[9]);
	missing_share = atof(argument[10]);
	read_uuid(argument[11], uuid[0]);
	read_uuid(argument[12], uuid[1]);
	if (ncpus < 1 || ncpus > MAX_CPUS || wanted_events < 1 || room < PAGE)
		return 2;
	for (int c = 0; c < ncpus; c++) {
		open_stream(&kernel[c], argument[1], "kernel", c, room, uuid[0]);
		open_stream(&user[c], argument[2], "ust", c, room, uuid[1]);
		cpus[c] = (struct cpu){.clock = T0 + 1000 + c * 37, .current = IDLE, .first = IDLE,
			.last = IDLE, .began = T0};
		snprintf(cpus[c].idle_comm, 16, "swapper/%d", c);
		set_idle(c, 1);
	}
	for (size_t i = 0; i < sizeof mutexes / sizeof *mutexes; i++)
		mutexes[i] = (struct mutex){IDLE, IDLE, IDLE};
	populate();

	/* The recording begins while the session daemon runs: it lists the threads. */
	cpus[0].current = 0;
	set_idle(0, 0);
	threads[0].state = RUNNING;
	record_plain(0, STATE_START);
	for (int t = 0; t < nthreads; t++)
		if (threads[t].state != FREE)
			record_state(0, &threads[t]);
	record_plain(0, STATE_END);
	i64 now = cpus[0].clock;
	cpus[0].turn = 1;
	cpus[0].until = now + 20 * US;
	expect(cpus[0].until, BURST, 0, 1);

	/* Requests come so often that most of the processors' time is used, and no queue
	 * grows without end. */
	static const int rate[POOLS] = {32, 27, 21, 16, 4}; /* percent */
	i64 gap = 370 * US / ncpus;
	for (int pool = WEB; pool <= APP; pool++)
		expect(now + around(gap * 100 / rate[pool]), ARRIVAL, pool, 0);

	u64 first = events, span = wanted_events > first ? wanted_events - first : 0;
	while (!done) {
		/* Executions are spread over the events, the last of them early enough to end. */
		while (next_execution < executions &&
		       events - first >= (u64)((double)span * 0.96 * (next_execution + 0.5) / executions))
			begin_execution(now);
		struct coming e = next_coming();
		now = e.at;
		switch (e.what) {
		case BURST:
			if (e.turn != cpus[e.a].turn)
				break; /* it was preempted since */
			if (cpus[e.a].until > now) {
				expect(cpus[e.a].until, BURST, e.a, e.turn);
				break;
			}
			enter(e.a, now);
			advance(e.a);
			break;
		case TICK:
			tick(e.a, now);
			break;
		case TIMER:
			expire(e.a, now);
			break;
		case DISK_DONE:
			disk_done(e.a, now);
			break;
		case NET_DONE:
			packet_came(e.a, -1, now);
			break;
		case ARRIVAL:
			packet_came(-1, e.a, now);
			expect(now + around(gap * 100 / rate[e.a]), ARRIVAL, e.a, 0);
			break;
		case IPI: {
			struct thread *t = &threads[e.a];
			int c = t->cpu;
			enter(c, now);
			i64 at = tick_on(c, t->stamp + 200);
			record_wake(c, WAKEUP, at, t, c);
			queue_woken(c, e.a, c, at);
			settle_idle(c);
			break;
		}
		case RESCHED:
			if (e.turn == cpus[e.a].turn) {
				enter(e.a, now);
				cpus[e.a].resched = 1;
				settle_idle(e.a);
			}
			break;
		}
	}
	i64 end = now;
	for (int c = 0; c < ncpus; c++) {
		end = kernel[c].last > end ? kernel[c].last : end;
		end = user[c].last > end ? user[c].last : end;
	}
	end += 20 * US;
	u64 bytes = 0;
	for (int c = 0; c < ncpus; c++) {
		close_packet(&kernel[c], end);
		close_packet(&user[c], end);
		bytes += kernel[c].offset + user[c].offset;
		if (close(kernel[c].file) || close(user[c].file) || close(kernel[c].index) ||
		    close(user[c].index))
			die("close");
	}
	static const char *const names[KINDS] = {"lttng_statedump_process_state",
		"lttng_statedump_end", "lttng_statedump_start", "timer_hrtimer_expire_exit",
		"timer_hrtimer_expire_entry", "irq_softirq_exit", "irq_softirq_entry",
		"irq_handler_exit", "irq_handler_entry", "sched_process_exit", "sched_process_exec",
		"sched_process_fork", "sched_wakeup_new", "sched_waking", "sched_wakeup",
		"sched_switch"};
	printf("{\"events\": %llu, \"begun\": %d, \"ended\": %d, \"lost\": %llu, \"missing\": %llu, "
	       "\"bytes\": %llu, \"begin\": %lld, \"end\": %lld, \"counts\": {",
	       (unsigned long long)events, begun, ended, (unsigned long long)lost,
	       (unsigned long long)missing, (unsigned long long)bytes, (long long)T0, (long long)end);
	for (int i = 0; i < KINDS; i++)
		printf("\"%s\": %llu, ", names[i], (unsigned long long)count[i]);
	printf("\"app:request_begin\": %llu, \"app:request_end\": %llu}}\n",
	       (unsigned long long)marks[0], (unsigned long long)marks[1]);
	return 0;
}
