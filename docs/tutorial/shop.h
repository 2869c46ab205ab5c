/* What orders and reports share. */
#define _GNU_SOURCE
#include <pthread.h>

enum { YESTERDAY = 30000, ORDERS = 100 };

struct table {
  pthread_mutex_t lock; /* over the rest */
  int count;
  long total;
  int amount[YESTERDAY + ORDERS];
};

extern struct table sales;
extern long reported;

void report(void);
