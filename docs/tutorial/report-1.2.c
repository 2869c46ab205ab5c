/* 1.2: the same, in one pass over the table. */
#include "shop.h"

enum { BEST = 10 };

long reported;

void report(void) {
  int best[BEST + 1] = {0}; /* falling; the last is room for one more */
  pthread_mutex_lock(&sales.lock);
  for (int i = 0; i < sales.count; i++) {
    if (sales.amount[i] <= best[BEST - 1]) continue;
    int place = BEST;
    for (; place > 0 && best[place - 1] < sales.amount[i]; place--) best[place] = best[place - 1];
    best[place] = sales.amount[i];
  }
  pthread_mutex_unlock(&sales.lock);
  reported = 0;
  for (int i = 0; i < BEST; i++) reported += best[i];
}
