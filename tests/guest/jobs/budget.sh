# In the guest: recordings through LTTng under a budget, windows in time and whole runs, and
# one whose recorder is killed.  Each leaves NAME.code and NAME.txt in /out.
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
    find /run/critpath /tmp -mindepth 1; } >"$1.left" 2>/dev/null
}

lttng=(critpath record --recorder lttng)

# ---- whole runs, first: what an event costs is measured while nothing else runs
for budget in 5 20; do
  try runs-$budget "${lttng[@]}" --overhead $budget% -n 20 -o runs-$budget -- python "$files/flood.py" 300
done
left runs

# ---- windows, while something switches all the time and something else marks
python "$files/steady.py" &
steady=$!
for budget in 5 20; do
  # On a slow machine one window uses up the 5 % of 20 seconds: time for several.
  duration=$((budget == 5 ? 90 : 45))
  try windows-$budget "${lttng[@]}" --overhead $budget% --execution marker -a --duration $duration -o windows-$budget
done

# ---- a recorder that is killed in the middle
"${lttng[@]}" --overhead 20% -a -o killed >killed.txt 2>&1 &
recorder=$!
sleep 20
kill -KILL $recorder
wait $recorder
try clean critpath doctor --clean
kill $steady
wait $steady
left clean
