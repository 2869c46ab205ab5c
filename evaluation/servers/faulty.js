// The Node.js server of faults.py: node faulty.js PORT POSTGRES_PORT; FAULT is what is wrong.
const crypto = require("crypto"), http = require("http"), pg = require("pg");

const [port, postgres] = process.argv.slice(2), fault = process.env.FAULT;
const many = fault === "pool" ? 2 : 8;
const pool = new pg.Pool({host: "127.0.0.1", port: Number(postgres), user: "postgres",
                          database: "postgres", max: many, min: many});
const query = (what) => pool.query(
    `select count(*) as ${what}, pg_sleep(0.006) from generate_series(1, 500)`);
const kinds = {
    "/order": () => query("orders"),
    "/carts": () => query("carts").then(() => query("orders")),
    "/stock": () => fault === "sync" ? crypto.pbkdf2Sync("a", "b", 40000, 64, "sha512")
        : fault === "pool" ? query("stocks")
        : new Promise((go) => crypto.pbkdf2("a", "b", 1000, 64, "sha512", go)),
};

http.createServer(async (request, response) => {
    await kinds[request.url.split("?")[0]]();
    response.end("ok\n");
}).listen(Number(port), "127.0.0.1");
