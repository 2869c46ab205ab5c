// node dials.js PERCENT [K]: eight requests that sort and count, 100 % is as it is (see dials.py)
const fs = require('fs');
const [percent, dialled] = [process.argv[2], process.argv[3] || 8].map(Number);
const fd = Number(process.env.CRITPATH_MARKER_FD || -1);
const mark = (w, key) => fd >= 0 && fs.writeSync(fd, `critpath:${w} list ${key}\n`);
const nap = (ms) => new Promise((done) => setTimeout(done, ms));
const all = Array.from({ length: 40000 }, (_, i) => (i * 7919) % 40009);
const answer = (size) => {
  const sorted = all.slice(0, size).sort((a, b) => a - b), seen = new Map();
  for (const x of sorted) seen.set(x % 101, (seen.get(x % 101) || 0) + 1);
  return JSON.stringify([...seen, ...sorted]).length;
};
(async () => {
  for (let key = -8; key < 8; key++) {
    const much = (key + 8) * 5 % 8 < dialled ? percent : 100;
    const size = Math.trunc(9000 * (0.85 + 0.1 * ((key + 8) % 4)) * much / 100);
    if (key >= 0) mark('begin', key);
    answer(size);
    if (key >= 0) mark('end', key);
    await nap(1);
  }
  process.exit(0);
})();
