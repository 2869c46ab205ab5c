/* 1.0: the total. */
#include "shop.h"

long reported;

void report(void) {
  pthread_mutex_lock(&sales.lock);
  reported = sales.total;
  pthread_mutex_unlock(&sales.lock);
}
