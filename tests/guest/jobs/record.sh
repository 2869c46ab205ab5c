# In the guest: recordings through LTTng, of users and profiles, with faults, marks, loss.
# Each step leaves NAME.code and NAME.txt (what it printed) in /out, recordings are
# directories beside them, and NAME.left is what was still there afterwards.
files=$PWD
cd /out

try() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$name.txt" 2>&1
  echo $? >"$name.code"
}

left() { # NAME: LTTng's processes and sessions, and what critpath has noted
  { pgrep -a lttng; lttng --no-sessiond list 2>/dev/null | grep '^ *[0-9]*)'
    ls -A /run/critpath /tmp; } >"$1.left" 2>/dev/null
}

# Computes a little and writes a block to the disk.
healthy='i=0; while [ $i -lt 300 ]; do i=$((i+1)); done
dd if=/dev/zero of=/var/tmp/block bs=16k count=1 conv=fsync status=none'
more='dd if=/dev/zero of=/var/tmp/other bs=4k count=32 oflag=sync status=none'
lttng=(critpath record --recorder lttng)

try doctor critpath doctor --json
try auto critpath record -n 2 -o auto -- true
left auto

# ---- the same twice in alternation, and with faults
try same "${lttng[@]}" --warmup 3 -n 50 --interleave "sh -c '$healthy'" "sh -c '$healthy'" -o same
try sleep "${lttng[@]}" --warmup 3 -n 30 -o sleep -- sh -c "$healthy; sleep 0.4"
try fsync "${lttng[@]}" --warmup 3 -n 30 -o fsync -- sh -c "$healthy; $more"
left fsync

# ---- profiles, and the command's exit code
for profile in syscalls network full; do
  try $profile "${lttng[@]}" --profile $profile -n 2 -o $profile -- sh -c 'cat /etc/passwd; exit 3'
done

# ---- marks: the Python agent's, the shell's, and a file's
try marks-python "${lttng[@]}" --execution marker -o marks-python -- python "$files/marked.py"
try marks-shell "${lttng[@]}" --execution marker -o marks-shell -- sh -c '
  for i in 1 2 3; do critpath mark begin job; sleep 0.02; critpath mark end job; done'
try marks-file "${lttng[@]}" --execution marker -o marks-file -- sh -c '
  for i in 1 2 3 4; do
    echo critpath:begin job >/proc/lttng-logger; sleep 0.02
    echo critpath:end job >/proc/lttng-logger
  done'
left marks

# ---- more switches than the smallest buffers have room for
try loss "${lttng[@]}" --buffer-size 8k -n 3 -o loss -- python "$files/flood.py" 3000

# ---- beside a session of somebody else, as members of the group and as others
lttng-sessiond --daemonize
lttng create foreign --output=/tmp/foreign >/dev/null
lttng enable-event --kernel sched_switch >/dev/null
lttng start foreign >/dev/null
try beside "${lttng[@]}" -n 2 -o beside -- true
install -d -o tracer /out/tracer
try member su tracer -c 'cd /out/tracer && critpath record --recorder lttng -n 2 -o member -- id -un'
stat -c '%U %a %n' tracer/member tracer/member/critpath.json tracer/member/trace/kernel/metadata >member.stat
try stranger su stranger -c 'cd /tmp && critpath record --recorder lttng -o s -- true'
try foreign lttng list foreign
lttng destroy foreign >/dev/null
babel=$(find /tmp/foreign -name metadata | wc -l)
echo "$babel" >foreign.metadata
kill "$(pgrep -o lttng-sessiond)"
while pgrep lttng >/dev/null; do sleep 0.1; done
rm -rf /tmp/foreign
try nobody su tracer -c 'cd /tmp && critpath record --recorder lttng -o s -- true'
left nobody
