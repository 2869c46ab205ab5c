/* 1.1: the total of the ten best sales. */
#include "shop.h"

#include <stdlib.h>
#include <string.h>

long reported;
static int sorted[YESTERDAY + ORDERS];

static int falling(const void *a, const void *b) {
  return *(const int *)b - *(const int *)a;
}

void report(void) {
  pthread_mutex_lock(&sales.lock);
  memcpy(sorted, sales.amount, sizeof sorted);
  qsort(sorted, sales.count, sizeof *sorted, falling);
  reported = 0;
  for (int i = 0; i < 10; i++) reported += sorted[i];
  pthread_mutex_unlock(&sales.lock);
}
