# In the guest of tests/guest: a neighbour's faults and healthy programs, recorded by LTTng.
#
#   tests/guest/run evaluation/weather/guest.sh RESULT evaluation/weather evaluation/results.py
#
# RESULT/out/pairs is as record.py leaves it, RESULT/out/singles as healthy.py does.
set -e
exec > >(tee /dev/ttyS0) 2>&1  # what it comes to, if it does not end
cd weather
mkdir -p /out/bin
gcc -O2 -pthread -o /out/bin/kinds programs/kinds.c
for n in pinned twokinds underhog jackd batchd indexer; do ln -f /out/bin/kinds "/out/bin/$n"; done
setsid /out/bin/jackd & echo $! >/tmp/jackd
HOG_FLAG=/dev/shm/critpath-batch setsid /out/bin/batchd & echo $! >/tmp/batchd
sleep 1
printf '#!/bin/sh\nverb=$1; shift; exec critpath "$verb" --recorder lttng "$@"\n' >/tmp/by-lttng
chmod +x /tmp/by-lttng
python healthy.py record /out --critpath /tmp/by-lttng --rounds 3 --only quiet-a \
  dial-json dial-sqlite dial-sort dial-perl
python record.py /out --critpath /tmp/by-lttng --phase quiet --phase straight \
  pinned-jackd py-pinned-jackd pl-pinned-batchd twokinds-jackd py-lanes-jackd
kill "$(cat /tmp/jackd)" "$(cat /tmp/batchd)" || true
rm -r /out/bin
