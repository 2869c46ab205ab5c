// Servers and clients of protocols that share a connection, or stream over it.
//
// node streams.js serve PORT MODE [CERT KEY]: h2 (HTTP/2 without TLS), h2s, http, https, ws, sse; a
// request waits up to 3 ms before its answer.
// node streams.js ask PORT CONNECTIONS REQUESTS MODE THINK_US OUTPUT STREAMS: rows of OUTPUT are as
// in client.c; STREAMS requests of a connection are under way at once. Of ws and sse a row is a
// stream: from what was asked until its last piece.
const crypto = require("crypto"), fs = require("fs"), http = require("http");
const http2 = require("http2"), https = require("https");

const PIECES = 8, PAUSE = 20;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const CHECKED = { rejectUnauthorized: false };

function frame(text) {
  return Buffer.concat([Buffer.from([0x81, text.length]), Buffer.from(text)]);
}

async function push(stream, wrap) {
  for (let i = 0; i < PIECES; i++) {
    await sleep(PAUSE);
    stream.write(wrap(`piece ${i}`));
  }
}

function serve(port, mode, cert, key) {
  const tls = cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};
  const answer = async (request, response) => {
    if (mode === "sse") {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      await push(response, (text) => `data: ${text}\n\n`);
      return response.end();
    }
    await sleep(Math.random() * 3);
    response.end("ok\n");
  };
  const made = {
    h2: () => http2.createServer(answer),
    h2s: () => http2.createSecureServer(tls, answer),
    https: () => https.createServer(tls, answer),
    http: () => http.createServer(answer),
    ws: () => http.createServer(answer),
    sse: () => http.createServer(answer),
  }[mode]();
  made.on("upgrade", (request, socket) => {
    const told = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    const accept = crypto.createHash("sha1").update(told).digest("base64");
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy());
    socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" +
      `Connection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    socket.on("data", () => push(socket, frame));
  });
  made.listen(Number(port), "127.0.0.1", 256);
}

function ask(port, connections, requests, mode, think, place, streams) {
  const output = fs.openSync(place, "w");
  let next = 0;
  const log = (id, local, begin) =>
    fs.writeSync(output, `${id} ${local} ${begin} ${process.hrtime.bigint()} 0\n`);
  const repeat = async (one) => {
    for (let id = next++; id < requests; id = next++) {
      await sleep(Math.random() * think / 1000);
      await one(id);
    }
  };

  function overHttp2() {
    const session = http2.connect(`${mode === "h2s" ? "https" : "http"}://127.0.0.1:${port}`, CHECKED);
    const one = (id) => new Promise((resolve) => {
      const begin = process.hrtime.bigint();
      const request = session.request({ ":path": `/?id=${id}` });
      request.on("end", () => { log(id, session.socket.localPort, begin); resolve(); });
      request.resume();
      request.end();
    });
    session.on("connect", async () => {
      await Promise.all(Array.from({ length: streams }, () => repeat(one)));
      session.close();
    });
  }

  function overHttp() {
    const of = mode === "https" ? https : http;
    const agent = new of.Agent({ keepAlive: true, maxSockets: 1, ...CHECKED });
    repeat((id) => new Promise((resolve) => {
      let begin, local;
      const request = of.get({ port, host: "127.0.0.1", path: `/?id=${id}`, agent }, (answer) => {
        answer.on("end", () => { log(id, local, begin); resolve(); });
        answer.resume();
      });
      request.on("socket", (socket) => {
        const go = () => { begin = process.hrtime.bigint(); local = socket.localPort; };
        if (socket.connecting) socket.once(mode === "https" ? "secureConnect" : "connect", go);
        else go();
      });
    })).then(() => agent.destroy());
  }

  function overWebSocket() {
    const key = crypto.randomBytes(16).toString("base64");
    const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": 13,
      "Sec-WebSocket-Key": key };
    http.get({ port, host: "127.0.0.1", path: "/", headers }).on("upgrade", (_, socket) => {
      repeat((id) => new Promise((resolve) => {
        const begin = process.hrtime.bigint();
        let pieces = 0;
        socket.on("data", (data) => {
          pieces += data.toString("latin1").split("piece").length - 1;
          if (pieces < PIECES) return;
          socket.removeAllListeners("data");
          log(id, socket.localPort, begin);
          resolve();
        });
        const text = Buffer.from(`ask ${id}`);  // masked by zeros
        socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), text]));
      })).then(() => socket.destroy());
    });
  }

  const way = { h2: overHttp2, h2s: overHttp2, ws: overWebSocket }[mode] || overHttp;
  for (let i = 0; i < connections; i++) way();
}

const [what, port, ...rest] = process.argv.slice(2);
if (what === "serve") serve(port, ...rest);
else {
  const [connections, requests, mode, think, output, streams] = rest;
  ask(Number(port), Number(connections), Number(requests), mode, Number(think), output,
    Number(streams || 1));
}
