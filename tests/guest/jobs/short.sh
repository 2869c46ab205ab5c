# In the guest, in two minutes: recordings, one under a budget, one by an ordinary user with
# capabilities and one by root, what reads them confined, and what is left after them.
files=$PWD
cd /out

try() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$name.txt" 2>&1
  echo $? >"$name.code"
}

lttng=(critpath record --recorder lttng)

try doctor critpath doctor --json
try runs "${lttng[@]}" -n 4 -o runs -- sh -c 'cat /etc/passwd >/dev/null; sleep 0.05; exit 3'
try budget "${lttng[@]}" --overhead 20% -n 8 -o budget -- python "$files/flood.py" 100

ftrace=(critpath record --recorder ftrace --profile requests -a --duration 2)
may=+dac_override,+dac_read_search,+sys_ptrace,+sys_nice,+perfmon,+bpf
may+=,+net_admin # before Linux 6.6, for what interpreters run
# Connections that are there before, for both to note.
python "$files/listening.py" &
listening=$!
mkdir user && chown stranger user
as=(setpriv --reuid=stranger --regid=stranger --clear-groups "--inh-caps=$may" "--bounding-set=-all,$may"
  "--ambient-caps=$may")
try root "${ftrace[@]}" -o root
try capable "${as[@]}" "${ftrace[@]}" -o user/rec
try commanded "${as[@]}" critpath record --recorder ftrace -o user/runs -- \
  sh -c '(id -un; grep -E "Cap(Prm|Eff|Amb)" /proc/self/status) >user/told'
kill $listening
try read "${as[@]}" critpath doctor user/rec
{ pgrep -a lttng; lttng --no-sessiond list 2>/dev/null | grep '^ *[0-9]*)'
  find /run/critpath /tmp -mindepth 1 ! -name timer_functions; } >left 2>/dev/null
