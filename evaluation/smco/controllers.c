#include "controllers.h"

enum { MOST = 65536 };

static const double IDLE = 0.05, FILLED = 0.95, PART = 4, GAIN = 0.5, LEAST = 1e-3;

static double smaller(double one, double two) { return one < two ? one : two; }
static double larger(double one, double two) { return one > two ? one : two; }

void account_start(struct account *account, double share, double horizon) {
  *account = (struct account){.share = share, .horizon = horizon, .slot = -1, .first = -1};
  account->credit = account_size(account);
}

static double busy_time(const struct account *account) {
  double older = 0, newer = 0;
  for (int i = 0; i < SLOTS; i++) {
    older += account->slots[(account->slot + 1 + i) % (2 * SLOTS)];
    newer += account->slots[(account->slot + 1 + SLOTS + i) % (2 * SLOTS)];
  }
  double seen = account->slot - account->first >= 2 * SLOTS - 1 ? smaller(older, newer) : newer;
  return smaller(larger(seen, IDLE * account->horizon), account->horizon);
}

double account_size(const struct account *account) {
  return larger(account->share * busy_time(account) / PART, account->unit);
}

static void roll(struct account *account, double now) {
  long slot = (long)(now * SLOTS / account->horizon);
  if (slot < account->slot)
    slot = account->slot;
  long from = account->slot + 1;
  if (from < slot - 2 * SLOTS + 1)
    from = slot - 2 * SLOTS + 1;
  for (; from <= slot; from++)
    account->slots[from % (2 * SLOTS)] = 0;
  account->slot = slot;
}

void account_note(struct account *account, double now, double busy, double cost) {
  if (account->slot < 0) {
    account->slot = account->first = (long)(now * SLOTS / account->horizon);
    account->last = now;
  }
  double passed = smaller(larger(0, now - account->last), account->horizon);
  roll(account, now);
  busy = larger(0, smaller(busy, passed + 0.02));
  account->slots[account->slot % (2 * SLOTS)] += busy;
  // Who was idle for a horizon would never have paid what others spend.
  int idle = busy_time(account) <= IDLE * account->horizon;
  double earned = account->share * (idle ? larger(busy, IDLE * passed) : busy);
  account->credit = smaller(account_size(account), account->credit + earned) - larger(0, cost);
  account->last = larger(now, account->last);
}

int account_decide(const struct account *account, int open) {
  if (account->share <= 0)
    return 0;
  return open ? account->credit > 0 : account->credit >= FILLED * account_size(account);
}

/* In place: monitors ask in a handler of signals, where qsort, which may allocate, is not allowed. */
static void sort(double *values, int count) {
  for (int gap = count / 2; gap > 0; gap /= 2)
    for (int i = gap; i < count; i++) {
      double value = values[i];
      int at = i;
      for (; at >= gap && values[at - gap] > value; at -= gap)
        values[at] = values[at - gap];
      values[at] = value;
    }
}

double find_level(const double *demand, int count, double total) {
  static double wanted[MOST];
  for (int i = 0; i < count && i < MOST; i++)
    wanted[i] = larger(demand[i], 0);
  sort(wanted, count);
  double left = total;
  for (int i = 0; i < count; i++) {
    double level = left / (count - i);
    if (wanted[i] >= level)
      return level;
    left -= wanted[i];
  }
  return total; /* all of it fits: nobody is held back */
}

double trim_level(double level, double total, double observed, int saturated, int count) {
  if (saturated > 0)
    level += GAIN / saturated * (total - observed);
  return smaller(total, larger(total / (count > 0 ? count : 1), level));
}

void trim_adjust(struct trim *trim, double observed, const double *demand, int count) {
  double level = find_level(demand, count, trim->total);
  int saturated = 0;
  double extra = trim->extra;
  for (int i = 0; i < count; i++)
    saturated += demand[i] >= level + extra;
  trim->extra = 0;
  if (saturated) {
    double trimmed = trim_level(level + extra, trim->total, observed, saturated, count);
    trim->extra = smaller(trim->total, larger(level / 2, trimmed)) - level;
  }
}

int global_open(double cost, double busy, double share) { return !(cost > share * busy); }

double secondary_delay(double cost, double busy, double level) {
  return larger(0, cost / level - busy);
}

void primary_adjust(struct primary *primary, double observed) {
  primary->errors += primary->share - observed;
}

double primary_level(const struct primary *primary, int count) {
  return larger(primary->share / count + primary->gain * primary->errors, LEAST * primary->share);
}
