# In the guest: a server that asks another one, recorded by LTTng, by system calls and packets.
files=$PWD
cd /out

python "$files/served.py" back 9001 &
back=$!
python "$files/served.py" serve 9000 9001 &
serve=$!
until python -c 'import socket; [socket.create_connection(("127.0.0.1", p)).close() for p in (9000, 9001)]' 2>/dev/null; do sleep 0.2; done

mkfifo /tmp/to-client
python "$files/served.py" ask 9000 4 80 truth.json </tmp/to-client >client.txt &
client=$!
exec 7>/tmp/to-client
until grep -q ready client.txt; do sleep 0.1; done

# The command lasts until all has been asked.
critpath record --recorder lttng --profile requests -n 1 -o requests -- sh -c '
  echo >/tmp/to-client; until grep -q asked client.txt; do sleep 0.05; done' >requests.txt 2>&1
echo $? >requests.code

echo >&7
exec 7>&-
wait $client
kill $back $serve
