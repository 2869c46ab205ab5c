/* 200 allocations, every tenth of which is never touched, the others every 0.1 s of cpu or sooner. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 200, SIZE = 16384 };

int main(int count, char **words) {
  volatile char *kept[COUNT];
  double seconds = count > 1 ? atof(words[1]) : 4;
  unsigned long work = 1;
  for (int i = 0; i < COUNT; i++)
    kept[i] = malloc(SIZE);
  while ((double)clock() / CLOCKS_PER_SEC < seconds)
    for (int i = 0; i < COUNT; i++) {
      for (int j = 0; j < 20000; j++)
        work = work * 6364136223846793005UL + 1442695040888963407UL;
      if (i % 10)
        kept[i][work % SIZE]++;
    }
  printf("%lu\n", work);
  for (int i = 0; i < COUNT; i++)
    free((void *)kept[i]);
  return 0;
}
