# In the guest, in two minutes: a recording, one under a budget, and what is left after them.
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
{ pgrep -a lttng; lttng --no-sessiond list 2>/dev/null | grep '^ *[0-9]*)'
  find /run/critpath /tmp -mindepth 1; } >left 2>/dev/null
