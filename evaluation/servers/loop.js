// One loop with a pool of connections to Redis: node loop.js PORT CONNECTIONS REDIS_PORT TRUTH.
// Rows of TRUTH are as in pool.c; every request makes two sub-requests, one after the other.
const fs = require("fs"), http = require("http"), net = require("net");

const [port, count, redis, place] = process.argv.slice(2);
const truth = fs.openSync(place, "a");
const free = [], waiting = [];

function done(socket) {
    const next = waiting.shift();
    if (next) next(socket);
    else free.push(socket);
}
for (let i = 0; i < Number(count); i++) {
    const socket = net.connect(Number(redis), "127.0.0.1", () => done(socket));
    socket.setNoDelay(true);
    socket.on("data", () => socket.answered());
}

function query(text) {
    return new Promise((resolve) => {
        const ask = (socket) => {
            const begin = process.hrtime.bigint();
            socket.answered = () => {
                resolve(`${socket.localPort}:${begin}:${process.hrtime.bigint()}`);
                done(socket);
            };
            socket.write(text);
        };
        const socket = free.shift();
        if (socket) ask(socket);
        else waiting.push(ask);
    });
}

function spin(rounds) {
    let x = 0;
    for (let i = 0; i < rounds; i++) x = (x * 31 + i) | 0;
    return x;
}

http.createServer(async (request, response) => {
    const begin = process.hrtime.bigint();
    const id = Number(new URL(request.url, "http://x").searchParams.get("id"));
    spin(50000);
    const first = await query(`INCR n${id % 50}\r\n`);
    spin(100000);
    const second = await query(`INCR n${id % 50}\r\n`);
    const peer = request.socket.remotePort;
    response.end(`${id}\n`);
    const row = [id, process.pid, begin, process.hrtime.bigint(), peer, first, second];
    fs.writeSync(truth, row.join(" ") + "\n");
}).listen(Number(port), "127.0.0.1");
