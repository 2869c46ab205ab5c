/* What the copied functions tell: ranges of variables, under a controller.
   SMCO_CONTROLLER none|all|only|global|cascade|fair, SMCO_TARGET, SMCO_HERTZ, SMCO_COSTS, SMCO_RESULT,
   SMCO_GAIN, SMCO_INTERVAL. A timer on the process's cpu clock polls; costs are counts x ns. */
#define _GNU_SOURCE
#include "../controllers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FUNCTIONS = 1 << 14, VARIABLES = 1 << 16, LEVELS = 4096 };

struct gate {
  long calls, open, monitored, unused;
} smco_gates[FUNCTIONS]; /* as the plug-in writes it */

static struct range {
  long count, low, high, function;
} ranges[VARIABLES];

static struct plant {
  double event, demand, cost, since, resume;
  long events, calls, monitored;
  int open;
  struct account account;
} plants[FUNCTIONS];

static const double HORIZON = 1.0;
static double target, share_target, call_cost, poll_cost = 4e-6;
static double spent, base_spent, last_poll, interval_from, interval_spent, level, interval = 0.4;
static struct account whole;
static struct primary primary;
static struct trim trim;
static int whole_open;
static struct { double at, level, observed; } levels[LEVELS];
static int functions, variables, adjustments, polls, toggles;
static const char *controller = "none";

__attribute__((noinline)) void smco_update(unsigned number, long value) {
  struct range *range = ranges + number;
  range->count++;
  if (value < range->low)
    range->low = value;
  if (value > range->high)
    range->high = value;
}

static double cpu(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void set_gate(int function, int open) {
  toggles += smco_gates[function].open != open;
  smco_gates[function].open = open;
}

/* Charge what happened since the last poll; returns what the events cost. */
static double charge(double busy) {
  static long seen[FUNCTIONS];
  double sum = 0;
  memset(seen, 0, sizeof(long) * (size_t)functions);
  for (int i = 0; i < variables; i++)
    seen[ranges[i].function] += ranges[i].count;
  for (int i = 0; i < functions; i++) {
    struct plant *plant = plants + i;
    long calls = smco_gates[i].calls;
    plant->cost = (double)(seen[i] - plant->events) * plant->event;
    plant->events = seen[i];
    sum += plant->cost;
    base_spent += (double)(calls - plant->calls) * call_cost;
    long monitored = smco_gates[i].monitored;
    double each = monitored ? (double)seen[i] * plant->event / (double)monitored : 0;
    double wanted = (double)(calls - plant->calls) * each / busy;
    double part = busy / (2 / 0.6931 + busy);
    plant->demand += part * (wanted - plant->demand);
    plant->calls = calls;
    plant->monitored = monitored;
    plant->account.unit = each; /* a gate is looked at when a call begins, and not within it */
  }
  return sum;
}

static void adjust(double now) {
  static double demand[FUNCTIONS];
  double observed = interval_spent / (now - interval_from);
  if (!strcmp(controller, "fair")) {
    for (int i = 0; i < functions; i++)
      demand[i] = plants[i].demand;
    trim_adjust(&trim, observed, demand, functions);
    level = find_level(demand, functions, trim.total) + trim.extra;
    for (int i = 0; i < functions; i++)
      plants[i].account.share = level;
  } else {
    primary_adjust(&primary, observed);
    level = primary_level(&primary, functions);
  }
  if (adjustments < LEVELS) {
    levels[adjustments].at = now;
    levels[adjustments].level = level;
    levels[adjustments].observed = observed;
  }
  adjustments++;
  interval_from = now;
  interval_spent = 0;
}

static void decide(double now, double busy, double cost) {
  if (!strcmp(controller, "global")) {
    int open = global_open(spent, now, share_target);
    for (int i = 0; i < functions; i++)
      set_gate(i, open);
  } else if (!strcmp(controller, "fair")) {
    account_note(&whole, now, busy, cost);
    whole_open = account_decide(&whole, whole_open);
    for (int i = 0; i < functions; i++) {
      struct plant *plant = plants + i;
      account_note(&plant->account, now, busy, plant->cost);
      plant->open = account_decide(&plant->account, plant->open);
      set_gate(i, plant->open && whole_open);
    }
    if (now - interval_from >= interval)
      adjust(now);
  } else if (!strcmp(controller, "cascade")) {
    for (int i = 0; i < functions; i++) {
      struct plant *plant = plants + i;
      if (plant->cost > 0) { /* an event: processed, then left alone for the delay */
        double stretch = now > plant->since ? now - plant->since : 0;
        if (plant->resume < now) /* else it ended after the gate was closed, and is added */
          plant->resume = now;
        plant->resume += secondary_delay(plant->cost, stretch, level);
        plant->since = plant->resume;
      }
      set_gate(i, now >= plant->resume);
    }
    if (now - interval_from >= interval)
      adjust(now);
  }
}

static void poll_now(int signal) {
  (void)signal;
  int saved = errno;
  double now = cpu(), busy = now - last_poll;
  if (busy > 0) {
    double before = base_spent;
    double cost = charge(busy);
    base_spent += poll_cost;
    cost += base_spent - before;
    spent += cost;
    interval_spent += cost;
    last_poll = now;
    decide(now, busy, cost);
    polls++;
    base_spent += cpu() - now;
  }
  errno = saved;
}

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text ? atof(text) : otherwise;
}

static void read_table(const char *path) {
  FILE *file = path ? fopen(path, "r") : NULL;
  char word[16], rest[4096];
  int first, second;
  while (file && fscanf(file, "%15s%4095[^\n]", word, rest) == 2) {
    if (!strcmp(word, "variable") && sscanf(rest, "%d %d", &first, &second) == 2 &&
        first < VARIABLES && second < FUNCTIONS) {
      ranges[first] = (struct range){0, 0x7fffffffffffffff, -0x7fffffffffffffff - 1, second};
      variables = first + 1;
    } else if (!strcmp(word, "function") && functions < FUNCTIONS) {
      functions++;
    }
  }
  if (file)
    fclose(file);
}

static void read_costs(const char *path) {
  FILE *file = path ? fopen(path, "r") : NULL;
  char word[16];
  int function;
  double ns;
  for (int i = 0; i < functions; i++)
    plants[i].event = 3e-9;
  while (file && fscanf(file, "%15s %d %lf", word, &function, &ns) == 3)
    if (!strcmp(word, "call"))
      call_cost = ns / 1e9;
    else if (!strcmp(word, "poll"))
      poll_cost = ns / 1e9;
    else if (function >= 0 && function < functions)
      plants[function].event = ns / 1e9;
  if (file)
    fclose(file);
}

__attribute__((constructor)) static void begin(void) {
  controller = getenv("SMCO_CONTROLLER") ? getenv("SMCO_CONTROLLER") : "none";
  target = number("SMCO_TARGET", 0);
  share_target = target / (1 + target);
  read_table(getenv("SMCO_TABLE"));
  read_costs(getenv("SMCO_COSTS"));
  interval = number("SMCO_INTERVAL", 0.4);
  int some = functions ? functions : 1;
  primary = (struct primary){share_target, number("SMCO_GAIN", target > 0.7 ? 0.5 : 0.1), 0};
  trim.total = share_target;
  level = share_target / some;
  account_start(&whole, share_target, HORIZON);
  whole_open = share_target > 0;
  int only = (int)number("SMCO_ONLY", -1);
  for (int i = 0; i < functions; i++) {
    /* Nothing is known of what they want: the account of all has the word until then. */
    account_start(&plants[i].account, strcmp(controller, "fair") ? level : share_target, HORIZON);
    plants[i].open = share_target > 0;
    smco_gates[i].open = !strcmp(controller, "all") || i == only ||
                         (strcmp(controller, "none") && strcmp(controller, "only") && target > 0);
  }
  last_poll = interval_from = cpu();
  double hertz = number("SMCO_HERTZ", 100);
  if (hertz > 0) {
    struct sigaction action = {.sa_handler = poll_now, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    long ns = (long)(1e9 / hertz);
    struct itimerspec every = {{ns / 1000000000, ns % 1000000000}, {ns / 1000000000, ns % 1000000000}};
    timer_t timer;
    sigaction(SIGPROF, &action, NULL);
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0)
      timer_settime(timer, 0, &every, NULL);
  }
}

__attribute__((destructor)) static void end(void) {
  double total = cpu();
  signal(SIGPROF, SIG_IGN);
  FILE *file = getenv("SMCO_RESULT") ? fopen(getenv("SMCO_RESULT"), "a") : NULL;
  if (!file)
    return;
  charge(1);
  long calls = 0, events = 0;
  for (int i = 0; i < functions; i++) {
    calls += plants[i].calls;
    events += plants[i].events;
  }
  fprintf(file, "{\"cpu\": %.6f, \"spent\": %.6f, \"base\": %.6f, \"calls\": %ld, \"events\": %ld, "
                "\"polls\": %d, \"toggles\": %d, \"functions\": [",
          total, spent, base_spent, calls, events, polls, toggles);
  for (int i = 0; i < functions; i++)
    fprintf(file, "%s[%ld, %ld, %ld]", i ? ", " : "", plants[i].calls, plants[i].monitored, plants[i].events);
  fprintf(file, "], \"levels\": [");
  for (int i = 0; i < adjustments && i < LEVELS; i++)
    fprintf(file, "%s[%.4f, %.6f, %.6f]", i ? ", " : "", levels[i].at, levels[i].level, levels[i].observed);
  fprintf(file, "], \"ranges\": {");
  for (int i = 0, first = 1; i < variables; i++)
    if (ranges[i].count) {
      fprintf(file, "%s\"%d\": [%ld, %ld, %ld]", first ? "" : ", ", i, ranges[i].count, ranges[i].low, ranges[i].high);
      first = 0;
    }
  fprintf(file, "}}\n");
  fclose(file);
}
