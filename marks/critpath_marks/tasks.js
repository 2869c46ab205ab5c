// Which request Node.js works for, told to a recording that asks: node --require tasks.js.
// As tasks.py does: changes are noted in memory, some fifty go out as one mark.  Nothing is followed
// before a recording asks; then async_hooks say which callback runs, and an AsyncLocalStorage which
// request it was made for.
"use strict";
const fs = require("fs");
const path = require("path");
const { AsyncLocalStorage, AsyncResource, createHook } = require("async_hooks");
const { isMainThread } = require("worker_threads");

const PLACE = "/run/critpath-marks";
const INSTANCES = "/sys/kernel/tracing/instances";
const MOST = 55; // changes in a mark: tracers cut what is longer than 1024 bytes
const FLUSH_MS = 100, LOOK_MS = 250;

const storage = new AsyncLocalStorage();
const times = new BigUint64Array(MOST), numbers = new Uint32Array(MOST);
const outer = []; // whom those ran for that are interrupted
let noted = 0, running = 0, last = 0, telling = null, files = [];

function note(number) {
    if (number === running) return;
    running = number;
    times[noted] = process.hrtime.bigint();
    numbers[noted++] = number;
    if (noted === MOST) tell();
}

function tell() {
    if (!noted) return;
    const data = Buffer.alloc(12 * noted);
    for (let i = 0; i < noted; i++) {
        data.writeBigUInt64LE(times[i], 12 * i);
        data.writeUInt32LE(numbers[i], 12 * i + 8);
    }
    noted = 0;
    const mark = `critpath:tasks ${process.pid} ${data.toString("base64")}\n`;
    for (const file of files) {
        let opened = -1;
        try {
            opened = typeof file === "number" ? file : fs.openSync(file, "a");
            fs.writeSync(opened, mark);
        } catch { // it takes no more: the next look sees it
        } finally {
            if (opened >= 0 && opened !== file) fs.closeSync(opened);
        }
    }
}

const hook = createHook({
    before() {
        outer.push(running);
        note(storage.getStore() || 0);
    },
    after() {
        note(outer.pop() || 0);
    },
});

function works(file) {
    try {
        fs.accessSync(file, fs.constants.W_OK);
        return true;
    } catch {
        return false;
    }
}

function find() {
    const env = process.env;
    if (env.CRITPATH_TASKS) {
        const inherited = Number(env.CRITPATH_MARKER_FD || "x");
        try {
            if (fs.readlinkSync(`/proc/self/fd/${inherited}`).endsWith("/trace_marker"))
                return [inherited];
        } catch { // closed, or none
        }
        if (env.CRITPATH_MARKER && works(env.CRITPATH_MARKER)) return [env.CRITPATH_MARKER];
    }
    let asking = [];
    try {
        asking = fs.readdirSync(PLACE).filter((name) => name.endsWith(".tasks"));
    } catch { // nobody records
    }
    return asking.map((name) => name.slice(0, -".tasks".length)).flatMap((session) =>
        [INSTANCES, PLACE].map((place) => path.join(place, session, "trace_marker"))
            .filter(works).slice(0, 1));
}

function look() {
    const found = find();
    if (!found.length && files.length) {
        tell();
        hook.disable();
        clearInterval(telling);
        outer.length = noted = running = 0;
    }
    if (found.length && !files.length) {
        hook.enable();
        telling = setInterval(tell, FLUSH_MS).unref();
    }
    files = found;
}

// A request's number goes wherever its promises, timers and callbacks do.
function begins(prototype, event) {
    const emit = prototype.emit;
    prototype.emit = function (name, ...rest) {
        if (name !== event || !files.length) return emit.call(this, name, ...rest);
        last = (last + 1) & 0x7fffffff || 1;
        const before = running;
        note(last);
        try {
            return storage.run(last, () => emit.call(this, name, ...rest));
        } finally {
            note(before);
        }
    };
}

// What comes over a connection is no more its who opened it.
function forgets(prototype, name) {
    const connect = prototype[name];
    prototype[name] = function (...rest) {
        return files.length ? storage.exit(() => connect.apply(this, rest)) : connect.apply(this, rest);
    };
}

// Who waits for a connection goes on as itself, not as who gave it back.
function binds(Pool) {
    const connect = Pool.prototype.connect;
    Pool.prototype.connect = function (done) {
        return connect.call(this, done && files.length ? AsyncResource.bind(done) : done);
    };
    return Pool;
}

if (isMainThread) {
    begins(require("http").Server.prototype, "request");
    begins(require("https").Server.prototype, "request");
    forgets(require("net").Socket.prototype, "connect");
    const Module = require("module"), load = Module._load, bound = new Set();
    Module._load = function (name, ...rest) {
        const found = load.call(this, name, ...rest);
        if (name === "pg-pool" && !bound.has(found)) bound.add(binds(found));
        return found;
    };
    look();
    setInterval(look, LOOK_MS).unref();
    process.on("exit", tell);
}
