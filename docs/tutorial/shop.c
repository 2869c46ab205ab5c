/* A shop: `shop` takes orders while the thread `reporter` reports on the day so far.
 *
 *   cc -O2 -pthread -o shop shop.c report-1.0.c
 */
#include "shop.h"

#include <time.h>

struct table sales = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *reporter(void *nothing) {
  struct timespec pause = {.tv_nsec = 2000000};
  while (nanosleep(&pause, NULL) == 0) report();
  return nothing;
}

/* Ask the bank, and find out what an order costs. */
static int price(int order) {
  struct timespec answer = {.tv_nsec = 300000};
  nanosleep(&answer, NULL);
  unsigned value = (unsigned)order + 1;
  for (int i = 0; i < 20000; i++) value = value * 1664525u + 1013904223u;
  return (int)(value >> 16);
}

static void take(int order) {
  int amount = price(order);
  pthread_mutex_lock(&sales.lock);
  sales.amount[sales.count++] = amount;
  sales.total += amount;
  pthread_mutex_unlock(&sales.lock);
}

int main(void) {
  pthread_t thread;
  for (int order = 0; order < YESTERDAY; order++) {
    sales.amount[sales.count++] = (int)((unsigned)order * 2654435761u >> 16);
  }
  if (pthread_create(&thread, NULL, reporter, NULL)) return 1;
  pthread_setname_np(thread, "reporter");
  for (int order = 0; order < ORDERS; order++) take(order);
  return sales.total == 0;
}
