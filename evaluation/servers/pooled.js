// A pool of plain connections to Redis, which speaks lines: no client says over which one it asks.
const net = require("net");

exports.open = function (many, port) {
    const free = [], waiting = [];
    const done = (socket) => waiting.length ? waiting.shift()(socket) : free.push(socket);
    for (let i = 0; i < many; i++) {
        const socket = net.connect(port, "127.0.0.1", () => done(socket));
        socket.setNoDelay(true);
        socket.on("data", () => socket.answered());
    }
    // Asks once; returns PORT:BEGIN:END, as rows of the truth have it (pool.c).
    return (text) => new Promise((resolve) => {
        const ask = (socket) => {
            const begin = process.hrtime.bigint();
            socket.answered = () => {
                resolve(`${socket.localPort}:${begin}:${process.hrtime.bigint()}`);
                done(socket);
            };
            socket.write(text);
        };
        if (free.length) ask(free.shift());
        else waiting.push(ask);
    });
};

exports.spin = function (rounds) {
    let x = 0;
    for (let i = 0; i < rounds; i++) x = (x * 31 + i) | 0;
    return x;
};
