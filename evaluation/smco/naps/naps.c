/* Preloaded: allocations of 8 KiB and more on pages of their own, guarded so that an access is seen;
   one that nobody touched for SMCO_NAP seconds of cpu has a non-accessed period. One thread only.
   SMCO_CONTROLLER none|cascade|fair (fair: the gain follows from how many are held back),
   SMCO_TARGET, SMCO_GAIN, SMCO_INTERVAL, SMCO_KAPPA, SMCO_RESULT.
   What a trap costs is measured at start: the handler itself sees a small part of it. */
#define _GNU_SOURCE
#include "../controllers.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, CUTOFF = 2 * PAGE, MOST = 4096, LEVELS = 4096, LARGE = 512 };

static struct plant {
  char *begin;
  size_t length, asked;
  int guarded, held; /* held back in the interval before this number of adjustments */
  double since, resume;
  long number, events, naps;
} plants[MOST];

static struct { double at, level, observed; } levels[LEVELS];
static void *(*libc_malloc)(size_t), *(*libc_realloc)(void *, size_t);
static void (*libc_free)(void *);
static double trap_cost[2], poll_cost, threshold, target, share_target, gain, interval;
static double spent, interval_from, interval_spent, level;
static long traps, polls, made;
static int highest, held_back, adjustments, fair, ready;
static timer_t timer;
static FILE *result;
static struct primary primary;

static double cpu(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text ? atof(text) : otherwise;
}

static double cost_of(const struct plant *plant) {
  double pages = (double)plant->length / PAGE;
  return trap_cost[0] + (trap_cost[1] - trap_cost[0]) * (pages - 1) / (LARGE - 1);
}

static void charge(double cost) {
  spent += cost;
  interval_spent += cost;
}

static void guard(struct plant *plant, double now) {
  if (mprotect(plant->begin, plant->length, PROT_NONE) == 0) {
    plant->guarded = 1;
    plant->since = now;
  }
}

/* A guarded stretch is over: it was a non-accessed period if it was long. */
static void open_pages(struct plant *plant, double now) {
  plant->naps += now - plant->since >= threshold;
  mprotect(plant->begin, plant->length, PROT_READ | PROT_WRITE);
  plant->guarded = 0;
}

static void adjust(double now) {
  double observed = interval_spent / (now - interval_from);
  int count = 0;
  for (int i = 0; i < highest; i++)
    count += plants[i].begin != NULL;
  if (count && fair) {
    level = trim_level(level, share_target, observed, held_back, count);
  } else if (count) {
    primary_adjust(&primary, observed);
    level = primary_level(&primary, count);
  }
  if (adjustments < LEVELS) {
    levels[adjustments].at = now;
    levels[adjustments].level = level;
    levels[adjustments].observed = observed;
  }
  adjustments++;
  held_back = 0;
  interval_from = now;
  interval_spent = 0;
}

/* Guard what is due again, adjust, and ask to be woken when the next one is due. */
static void go_on(double now, const struct plant *but) {
  double next = interval / 4;
  for (int i = 0; i < highest; i++) {
    struct plant *plant = plants + i;
    if (!plant->begin || plant->guarded || plant == but)
      continue;
    if (plant->resume <= now)
      guard(plant, now);
    else if (plant->resume - now < next)
      next = plant->resume - now;
  }
  if (but && but->resume - now < next)
    next = but->resume - now;
  if (now - interval_from >= interval)
    adjust(now);
  if (next < 100e-6)
    next = 100e-6;
  struct itimerspec once = {{0, 0}, {(time_t)next, (long)((next - (double)(time_t)next) * 1e9)}};
  timer_settime(timer, 0, &once, NULL);
}

static void poll_now(int signal) {
  (void)signal;
  int saved = errno;
  polls++;
  charge(poll_cost);
  go_on(cpu(), NULL);
  errno = saved;
}

static void on_access(int number, siginfo_t *info, void *context) {
  (void)context;
  int saved = errno;
  char *at = info->si_addr;
  for (int i = 0; i < highest; i++) {
    struct plant *plant = plants + i;
    if (!plant->guarded || at < plant->begin || at >= plant->begin + plant->length)
      continue;
    double now = cpu(), cost = cost_of(plant);
    double delay = secondary_delay(cost, now - plant->since + cost, level);
    if (delay > 0 && plant->held != adjustments + 1) { /* once in an interval */
      plant->held = adjustments + 1;
      held_back++;
    }
    open_pages(plant, now);
    plant->resume = now + delay;
    plant->events++;
    traps++;
    charge(cost);
    if (ready)
      go_on(now, plant);
    errno = saved;
    return;
  }
  struct sigaction usual = {.sa_handler = SIG_DFL}; /* not ours: the program's own fault */
  sigaction(number, &usual, NULL);
}

/* The program's own handler of such faults would take ours away. */
void (*signal(int number, void (*handler)(int)))(int) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
  if (number == SIGSEGV)
    return SIG_DFL;
  return sigaction(number, &action, &before) ? SIG_ERR : before.sa_handler;
}

static struct plant *find(const void *begin) {
  for (int i = 0; i < highest; i++)
    if (begin && plants[i].begin == begin)
      return plants + i;
  return NULL;
}

static void block(int how) {
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGRTMIN);
  sigprocmask(how, &ours, NULL);
}

static void *allocate(size_t asked) {
  size_t length = (asked + PAGE - 1) / PAGE * PAGE;
  char *begin = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) {
    errno = ENOMEM;
    return NULL;
  }
  block(SIG_BLOCK);
  int at = 0;
  while (at < highest && plants[at].begin)
    at++;
  if (at < MOST) {
    plants[at] = (struct plant){.begin = begin, .length = length, .asked = asked, .number = made++};
    if (at == highest)
      highest++;
    if (ready && target > 0)
      guard(plants + at, cpu());
  }
  block(SIG_UNBLOCK);
  return begin;
}

static void report(const struct plant *plant, double now) {
  long naps = plant->naps + (plant->guarded && now - plant->since >= threshold);
  if (result)
    fprintf(result, "{\"allocation\": %ld, \"bytes\": %zu, \"events\": %ld, \"naps\": %ld}\n",
            plant->number, plant->asked, plant->events, naps);
}

void *malloc(size_t size) {
  if (!libc_malloc)
    libc_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return ready && size >= CUTOFF && made < MOST ? allocate(size) : libc_malloc(size);
}

void free(void *begin) {
  struct plant *plant = find(begin);
  if (plant) {
    block(SIG_BLOCK);
    report(plant, cpu());
    munmap(plant->begin, plant->length);
    plant->begin = NULL;
    plant->guarded = 0;
    block(SIG_UNBLOCK);
    return;
  }
  if (!libc_free)
    libc_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  libc_free(begin);
}

void *realloc(void *begin, size_t size) {
  struct plant *plant = find(begin);
  if (!plant) {
    if (!libc_realloc)
      libc_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    return libc_realloc(begin, size);
  }
  char *other = malloc(size);
  if (other) {
    memcpy(other, begin, plant->asked < size ? plant->asked : size);
    free(begin);
  }
  return other;
}

/* What guarding `pages` once, the trap, and finding the pages anew cost, by doing it. */
static double measure_trap(size_t pages) {
  struct plant *plant = plants;
  enum { TIMES = 100 };
  *plant = (struct plant){.length = pages * PAGE};
  plant->begin = mmap(NULL, plant->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  highest = 1;
  double took[2];
  for (int guarded = -1; guarded < 2; guarded++) { /* once before, to have the pages */
    double begin = cpu();
    for (int i = 0; i < TIMES; i++) {
      if (guarded > 0)
        guard(plant, 0);
      for (size_t at = 0; at < plant->length; at += PAGE)
        ++*(volatile char *)(plant->begin + at);
    }
    took[guarded > 0] = cpu() - begin;
  }
  munmap(plant->begin, plant->length);
  plant->begin = NULL;
  highest = 0;
  return (took[1] - took[0]) / TIMES;
}

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("SMCO_CONTROLLER"), *path = getenv("SMCO_RESULT");
  fair = name && !strcmp(name, "fair");
  target = name && strcmp(name, "none") ? number("SMCO_TARGET", 0) : 0;
  share_target = target / (1 + target);
  threshold = number("SMCO_NAP", 1);
  gain = number("SMCO_GAIN", target > 0.7 ? 0.5 : 0.1);
  interval = number("SMCO_INTERVAL", 0.4);
  result = path ? fopen(path, "a") : NULL;
  primary = (struct primary){share_target, gain, 0};
  struct sigaction access = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct sigaction poll = {.sa_handler = poll_now, .sa_flags = SA_RESTART};
  sigaddset(&access.sa_mask, SIGRTMIN);
  sigaction(SIGSEGV, &access, NULL);
  sigaction(SIGRTMIN, &poll, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer))
    return;
  if (target > 0) {
    level = 1;
    trap_cost[0] = measure_trap(1);
    trap_cost[1] = measure_trap(LARGE);
    double from = cpu();
    for (int i = 0; i < 200; i++)
      raise(SIGRTMIN);
    poll_cost = (cpu() - from) / 200;
    double kappa = number("SMCO_KAPPA", 1); /* in the program, over what it is in this loop */
    trap_cost[0] *= kappa;
    trap_cost[1] *= kappa;
    poll_cost *= kappa;
    traps = polls = held_back = 0;
  }
  level = share_target / 4; /* of how many is not known yet: a few */
  interval_from = cpu();
  spent = target > 0 ? interval_from : 0;
  interval_spent = 0;
  ready = 1;
  if (target > 0)
    go_on(interval_from, NULL);
}

__attribute__((destructor)) static void end(void) {
  ready = 0;
  block(SIG_BLOCK);
  double now = cpu();
  for (int i = 0; i < highest; i++)
    if (plants[i].begin) {
      report(plants + i, now);
      if (plants[i].guarded)
        open_pages(plants + i, now);
    }
  if (!result)
    return;
  fprintf(result, "{\"cpu\": %.6f, \"spent\": %.6f, \"events\": %ld, \"polls\": %ld, \"made\": %ld, "
                  "\"trap\": [%.3g, %.3g], \"levels\": [", now, spent, traps, polls, made,
          trap_cost[0], trap_cost[1]);
  for (int i = 0; i < adjustments && i < LEVELS; i++)
    fprintf(result, "%s[%.4f, %.6f, %.6f]", i ? ", " : "", levels[i].at, levels[i].level,
            levels[i].observed);
  fprintf(result, "]}\n");
  fclose(result);
}
