// node kinds.js NAME a|b|c: asks nginx once or often, parses little or much, or hashes in the pool
const fs = require('fs'), http = require('http'), crypto = require('crypto');
const [what, side] = process.argv.slice(2), slow = side !== 'a', mild = side === 'c';
const fd = Number(process.env.CRITPATH_MARKER_FD || -1);
const mark = (w, name, key) => fd >= 0 && fs.writeSync(fd, `critpath:${w} ${name} ${key}\n`);
const nap = (ms) => new Promise((done) => setTimeout(done, ms));
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const get = () => new Promise((done) => http.get({ port: 8230, path: '/', agent }, (r) => {
  r.resume(); r.on('end', done);
}));
const text = JSON.stringify(Array.from({ length: mild ? 8000 : slow ? 24000 : 6000 }, (_, i) => ({ i, s: `x${i}` })));
const request = {
  async fetch() { for (let i = 0; i < (mild ? 3 : slow ? 12 : 1); i++) await get(); },
  async parse() { JSON.parse(text); },
  async pool() {
    await new Promise((done) => crypto.pbkdf2('a', 'b', mild ? 4000 : slow ? 12000 : 3000, 32, 'sha256', done));
  },
  async buffers() {
    const size = 4 << 20, b = slow ? Buffer.alloc(size) : (this.kept ??= Buffer.alloc(size));
    for (let k = 0; k < size; k += 4096) b[k] = 1;
  },
};
(async () => {
  for (let key = -3; key < 10; key++) {
    if (key >= 0) mark('begin', what, key);
    await request[what]();
    if (key >= 0) mark('end', what, key);
    await nap(2);
  }
  process.exit(0);
})();
