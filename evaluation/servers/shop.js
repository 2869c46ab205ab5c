// Requests of three kinds, as `Shop` of apps.py, with npm's pg and redis of one pool each:
// node shop.js PORT POSTGRES_PORT REDIS_PORT TRUTH.  Rows of TRUTH are as in pool.c.
const fs = require("fs"), http = require("http"), pg = require("pg"), pooled = require("./pooled.js");

const [port, postgres, redis, place] = process.argv.slice(2);
const size = Number(process.env.POOL || 8), truth = fs.openSync(place, "a");
const pool = new pg.Pool({host: "127.0.0.1", port: Number(postgres), user: "postgres",
                          database: "postgres", max: size, min: size});

const ask = pooled.open(size, Number(redis));
const count = (id) => ask(`INCR a${id % 10}\r\n`);

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

http.createServer(async (request, response) => {
    const begin = process.hrtime.bigint();
    const id = Number(new URL(request.url, "http://x").searchParams.get("id"));
    const rows = 200 + id * 7919 % 3000;
    let asked;
    pooled.spin(50000);
    if (id % 3 === 0) asked = [await query(rows, id), await count(id)];
    else if (id % 3 === 1) asked = [await count(id), await count(id), await query(rows, id)];
    else {
        asked = [await query(rows, id)];
        pooled.spin(50000);
        asked.push(await query(rows, id));
    }
    const peer = request.socket.remotePort;
    response.end(`${id}\n`);
    const row = [id, process.pid, begin, process.hrtime.bigint(), peer, ...asked];
    fs.writeSync(truth, row.join(" ") + "\n");
}).listen(Number(port), "127.0.0.1");
