// The page's data: an index, and of every execution an element parsed when it is looked at.
const data = JSON.parse(find("#data").textContent);
const executions = new Map(data.executions.map((one) => [one.position, one]));

const digit = new Int16Array(128).fill(-1);
[...data.alphabet].forEach((letter, i) => { digit[letter.charCodeAt(0)] = i; });
const BASE = data.alphabet.length;

// As report/html/page_data.py packs them: -1 is a gap.
const unpackSymbols = (text) => Int16Array.from(text, (letter) => {
  const code = letter.charCodeAt(0);
  return code < 128 ? digit[code] : code - 0x100 + BASE;
});

const unpack = (text, width, value) => {
  const result = new Float64Array(text.length / width);
  for (let i = 0, at = 0; i < result.length; i++) {
    let level = 0;
    for (let k = 0; k < width; k++) level = level * BASE + digit[text.charCodeAt(at++)];
    result[i] = level ? value(level - 1) : NaN;
  }
  return result;
};
const floating = (bits) => (level) => {
  const exponent = Math.max(0, Math.floor(level / 2 ** bits) - 1);
  const mantissa = level - exponent * 2 ** bits;
  return (mantissa + (exponent ? 0.5 : 0)) * 2 ** exponent;
};
const rough = floating(7), fine = floating(13), share = (level) => level / 7000;

const unroll = (runs) => {
  const result = [];
  for (let i = 0; i < runs.length; i += 2) {
    for (let k = 0; k < runs[i + 1]; k++) result.push(runs[i]);
  }
  return result;
};

// One row: symbols, durations (ns), and where each column begins on the row's own time.
class Row {
  constructor(name, symbols, durations, total, id) {
    this.id = id;
    this.name = (id ? "normal " : "") + name;
    this.packed = [symbols, durations];
    this.total = total;
  }

  open() {
    if (!this.packed) return this;
    const [symbols, durations] = this.packed;
    this.packed = null;
    this.symbols = unpackSymbols(symbols);
    this.durations = typeof durations === "string" ? unpack(durations, 2, rough) : Float64Array.from(durations);
    this.starts = new Float64Array(this.durations.length + 1);
    this.durations.forEach((ns, i) => { this.starts[i + 1] = this.starts[i] + ns; });
    return this;
  }
}

// The data of one aligned execution, null where the page has none.
const opened = new Map();
const load = (position) => {
  if (opened.has(position)) return opened.get(position);
  const element = executions.has(position) ? find("#d" + position) : null;
  if (!element) return null;
  const one = JSON.parse(element.textContent);
  one.position = position;
  one.anomaly = new Row("this execution", one.symbols, one.durations).open();
  one.anomaly.total = one.anomaly.starts.at(-1);
  one.group = one.rows.map((row) => new Row(row.name ?? row.id, row.symbols, row.durations, row.total, row.id));
  one.mean = unpack(one.mean, 3, fine);
  one.common = new Row("most of " + one.normals, one.usual, "").open();
  one.common.durations = one.mean;
  one.probability = unpack(one.probability, 2, share);
  one.begin = BigInt(one.begin);
  one.epoch = BigInt(one.epoch);
  const { symbols, starts } = one.anomaly;
  const columns = one.segments.length ? one.segments : [...symbols.keys()].filter((i) => symbols[i] >= 0);
  const who = unroll(one.who), cpus = unroll(one.cpus), what = unroll(one.what);
  one.steps = columns.map((column, i) => ({
    column, at: one.at.length ? one.at[i] : starts[column], ns: one.anomaly.durations[column],
    thread: one.threads[who[i]], kin: one.kin[who[i]], cpu: cpus[i], detail: one.details[what[i]],
  }));
  one.changes = new Map(one.changes);
  one.stepAt = new Map(one.steps.map((step, i) => [step.column, i]));
  opened.set(position, one);
  return one;
};
