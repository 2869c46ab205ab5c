// A server of one thread: each request computes, for longer once a file is there.
const fs = require("fs");
const http = require("http");

function hashPassword(times) {
  let found = 1;
  for (let i = 0; i < times; i++) found = (found * 48271 + i) % 2147483647;
  return found;
}

http
  .createServer((asked, answer) => {
    const found = hashPassword(fs.existsSync(process.argv[3]) ? 1.5e6 : 1e5);
    answer.setHeader("Content-Length", 2);
    answer.end(found < 0 ? "no" : "ok");
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
