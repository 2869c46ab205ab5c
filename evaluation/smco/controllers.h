/* The laws of critpath_record.budget in C, for monitors inside a program: no clock, no file.
   Times are seconds of cpu, shares are cost/busy. */
#ifndef SMCO_CONTROLLERS_H
#define SMCO_CONTROLLERS_H

enum { SLOTS = 10 }; /* parts that a horizon's busy time is kept in */

/* Credit that busy time earns and monitoring spends. */
struct account {
  double share, horizon, credit, last;
  double slots[2 * SLOTS];
  long slot;
  long first;
  double unit; /* what is spent in one piece: so much can always be saved */
};

void account_start(struct account *account, double share, double horizon);
double account_size(const struct account *account);
void account_note(struct account *account, double now, double busy, double cost);
/* Whether a gate is to be open: one that is closed opens with nearly all the credit there can be. */
int account_decide(const struct account *account, int open);

/* The largest share that anybody gets, of those who want `demand` and have `total` together. */
double find_level(const double *demand, int count, double total);

/* A level after a stretch in which `observed` was spent and `saturated` of `count` wanted more. */
double trim_level(double level, double total, double observed, int saturated, int count);

/* What demands do not say is taken out. */
struct trim {
  double total, extra;
};

void trim_adjust(struct trim *trim, double observed, const double *demand, int count);

/* The paper's global controller, of all costs and all busy time so far. */
int global_open(double cost, double busy, double share);

/* The paper's cascade: how long an object is left alone after an event that cost `cost`, in a
   stretch of `busy`; and the level of all, adjusted every interval. */
double secondary_delay(double cost, double busy, double level);

struct primary {
  double share, gain, errors;
};

void primary_adjust(struct primary *primary, double observed);
double primary_level(const struct primary *primary, int count);

#endif
