#!/bin/sh
# services.sh DIR: builds the programs of the corpus below DIR/bin and starts what they ask, below
# DIR/run, which keeps the process ids; for root, with Debian's redis-server, nginx, memcached,
# postgresql and stress-ng, and node. `sh services.sh DIR down` ends them.
set -e
DIR=$1; P=$(cd "$(dirname "$0")/programs" && pwd); PG=/tmp/corpus-pg
if [ "$2" = down ]; then
  for f in "$DIR"/run/*.pid; do kill "$(cat "$f")" 2>/dev/null || true; rm -f "$f"; done
  exit
fi
export PYTHONDONTWRITEBYTECODE=1
mkdir -p "$DIR/bin" "$DIR/run"; cd "$DIR/run"
gcc -O2 -pthread -o "$DIR/bin/kinds" "$P/kinds.c"
for n in cachecli epollherd forkherd sorter pinned twokinds mapper pool underhog jackd batchd indexer; do
  ln -f "$DIR/bin/kinds" "$DIR/bin/$n"
done
[ -d "$DIR/venv" ] || { python3 -m venv "$DIR/venv"; "$DIR/venv/bin/pip" install -q gunicorn redis; }
start() { name=$1; shift; setsid "$@" >"$name.log" 2>&1 </dev/null & echo $! >"$name.pid"; }
start redis taskset -c 0 redis-server --port 6398 --save ''
start memcached memcached -u nobody -l 127.0.0.1 -p 11299
cat >nginx.conf <<'N'
worker_processes 1; worker_cpu_affinity 10; daemon off; pid nginx.main; error_log nginx.err;
events {}
http {
  access_log off; keepalive_requests 1000000;
  upstream shop { server 127.0.0.1:8231; keepalive 4; }
  server {
    listen 127.0.0.1:8230;
    location = / { return 200 "hello\n"; }
    location /shop { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://shop; }
  }
}
N
start nginx nginx -p "$PWD" -c "$PWD/nginx.conf"
start gunicorn "$DIR/venv/bin/gunicorn" --chdir "$P" -k gthread --threads 2 -w 1 \
  --keep-alive 75 -b 127.0.0.1:8231 shop:app
start jobs "$DIR/venv/bin/python" "$P/jobs.py"
start ledger python3 "$P/kinds.py" serve-relay ledger 8243
start stock python3 "$P/kinds.py" serve-relay stock 8242
start front-desk python3 "$P/kinds.py" serve-relay front-desk 8241
if [ ! -d $PG ]; then
  mkdir $PG; chown postgres $PG
  su -s /bin/sh postgres -c "initdb -D $PG/data -U postgres -A trust" >initdb.log 2>&1
fi
start postgres su -s /bin/sh postgres -c \
  "exec postgres -D $PG/data -p 5497 -k $PG -c fsync=off -c autovacuum=off -c listen_addresses="
sleep 3
redis-cli -p 6398 set k v
printf 'set k 0 0 1\r\nv\r\nquit\r\n' | timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/11299; cat >&3; head -1 <&3'
psql -q -h $PG -p 5497 -U postgres -c "create table if not exists t(id int primary key, n int);
  insert into t values (1, 0), (2, 0) on conflict do nothing"
start billing python3 "$P/kinds.py" hold-row
# Chains of tiers (tier.c).
gcc -O2 -pthread -o "$DIR/bin/tier" "$P/tier.c"
start table "$DIR/bin/tier" table 8264
start users perl "$P/tier.pl" users 8263 8264
start portal node "$P/tier.js" portal 8262 8263
start gate "$DIR/bin/tier" gate 8261 8262
start cache node "$P/tier.js" cache 8267
start api "$DIR/bin/tier" api 8266 8267
start edge perl "$P/tier.pl" edge 8265 8266
start store "$DIR/bin/tier" store 8270
start shop perl "$P/tier.pl" shop 8269 8270
start web node "$P/tier.js" web 8268 8269
start jackd "$DIR/bin/jackd"
HOG_FLAG=/dev/shm/critpath-batch start batchd "$DIR/bin/batchd"
