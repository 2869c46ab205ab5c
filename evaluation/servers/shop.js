// Requests of three kinds, as `Shop` of apps.py, with npm's pg and redis of one pool each:
// node shop.js PORT POSTGRES_PORT REDIS_PORT TRUTH.  Rows of TRUTH are as in pool.c.
const fs = require("fs"), http = require("http"), net = require("net");
const pg = require("pg");

const [port, postgres, redis, place] = process.argv.slice(2);
const truth = fs.openSync(place, "a");
const pool = new pg.Pool({host: "127.0.0.1", port: Number(postgres), user: "postgres",
                          database: "postgres", max: 8, min: 8});

// Redis speaks lines: a pool of plain sockets, as no client says over which one it asks.
const free = [], waiting = [];
function done(socket) {
    const next = waiting.shift();
    if (next) next(socket);
    else free.push(socket);
}
for (let i = 0; i < 8; i++) {
    const socket = net.connect(Number(redis), "127.0.0.1", () => done(socket));
    socket.setNoDelay(true);
    socket.on("data", () => socket.answered());
}

function count(id) {
    return new Promise((resolve) => {
        const ask = (socket) => {
            const begin = process.hrtime.bigint();
            socket.answered = () => {
                resolve(`${socket.localPort}:${begin}:${process.hrtime.bigint()}`);
                done(socket);
            };
            socket.write(`INCR a${id % 10}\r\n`);
        };
        const socket = free.shift();
        if (socket) ask(socket);
        else waiting.push(ask);
    });
}

async function query(rows, id) {
    const client = await pool.connect();
    try {
        const begin = process.hrtime.bigint();
        const of = ["orders", "basket", "stocks"][id % 3];
        await client.query(`select count(*) as ${of} from generate_series(1, $1::int)`, [rows]);
        return `${client.connection.stream.localPort}:${begin}:${process.hrtime.bigint()}`;
    } finally {
        client.release();
    }
}

function spin(rounds) {
    let x = 0;
    for (let i = 0; i < rounds; i++) x = (x * 31 + i) | 0;
    return x;
}

http.createServer(async (request, response) => {
    const begin = process.hrtime.bigint();
    const id = Number(new URL(request.url, "http://x").searchParams.get("id"));
    const rows = 200 + id * 7919 % 3000;
    let asked;
    spin(50000);
    if (id % 3 === 0) asked = [await query(rows, id), await count(id)];
    else if (id % 3 === 1) asked = [await count(id), await count(id), await query(rows, id)];
    else {
        asked = [await query(rows, id)];
        spin(50000);
        asked.push(await query(rows, id));
    }
    const peer = request.socket.remotePort;
    response.end(`${id}\n`);
    const row = [id, process.pid, begin, process.hrtime.bigint(), peer, ...asked];
    fs.writeSync(truth, row.join(" ") + "\n");
}).listen(Number(port), "127.0.0.1");
