// One loop with a pool of connections to Redis: node loop.js PORT CONNECTIONS REDIS_PORT TRUTH.
// Rows of TRUTH are as in pool.c; every request makes two sub-requests, one after the other.
const fs = require("fs"), http = require("http"), pooled = require("./pooled.js");

const [port, count, redis, place] = process.argv.slice(2);
const truth = fs.openSync(place, "a");
const query = pooled.open(Number(count), Number(redis));

http.createServer(async (request, response) => {
    const begin = process.hrtime.bigint();
    const id = Number(new URL(request.url, "http://x").searchParams.get("id"));
    pooled.spin(50000);
    const first = await query(`INCR n${id % 50}\r\n`);
    pooled.spin(100000);
    const second = await query(`INCR n${id % 50}\r\n`);
    const peer = request.socket.remotePort;
    response.end(`${id}\n`);
    const row = [id, process.pid, begin, process.hrtime.bigint(), peer, first, second];
    fs.writeSync(truth, row.join(" ") + "\n");
}).listen(Number(port), "127.0.0.1");
