// Draws the views, and after every selection counts and judges chance anew: what critpath/explore/
// does, in the same order. Without it the page has the answer, the conditions and the slowest
// (views.py).
const words = data.words;

const n = data.n;
const label = decode(data.label);
const recording = decode(data.recording);
const parent = Int32Array.from(decode(data.parent), (row) => row - 1);
const children = new Map();
parent.forEach((above, row) => { if (above >= 0) children.set(above, [...(children.get(above) ?? []), row]); });
const begin = Float64Array.from(decode(data.begin));
for (let row = 1; row < n; row++) begin[row] += begin[row - 1];
const facts = new Map();
for (const fact of data.facts) {
  fact.values = decode(fact.values);
  if (fact.rows) fact.rows = decode(fact.rows);
  if (fact.valid) fact.valid = decode(fact.valid);
  facts.set(fact.name, fact);
}
const latency = facts.get("latency").values;
facts.set("begin", {
  name: "begin", kind: "time", each: false, known: true, asked: false, family: "", subject: "",
  list: "begin {v} or more", head: "began at {v} or later", values: begin,
});
// A trace's id leads to the tracing UI, if the settings name one.
const traces = facts.get("trace_id");
const traceOf = (row) => traces?.words[traces.values[row]] ?? "";
const traceLink = (row) => {
  const id = traceOf(row);
  if (!data.trace || !/^[0-9a-f]{32}$/.test(id)) return [];
  const link = document.createElement("a");
  link.href = data.trace.replace("{trace_id}", id);
  link.rel = "noreferrer noopener";
  link.className = "trace";
  link.title = id;
  link.textContent = "trace";
  return [" ", link];
};
const idOf = (row) => data.ids?.[row] ?? `#${row}`;

// Text: as text/exploring.py and units.py have it.
const even = (value, digits) => {
  const scaled = Math.abs(value) * 10 ** digits;
  const floor = Math.floor(scaled);
  if (scaled - floor !== 0.5) return value.toFixed(digits);
  return (Math.sign(value) * (floor + (floor % 2)) / 10 ** digits).toFixed(digits);
};
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
const formatTime = (ns) => {
  for (const [scale, unit] of UNITS) {
    if (ns >= scale * 0.9995) {
      const value = ns / scale;
      return `${even(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
    }
  }
  return `${even(ns, 0)} ns`;
};
const brief = (ns) => {
  const [scale, unit] = UNITS.find(([least]) => ns >= least * 0.9995) ?? [1, "ns"];
  return `${Number((ns / scale).toPrecision(6))} ${unit}`;
};
const thousands = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
const numberText = (value) =>
  Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
const percent = (share) => {
  if (share > 0 && share < 0.005) return "<1 %";
  if (share > 0.995 && share < 1) return ">99 %";
  return `${Math.floor(share * 100 + 0.5)} %`;
};
const figure = (value) => {
  if (!Number.isFinite(value)) return "–";
  if (value < 1) return String(Number(value.toPrecision(2)));
  return value < 9.95 ? even(value, 1) : thousands(Math.floor(value + 0.5));
};
const chance = (p) => {
  if (p === null) return "–";
  if (p < 0.001) return "<.001";
  return p < 0.9995 ? even(p, 3).slice(1) : "1.00";
};
const say = (name, gaps = {}) =>
  words[name].replace(/\{([a-z0-9]+)\}/g, (_, gap) => String(gaps[gap] ?? ""));
const fill = (template, gaps) =>
  template.replace(/\{([a-z0-9]+)\}/g, (_, gap) => String(gaps[gap] ?? ""));
const isEach = (fact) => fact.each || fact.kind === "text";
const valueText = (fact, value) =>
  typeof value === "string" ? value || "(none)"
    : fact.kind === "time" ? formatTime(value) : numberText(value);
const phrase = (fact, value, template = fact.list) =>
  fill(template, {v: valueText(fact, value), s: fact.subject})
    .replace(/\b1 (?:separate )?times or more/, "at least once");
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const exact = (fact, value) => {
  if (fact.kind !== "time") return String(value);
  if (!Number.isInteger(value)) return `${value}ns`;
  if (value % 1e6 === 0) return `${value / 1e6}ms`;
  return value % 1e3 === 0 ? `${value / 1e3}us` : `${value}ns`;
};
const fieldText = (name) => (/^[A-Za-z_][\w.@#:/*+-]*$/.test(name) ? name : `\`${name}\``);
const literal = (fact, value) =>
  Array.isArray(value) ? `[${value.map((v) => literal(fact, v)).join(", ")}]`
    : typeof value === "string" ? quoted(value)
      : typeof value === "object" ? `p${value.p}` : exact(fact, value);
const commandOf = (tree) => {
  if (tree.s) return tree.s;
  if (tree.f) return `${fieldText(tree.f)} ${tree.o} ${literal(facts.get(tree.f), tree.v)}`;
  const parts = tree.l.map((part) => (part.f ? commandOf(part) : `(${commandOf(part)})`));
  if (tree.k === "not") return `not ${parts[0]}`;
  if (tree.k === "any") return `any(${commandOf(tree.l[0])})`;
  return parts.join(` ${tree.k} `);
};
const axisWords = (name) => data.axes[name] ?? name;
const boxOf = (tree) => {
  // What a rectangle makes: bounds of begin and of what stands on the vertical axis.
  if (tree.k !== "and" || !tree.l.every((t) => t.f && typeof t.v === "number")) return null;
  const box = {};
  for (const {f, o, v} of tree.l) {
    if (f !== "begin" && box.y && box.y !== f) return null;
    if (f === "begin") box[o === ">=" ? "from" : "to"] = v;
    else [box.y, box[o === ">=" ? "lo" : "hi"]] = [f, v];
  }
  return box.y && box.from !== undefined && box.to !== undefined && box.hi !== undefined ? box : null;
};
const wordsOf = (tree) => {
  if (tree.w) return tree.w;
  if (tree.f) {
    const fact = facts.get(tree.f);
    const simple = typeof tree.v === "string" || typeof tree.v === "number";
    if (simple && tree.o === (isEach(fact) ? "==" : ">=")) return phrase(fact, tree.v);
    return commandOf(tree);
  }
  const box = boxOf(tree);
  if (box) {
    return say("box", {
      y: axisWords(box.y), lo: formatTime(box.lo ?? 0), hi: formatTime(box.hi),
      from: formatTime(box.from), to: formatTime(box.to),
    });
  }
  if (tree.k === "not") return say("not", {condition: wordsOf(tree.l[0])});
  if (tree.k === "or") {
    return tree.l.map(wordsOf).reduce((a, b) => say("or", {one: a, other: b}));
  }
  if (tree.k === "any" && tree.l[0].k === "and") {
    const [who, low, high] = tree.l[0].l;
    if (high && Array.isArray(who.v)) {
      const gaps = {lo: formatTime(low.v), hi: formatTime(high.v)};
      if (who.v.length === 1) return say("thread", {...gaps, k: `\`${who.v[0]}\``});
      return say("threads", {...gaps, k: who.v.length});
    }
  }
  if (tree.k === "and" && tree.l.length === 2 && tree.l[1].k === "not") {
    return say("without", {one: wordsOf(tree.l[0]), other: wordsOf(tree.l[1].l[0])});
  }
  if (tree.k === "and") return tree.l.map(wordsOf).reduce((a, b) => say("and", {one: a, other: b}));
  return commandOf(tree);
};

// Conditions.
const quantiles = (values, shares) => {
  const sorted = Float64Array.from(values).sort();
  const last = sorted.length - 1;
  return shares.map((share) => (last < 0 ? NaN : sorted[Math.min(last, Math.floor(share * (last + 1)))]));
};
const quantile = (values, share) => quantiles(values, [share])[0];
const holding = (fact, test) => {
  const result = new Uint8Array(n);
  const {values} = fact;
  for (let at = 0; at < values.length; at++) {
    const row = fact.rows ? fact.rows[at] : at;
    if (fact.valid && !fact.valid[row]) continue;
    if (test(values[at])) result[row] = 1;
  }
  return result;
};
const boundOf = (tree, fact, within) => {
  if (typeof tree.v === "number") return tree.v;
  const values = [];
  for (let at = 0; at < fact.values.length; at++) {
    const row = fact.rows ? fact.rows[at] : at;
    if (within[row] && (!fact.valid || fact.valid[row])) values.push(fact.values[at]);
  }
  return quantile(values, tree.v.p / 100);
};
const evaluateTest = (tree, within) => {
  const fact = facts.get(tree.f);
  const operator = tree.o === "!=" ? "==" : tree.o;
  let found;
  if (fact.kind === "text") {
    const wanted = new Set(operator === "in" ? tree.v : [tree.v]);
    const fits = fact.words.map((word) => wanted.has(word));
    found = holding(fact, (code) => fits[code]);
  } else if (operator === "in") {
    const wanted = new Set(tree.v);
    found = holding(fact, (value) => wanted.has(value));
  } else {
    const bound = boundOf(tree, fact, within);
    found = holding(fact, {
      "==": (v) => v === bound, "<": (v) => v < bound, "<=": (v) => v <= bound,
      ">": (v) => v > bound, ">=": (v) => v >= bound,
    }[operator]);
  }
  return tree.o === "!=" ? found.map((x) => 1 - x) : found;
};
const evaluate = (tree, within) => {
  if (tree.f) return evaluateTest(tree, within);
  const parts = tree.l.map((part) => evaluate(part, within));
  if (tree.k === "not") return parts[0].map((x) => 1 - x);
  if (tree.k === "any") {
    const result = parts[0].slice();
    let rows = [...result.keys()].filter((row) => result[row]);
    while (rows.length) {
      rows = [...new Set(rows.map((row) => parent[row]))].filter((row) => row >= 0 && !result[row]);
      for (const row of rows) result[row] = 1;
    }
    return result;
  }
  const result = parts[0].slice();
  for (const part of parts.slice(1)) {
    for (let row = 0; row < n; row++) {
      result[row] = tree.k === "and" ? result[row] & part[row] : result[row] | part[row];
    }
  }
  return result;
};
const testsOf = (tree) => (tree.f ? [tree] : tree.l.flatMap(testsOf));
// A condition of a link is trusted no more than a name.
const OPERATORS = new Set(["==", "!=", "<", "<=", ">", ">=", "in"]);
const check = (tree, depth = 0) => {
  if (depth > 32 || !tree || typeof tree !== "object") throw new Error("no condition");
  if (typeof tree.f === "string") {
    const fact = facts.get(tree.f);
    if (!fact || !OPERATORS.has(tree.o)) throw new Error("no such condition");
    const listed = tree.o === "in" ? tree.v : [tree.v];
    if (!Array.isArray(listed) || listed.length > 1000) throw new Error("no list");
    for (const value of listed) {
      const fits = fact.kind === "text" ? typeof value === "string"
        : Number.isFinite(value) || (tree.o !== "in" && Number.isFinite(value?.p));
      if (!fits) throw new Error("no value of it");
    }
    return {f: tree.f, o: tree.o, v: tree.v};
  }
  if (!["and", "or", "not", "any"].includes(tree.k) || !Array.isArray(tree.l)) {
    throw new Error("no condition");
  }
  if (!tree.l.length || tree.l.length > 64) throw new Error("too many");
  return {k: tree.k, l: tree.l.map((part) => check(part, depth + 1))};
};

// Figures: as explore/ranking.py.
const Z = 1.959963984540054;
const FEWEST = 40;
const LEAST = 10;
const wilson = (count, of) => {
  const square = Z * Z;
  const middle = (count + square / 2) / (of + square);
  const half = (Z * Math.sqrt((count * (of - count)) / of + square / 4)) / (of + square);
  return {count, of, share: count / of, low: Math.max(0, middle - half), high: Math.min(1, middle + half)};
};
const logRatio = (a1, n1, a0, n0) => {
  const a = a1 + 0.5;
  const b = a0 + 0.5;
  const ratio = a / (n1 + 1) / (b / (n0 + 1));
  const wide = Z * Math.sqrt(1 / a - 1 / (n1 + 1) + 1 / b - 1 / (n0 + 1));
  return [ratio, ratio * Math.exp(-wide), ratio * Math.exp(wide)];
};
const bitsOf = (count) => {
  count -= (count >>> 1) & 0x55555555;
  count = (count & 0x33333333) + ((count >>> 2) & 0x33333333);
  return (((count + (count >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
};
const common = (left, right) => {
  let found = 0;
  for (let word = 0; word < left.length; word++) found += bitsOf(left[word] & right[word]);
  return found;
};
const orderRows = (within, selected) => {
  // A label's executions of one recording are a group, in order of begin; where all or none of
  // every recording are selected, everything is one.
  const rows = [...within.keys()].filter((row) => within[row]);
  const seen = new Map();
  for (const row of rows) {
    seen.set(recording[row], (seen.get(recording[row]) ?? 0) | (selected[row] ? 2 : 1));
  }
  const whole = seen.size > 1 && ![...seen.values()].includes(3);
  const key = (row) => (whole ? 0 : recording[row] * (data.labels.length + 1) + label[row]);
  rows.sort((a, b) => key(a) - key(b) || recording[a] - recording[b] || begin[a] - begin[b] || a - b);
  const lengths = [];
  rows.forEach((row, at) => {
    if (at && key(row) === key(rows[at - 1])) lengths[lengths.length - 1]++;
    else lengths.push(1);
  });
  return {rows, lengths};
};
const CUTS = [0.25, 0.5, 0.75, 0.9];
// Who has a value: a condition is compared within these.
const domainOf = (fact, rows) => {
  const bits = new Int32Array(Math.ceil(rows.length / 32));
  let size = 0;
  rows.forEach((row, at) => {
    if (!fact?.valid || fact.valid[row]) { bits[at >> 5] |= 1 << (at & 31); size++; }
  });
  return {bits, size, key: bits.join()};
};
const candidatesOf = (rows, used, families) => {
  const inverse = new Int32Array(n).fill(-1);
  rows.forEach((row, at) => { inverse[row] = at; });
  const found = [];
  const everyone = domainOf(null, rows);
  const domains = new Map([[everyone.key, everyone]]);
  let rare = 0;
  for (const fact of facts.values()) {
    if (!fact.asked) continue;
    const values = [];
    const places = [];
    for (let at = 0; at < fact.values.length; at++) {
      const row = fact.rows ? fact.rows[at] : at;
      if (inverse[row] < 0 || (fact.valid && !fact.valid[row])) continue;
      values.push(fact.values[at]);
      places.push(inverse[row]);
    }
    if (!values.length) continue;
    const part = used.has(fact.name) || (fact.family !== "" && families.has(fact.family));
    const own = fact.valid ? domainOf(fact, rows) : everyone;
    if (!domains.has(own.key)) domains.set(own.key, own);
    const domain = domains.get(own.key);
    const add = (value, members) => {
      const size = members.length;
      if (size < LEAST || size > domain.size - LEAST) { rare++; return; }
      const bits = new Int32Array(Math.ceil(rows.length / 32));
      for (const place of members) bits[place >> 5] |= 1 << (place & 31);
      found.push({fact, value, size, bits, part, domain, known: fact.known});
    };
    if (isEach(fact)) {
      const by = new Map();
      values.forEach((value, at) => {
        if (!by.has(value)) by.set(value, new Set());
        by.get(value).add(places[at]);
      });
      for (const value of [...by.keys()].sort((a, b) => a - b)) {
        add(fact.kind === "text" ? fact.words[value] : value, [...by.get(value)]);
      }
    } else {
      const least = values.reduce((a, b) => Math.min(a, b));
      const cuts = [...new Set(quantiles(values, CUTS))];
      for (const cut of cuts) {
        if (cut > least) add(cut, places.filter((_, at) => values[at] >= cut));
      }
    }
  }
  const order = [...found.keys()].sort((a, b) => found[b].size - found[a].size || a - b);
  const kept = order.slice(0, 400).sort((a, b) => a - b).map((at) => found[at]);
  return {kept, rare, leftOut: found.length - kept.length, domains: [...domains.values()]};
};
const ALIKE = 0.95;
const mergeAlike = (order, everyone) => {
  const kinds = [];
  for (const candidate of order) {
    let home = null;
    for (const kind of kinds) {
      const both = common(kind.first.bits, candidate.bits);
      const mine = candidate.size;
      const theirs = kind.first.size;
      const without = theirs - both;
      const among = kind.first.domain === candidate.domain ? candidate.domain.size : everyone;
      const beside = among - (mine - both);
      const opposite = without >= ALIKE * beside;
      if (both >= ALIKE * (mine + theirs - both) || opposite) {
        kind.members.push([candidate, opposite]);
        home = kind;
        break;
      }
    }
    if (!home) kinds.push({first: candidate, members: [[candidate, false]]});
  }
  return kinds.map(({members}) => {
    const known = members.some(([c]) => c.known);
    let [best, shown, flipped] = [-1];
    for (const [c, other] of members) {
      const rank = (c.known ? 2 : 0) + (c.z > 0 ? 1 : 0);
      if (rank > best) [best, shown, flipped] = [rank, c, other];
    }
    const also = members.filter(([c]) => c !== shown).map(([c, other]) => [c, other !== flipped]);
    return {...shown, isKnown: known, also};
  });
};
const heightOf = ({size, domain, scale}, found) => {
  const share = domain.chosen / domain.size;
  if (!domain.chosen || share === 1) return 0;
  const difference = found / size - (domain.chosen - found) / (domain.size - size);
  return (difference * scale) / Math.sqrt(share * (1 - share));
};
const rank = (state) => {
  const within = new Uint8Array(n).fill(1);
  const steps = [n];
  for (const step of state.given) {
    const holds = evaluate(step, within);
    for (let row = 0; row < n; row++) within[row] &= holds[row];
    steps.push(within.reduce((a, b) => a + b, 0));
  }
  const chosen = evaluate(state.what, within);
  for (let row = 0; row < n; row++) chosen[row] &= within[row];
  const {rows, lengths} = orderRows(within, chosen);
  const tests = testsOf(state.what);
  const used = new Set(tests.map((test) => test.f));
  const families = new Set(tests.map((test) => facts.get(test.f).family));
  const {kept, rare, leftOut, domains} = candidatesOf(rows, used, families);
  const total = rows.length;
  const selected = new Int32Array(Math.ceil(total / 32));
  let count = 0;
  rows.forEach((row, at) => {
    if (chosen[row]) { selected[at >> 5] |= 1 << (at & 31); count++; }
  });
  for (const domain of domains) domain.chosen = common(domain.bits, selected);
  for (const one of kept) {
    const a = common(one.bits, selected);
    const n1 = one.size;
    const n0 = one.domain.size - n1;
    const rest = one.domain.chosen - a;
    one.scale = 1 / Math.sqrt(1 / n1 + 1 / n0);
    one.z = heightOf(one, a);
    one.having = wilson(a, n1);
    one.without = wilson(rest, n0);
    one.ratio = logRatio(a, n1, rest, n0);
    one.p = null;
  }
  const judged = kept.filter((one) => !one.part);
  const order = [...judged].sort((a, b) => Math.abs(b.z) - Math.abs(a.z));
  const ranked = mergeAlike(order, total).sort((a, b) => Math.abs(b.z) - Math.abs(a.z));
  const part = kept.filter((one) => one.part).sort((a, b) => b.z - a.z);
  const isBound = state.what.f === "latency" && state.what.o === ">=";
  const bound = isBound ? boundOf(state.what, facts.get("latency"), within) : NaN;
  const enough = total >= FEWEST && count >= LEAST && count <= total - LEAST;
  return {
    within, chosen, steps, rows, lengths, ranked, part, judged, rare, leftOut, total, count, bound,
    domains, enough, shifts: 0,
  };
};
// Largest differences under circular shifts: as explore/shifts.py.
const STEP = 0.6180339887498949;
const shiftsOf = (lengths) => {
  const [first] = lengths;
  if (lengths.length === 1 && first - 1 <= 999) {
    return Array.from({length: first - 1}, (_, at) => [at + 1]);
  }
  const shares = Array.from({length: 999}, (_, at) => ((at + 1) * STEP) % 1);
  if (lengths.length === 1) {
    return shares.map((u) => [1 + Math.floor(u * (first - 1))]);
  }
  return shares.map((u) => lengths.map((length) => Math.floor(u * length)));
};
function* judge(found) {
  const shifts = shiftsOf(found.lengths);
  const {judged, total, domains} = found;
  const places = [];
  let first = 0;
  found.lengths.forEach((length, group) => {
    for (let at = 0; at < length; at++) {
      if (found.chosen[found.rows[first + at]]) places.push([first, length, at, group]);
    }
    first += length;
  });
  const turned = new Int32Array(Math.ceil(total / 32));
  const largest = new Float64Array(shifts.length);
  for (let s = 0; s < shifts.length; s++) {
    turned.fill(0);
    for (const [from, length, at, group] of places) {
      const place = from + ((at - shifts[s][group] + length) % length);
      turned[place >> 5] |= 1 << (place & 31);
    }
    let most = 0;
    for (const domain of domains) domain.chosen = common(domain.bits, turned);
    for (const one of judged) {
      const height = Math.abs(heightOf(one, common(one.bits, turned)));
      if (height > most) most = height;
    }
    largest[s] = most;
    yield (s + 1) / shifts.length;
  }
  for (const one of found.ranked) {
    const bound = Math.abs(one.z) - 1e-9;
    one.p = (1 + largest.reduce((sum, x) => sum + (x >= bound ? 1 : 0), 0)) / (shifts.length + 1);
  }
  found.shifts = shifts.length + 1;
}

// Elements: text is set, markup never.
const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const draw = (name, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const safe = (text) => text.replace(UNSAFE, "\ufffd");
// A sentence: names between backticks are code.
const rich = (text) => {
  const parts = [];
  let rest = safe(text);
  for (let found = /`([^`]+)`/.exec(rest); found; found = /`([^`]+)`/.exec(rest)) {
    parts.push(rest.slice(0, found.index), make("code", {}, found[1]));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, rest];
};
const cut = (name, most) => (name.length <= most ? name
  : `${name.slice(0, most >> 1)}…${name.slice(name.length - most + (most >> 1) + 1)}`);
const two = (value) => `${value.toFixed(2)}%`;
const scaleOf = (rows, values) => {
  let least = Infinity;
  let most = 0;
  for (const row of rows) {
    const value = values[row];
    if (value > 0) { least = Math.min(least, value); most = Math.max(most, value); }
  }
  if (!most) [least, most] = [1, 1];
  const low = least / 1.25;
  const high = most * 1.35;
  return {
    low, high,
    place: (v) => 100 - (100 * Math.log(Math.max(least, v) / low)) / Math.log(high / low),
    value: (share) => low * (high / low) ** (1 - share),
  };
};
const grid = (scale) => {
  const lines = [];
  const labels = [];
  for (let e = Math.floor(Math.log10(scale.low)); e <= Math.ceil(Math.log10(scale.high)); e++) {
    for (const digit of [1, 2, 5]) {
      const value = digit * 10 ** e;
      if (value < scale.low * 0.999 || value > scale.high * 1.001) continue;
      const y = scale.place(value);
      const ten = digit === 1;
      lines.push(draw("line", {class: ten ? "g1" : "g0", x1: 0, x2: "100%", y1: two(y), y2: two(y)}));
      if ((ten || scale.high / scale.low < 30) && y > 4) {
        labels.push(draw("text", {class: "yl", x: 4, y: two(y), dy: -3}, brief(value)));
      }
    }
  }
  return [lines, labels];
};
const stepOf = (most, ticks) => {
  for (let e = 0; e < 13; e++) {
    for (const digit of [1, 2, 5]) if (most / (digit * 10 ** e) <= ticks) return digit * 10 ** e;
  }
  return most;
};
const timeAxis = (most, length, ticks) => {
  const step = stepOf(most, ticks);
  const found = [];
  for (let value = 0; value < length; value += step) {
    const attributes = {x: two((100 * value) / most), y: 13, "text-anchor": value ? "middle" : "start"};
    found.push(draw("text", attributes, value ? brief(value) : "0"));
  }
  return found;
};

// State: steps to C1, C2, the vertical axis, sketches that are shown.
const parse = ({g, w, y}) => {
  if (!Array.isArray(g) || g.length > 64) throw new Error("no steps");
  const axis = typeof y === "string" && y in data.axes ? y : "latency";
  return {given: g.map((step) => check(step)), what: check(w), y: axis, shown: null, more: []};
};
const written = ({c, s, l}) => ({...check(c), s, w: l});
const start = {
  given: data.start.g.map(written), what: written(data.start.w), y: "latency", shown: null, more: [],
};
let state = start;
let history_ = [];
let found = rank(state);
let run = 0;
let every = false;
let sort = "";
let drawn = false;
const most = Math.max(1, begin.reduce((a, b) => Math.max(a, b), 0)) * 1.01;
const MANY = 5000;

const dot = (row, x, y, on) => draw("use", {
  href: `#m${label[row] % 3}`, class: `${on ? "p on" : "p"} w${label[row] % 7}`, x: two(x), y: two(y),
});
// More dots than can be told apart: cells of 4 by 4 px, by the logarithm of their number.
const cells = (svg, points) => {
  const {width, height} = svg.getBoundingClientRect();
  const by = new Map();
  for (const [x, y, on] of points) {
    const key = `${Math.floor((x / 100) * (width / 4))},${Math.floor((y / 100) * (height / 4))}`;
    const cell = by.get(key) ?? [0, 0];
    cell[0]++;
    cell[1] += on;
    by.set(key, cell);
  }
  return [...by].map(([key, [count, on]]) => {
    const [x, y] = key.split(",").map(Number);
    const depth = Math.min(4, 1 + Math.floor(Math.log2(count)));
    const kind = on * 2 >= count || (on && count < 4) ? "cell on" : "cell";
    return draw("rect", {class: `${kind} q${depth}`, x: x * 4, y: y * 4, width: 4, height: 4});
  });
};
const boxes = (scale) => {
  const drawnBoxes = [];
  const box = (tree, out) => {
    const kind = out ? "selbox nt" : "selbox";
    if (tree.k === "or") tree.l.forEach((part) => box(part, out));
    else if (tree.k === "and" && tree.l.length === 2 && tree.l[1].k === "not") {
      box(tree.l[0], out);
      box(tree.l[1].l[0], true);
    } else if (tree.f === state.y && tree.o === ">=") {
      const height = Math.min(100, Math.max(0, scale.place(boundOf(tree, facts.get(state.y), found.within))));
      drawnBoxes.push(draw("rect", {class: kind, x: 0, y: 0, width: "100%", height: two(height)}));
    } else {
      const found_ = boxOf(tree);
      if (!found_ || found_.y !== state.y) return;
      const top = Math.max(0, scale.place(found_.hi));
      const bottom = found_.lo === undefined ? 100 : scale.place(found_.lo);
      drawnBoxes.push(draw("rect", {
        class: kind, x: two((100 * found_.from) / most), y: two(top),
        width: two((100 * (found_.to - found_.from)) / most), height: two(Math.max(0, bottom - top)),
      }));
    }
  };
  box(state.what, false);
  return drawnBoxes;
};
const drawTime = () => {
  const {values} = facts.get(state.y);
  const scale = scaleOf(found.rows, values);
  const [lines, labels] = grid(scale);
  const points = found.rows.map((row) => [
    (100 * begin[row]) / most, scale.place(values[row]), found.chosen[row], row,
  ]);
  points.sort((a, b) => a[2] - b[2]);
  const marks = points.length > MANY ? cells(one("#v1"), points)
    : points.map(([x, y, on, row]) => dot(row, x, y, on));
  const ring = state.shown === null || !found.within[state.shown] ? [] : [draw("circle", {
    class: "ring", r: 7, cx: two((100 * begin[state.shown]) / most),
    cy: two(scale.place(values[state.shown])),
  })];
  one("#v1").replaceChildren(...lines, ...boxes(scale), ...marks, ...ring, ...labels);
  one("#a1").replaceChildren(...timeAxis(most, 0.97 * most, 6));
  return scale;
};
const family = () => {
  const seen = found.within.slice();
  const marked = found.chosen.slice();
  for (let depth = 0; depth < 64; depth++) {
    let changed = false;
    for (let row = 0; row < n; row++) {
      const above = parent[row];
      if (above < 0) continue;
      if (seen[above] && !seen[row]) { seen[row] = 1; changed = true; }
      if (marked[above] && !marked[row]) { marked[row] = 1; changed = true; }
    }
    if (!changed) break;
  }
  return [[...seen.keys()].filter((row) => seen[row]), marked];
};
const threadColumns = (rows) => {
  const thread = facts.get("thread");
  const by = new Map();
  for (const row of rows) {
    const key = label[row] * 1e6 + thread.values[row];
    if (!by.has(key)) by.set(key, []);
    by.get(key).push(row);
  }
  let columns = [...by.keys()].sort((a, b) => a - b).map((key) => ({
    label: Math.floor(key / 1e6), name: thread.words[key % 1e6], rows: by.get(key),
  }));
  if (columns.length > 12) {
    const labels = [...new Set(columns.map((column) => column.label))].slice(0, 12);
    columns = labels.map((code) => ({label: code, name: "", rows: rows.filter((row) => label[row] === code)}));
  }
  return columns;
};
let threads = {columns: [], scale: null};
const cell = (row, ...children) => row.appendChild(make("td", {class: "n"}, ...children));
const drawThreads = () => {
  const [rows, marked] = family();
  const scale = scaleOf(rows, latency);
  const columns = threadColumns(rows);
  threads = {columns, scale};
  const [lines, labels] = grid(scale);
  const width = 100 / Math.max(1, columns.length);
  const points = [];
  const medians = [];
  const names = [];
  const listed = [];
  columns.forEach((column, at) => {
    for (const row of column.rows) {
      const x = (at + 0.2 + 0.6 * ((row * 0.618034) % 1)) * width;
      points.push([x, scale.place(latency[row]), marked[row], row]);
    }
    const times = column.rows.map((row) => latency[row]);
    const middle = quantile(times, 0.5);
    const y = two(scale.place(middle));
    medians.push(draw("line", {class: "medl", x1: two((at + 0.14) * width), x2: two((at + 0.86) * width), y1: y, y2: y}));
    const short = cut(safe(column.name.split(" ").at(-1)), 12);
    names.push(draw("text", {x: two((at + 0.5) * width), y: 12, "text-anchor": "middle"}, short));
    const row = make("tr", {}, make("th", {scope: "row"}, make("code", {}, safe(column.name || data.labels[column.label]))));
    const count = column.rows.reduce((sum, place) => sum + marked[place], 0);
    cell(row, thousands(times.length));
    cell(row, formatTime(middle));
    cell(row, formatTime(quantile(times, 0.9)));
    cell(row, `${percent(count / times.length)} `, make("span", {}, `of ${thousands(times.length)}`));
    listed.push(row);
  });
  const groups = [...new Set(columns.map((column) => column.label))].flatMap((code) => {
    const places = [...columns.keys()].filter((at) => columns[at].label === code);
    const left = places[0] * width;
    const right = (places.at(-1) + 1) * width;
    return [
      draw("rect", {class: `grp w${code % 7}`, x: two(left + 0.6), width: two(Math.max(0.4, right - left - 1.2)), y: 18, height: 3}),
      draw("text", {x: two((left + right) / 2), y: 34, "text-anchor": "middle"}, safe(data.short[code] || "all")),
    ];
  });
  points.sort((a, b) => a[2] - b[2]);
  const marks = points.length > MANY ? cells(one("#v2"), points)
    : points.map(([x, y, on, row]) => dot(row, x, y, on));
  one("#v2").replaceChildren(...lines, ...marks, ...medians, ...labels);
  one("#a2").replaceChildren(...names, ...groups);
  one("#t2").replaceChildren(...listed);
};
const typicalOf = (rows) => {
  const parts = [];
  const cpus = facts.get("cpus");
  if (cpus) {
    const usual = quantile(rows.map((row) => cpus.values[row]), 0.5);
    parts.push(usual === 1 ? say("cluster.cpu") : say("cluster.cpus", {k: usual}));
  }
  const waits = facts.get("count.WAIT_CPU");
  if (waits) {
    const values = rows.map((row) => waits.values[row]);
    const [lo, hi] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    parts.push(say(lo === hi ? "cluster.wait" : "cluster.waits", {lo, hi}));
  }
  return parts.join(", ");
};
// Executions label by label in the order in which OPTICS visits them: a valley is a cluster.
const drawReach = () => {
  const [place, reach, type] = ["cluster.place", "cluster.reach", "cluster"].map((name) => facts.get(name));
  const has = (fact, row) => fact && (!fact.valid || fact.valid[row]);
  const rows = found.rows.filter((row) => has(place, row));
  one("#v3").toggleAttribute("hidden", !rows.length);
  rows.sort((a, b) => label[a] - label[b] || place.values[a] - place.values[b]);
  const height = (row) => (has(reach, row) ? reach.values[row] : NaN);
  const tallest = rows.reduce((most, row) => (height(row) > most ? height(row) : most), 0) || 1;
  // Neighbours in one pixel's width share a bar: the tallest, and selected if most of them are.
  const each = Math.max(1, Math.ceil(rows.length / 300));
  const bars = [];
  for (let at = 0; at < rows.length; at += each) {
    const some = rows.slice(at, at + each);
    const tall = some.reduce((most, row) => Math.max(most, Number.isNaN(height(row)) ? tallest : height(row)), 0);
    const on = some.filter((row) => found.chosen[row]).length * 2 >= some.length;
    const kind = has(type, some[0]) ? `t w${type.values[some[0]] % 7}` : "t none";
    const [x, width, share] = [(100 * at) / rows.length, (100 * some.length) / rows.length, (90 * tall) / tallest];
    bars.push(draw("rect", {class: kind, x: two(x), width: two(width), y: two(96 - share), height: two(share)}));
    if (on) bars.push(draw("rect", {class: "on", x: two(x), width: two(width), y: "96%", height: "4%"}));
  }
  one("#v3").replaceChildren(...bars);
};
const drawClusters = () => {
  drawReach();
  const fact = facts.get("cluster");
  const by = new Map();
  for (const row of found.rows) {
    const number = fact && (!fact.valid || fact.valid[row]) ? fact.values[row] : 0;
    if (!by.has(number)) by.set(number, []);
    by.get(number).push(row);
  }
  const own = facts.get("true")?.values;
  const waits = facts.get("time.WAIT_CPU")?.values;
  const listed = [...by].map(([number, rows]) => {
    const wait = rows.map((row) => waits?.[row] ?? 0);
    const mean = wait.reduce((a, b) => a + b, 0) / rows.length;
    const count = rows.reduce((sum, row) => sum + found.chosen[row], 0);
    return {
      number, rows, n: rows.length, share: count / rows.length, w: mean,
      sd: Math.sqrt(wait.reduce((a, b) => a + (b - mean) ** 2, 0) / rows.length),
      med: quantile(rows.map((row) => latency[row]), 0.5), tr: own && quantile(rows.map((row) => own[row]), 0.5),
    };
  });
  listed.sort((a, b) => (a.number === 0) - (b.number === 0) || b.share - a.share || a.number - b.number);
  if (sort && sort !== "sh") listed.sort((a, b) => (sort === "c" ? a.number - b.number : b[sort] - a[sort]));
  one("#t3").replaceChildren(...listed.map((cluster) => {
    const row = make("tr", cluster.n >= 10 && cluster.share > 0.2 ? {class: "chg"} : {});
    const name = cluster.number === 0 ? say("cluster.rest")
      : make("button", {class: "lk", type: "button", "data-cluster": cluster.number}, String(cluster.number));
    const told = data.types[cluster.number];
    row.append(make("th", {scope: "row"}, name, " ",
      make("span", {}, ...(told ? rich(told) : [typicalOf(cluster.rows)]))));
    cell(row, thousands(cluster.n));
    cell(row, formatTime(cluster.med));
    if (own) cell(row, formatTime(cluster.tr)).classList.add("opt");
    cell(row, `${formatTime(cluster.w)} `, make("span", {}, `± ${formatTime(cluster.sd)}`));
    row.append(make("td", {class: "mini"}, draw("svg", {class: "mb", "aria-hidden": "true"},
      draw("rect", {class: "b0", width: "100%", height: 9, y: 5}),
      draw("rect", {class: "b1", width: two(100 * cluster.share), height: 9, y: 5}))));
    cell(row, percent(cluster.share));
    return row;
  }));
};
// The list of conditions, and the answer.
const wordsFor = (one_) => phrase(one_.fact, one_.value);
const treeOf = (one_) => ({f: one_.fact.name, o: isEach(one_.fact) ? "==" : ">=", v: one_.value});
const timesText = (one_) => {
  const [middle, low, high] = one_.ratio;
  if (one_.z > 0 && !one_.without.count) {
    return [low > 1 ? say("times.least", {r: figure(low)}) : "–", say("never else")];
  }
  if (middle >= 1) return [say("times", {r: figure(middle)}), `${figure(low)}–${figure(high)}`];
  return [say("times.less", {r: figure(1 / middle)}), say("less often")];
};
const alsoText = (one_) => {
  if (!one_.also.length) return "";
  const [[other, flipped]] = [...one_.also].sort((a, b) => a[1] - b[1]);
  const condition = flipped ? say("not", {condition: wordsFor(other)}) : wordsFor(other);
  if (one_.also.length === 1) return say("also", {condition});
  return say("also.more", {condition, k: one_.also.length - 1});
};
const bars = (one_, largest) => {
  const scale = 97 / largest;
  const bar = (y, {share, low, high}, kind) => {
    const [l, h] = [two(low * scale), two(high * scale)];
    return [
      draw("rect", {class: kind, x: 0, y, width: two(Math.max(0.4, share * scale)), height: 8, rx: 1}),
      draw("line", {class: "ci", x1: l, x2: h, y1: y + 4, y2: y + 4}),
      draw("line", {class: "ci", x1: l, x2: l, y1: y + 2, y2: y + 6}),
      draw("line", {class: "ci", x1: h, x2: h, y1: y + 2, y2: y + 6}),
    ];
  };
  const said = `${percent(one_.having.share)} with, ${percent(one_.without.share)} without`;
  return draw("svg", {class: "db", role: "img", "aria-label": said},
    ...bar(3, one_.having, "b1"), ...bar(15, one_.without, "bg"));
};
const conditionRow = (one_, at, largest) => {
  const dull = found.enough && found.shifts && !(one_.p < 0.05);
  const row = make("tr", dull ? {class: "few"} : {});
  const named = make("button", {class: "lk cond", type: "button", "data-at": at}, ...rich(wordsFor(one_)));
  const not = make("button", {class: "notb needjs", type: "button", "data-not": at, "aria-label": "not these"}, "not");
  const head = make("th", {scope: "row"}, named, not);
  const also = alsoText(one_);
  if (also) head.append(make("small", {}, ...rich(also)));
  row.append(head, make("td", {class: "dbc"}, bars(one_, largest)));
  const of = ({of: count}) => make("span", {}, ` of ${thousands(count)}`);
  cell(row, make("b", {}, percent(one_.having.share)), of(one_.having), make("br"),
    make("i", {}, percent(one_.without.share)), of(one_.without));
  const [times, interval] = timesText(one_);
  cell(row, make("b", {}, times), make("br"), make("span", {}, interval));
  cell(row, found.enough && !found.shifts ? "…" : chance(one_.p));
  return row;
};
const isFinding = (one_) => one_.p !== null && one_.p < 0.05;
const drawList = () => {
  const done = found.shifts > 0;
  let listed = found.ranked.filter(isFinding);
  const findings = listed.length;
  if (!done) listed = found.ranked.slice(0, 8);
  if (!listed.length) listed = found.ranked.slice(0, 3);
  const groups = [["begin", listed.filter((x) => x.isKnown)], ["way", listed.filter((x) => !x.isKnown)]]
    .map(([name, some]) => [name, every ? some : some.slice(0, 4)]);
  const shown = groups.flatMap(([, some]) => some);
  const largest = Math.max(0.05, ...shown.flatMap((x) => [x.having.high, x.without.high]));
  const rows = [];
  for (const [name, some] of groups) {
    if (!some.length) continue;
    rows.push(make("tr", {class: "gh"}, make("th", {colspan: 5, scope: "colgroup"},
      make("b", {}, say(name)), " ", say(`${name}.more`, {one: data.noun}))));
    rows.push(...some.map((x) => conditionRow(x, found.ranked.indexOf(x), largest)));
  }
  one("#t4").replaceChildren(...rows);
  const left = findings - shown.length;
  const none = found.ranked.filter((x) => !isFinding(x)).length;
  const parts = done ? [
    ...(left > 0 ? [say("more", {k: left})] : []), say("no difference", {k: thousands(none)}),
    say("rare", {k: thousands(found.rare), least: LEAST}),
    ...(found.leftOut ? [say("left out", {k: thousands(found.leftOut)})] : []),
  ] : [];
  one("#none").textContent = parts.join(" · ");
  one("#more").hidden = !(done && (left > 0 || every));
  one("#more").textContent = every ? "Show fewer" : "Show all";
  const note = !found.enough ? say("note.few", {fewest: FEWEST, least: LEAST, noun: "of them"})
    : done ? say("note", {k: thousands(found.judged.length)}) : "";
  const often = done && history_.length >= 10 ? ` ${say("note.often", {k: history_.length})}` : "";
  one("#pnote").textContent = note + often;
  one("#part-head").textContent = say(Number.isNaN(found.bound) ? "part.other" : "part");
  const some = found.part.slice(0, 6)
    .map((x) => `${wordsFor(x)} (${percent(x.having.share)} of ${thousands(x.having.of)})`);
  one("#part").replaceChildren(...rich(some.join("; ") || say("none.part")));
};
const bestOf = () => {
  const findings = found.ranked.filter(isFinding).sort((a, b) => b.isKnown - a.isKnown);
  return findings.find((x) => x.z > 0) ?? findings[0];
};
const amongOf = (fact) => {
  if (!fact.valid?.some((known) => !known)) return "";
  return fact.subject ? say("among", {s: fact.subject}) : say("among.known");
};
const answer = () => {
  const labels = new Set(found.rows.map((row) => label[row]));
  const single = labels.size === 1 ? data.labels[[...labels][0]] : "";
  const slow = !Number.isNaN(found.bound);
  const gaps = {
    m: thousands(found.count), n: thousands(found.total), who: single ? `\`${single}\` ` : "",
    noun: data.nouns, which: say(slow ? "slow" : "selected"), fewest: FEWEST, least: LEAST,
    what: whatWords(),
  };
  if (!found.enough) return ["few", say("few", gaps), say("why.few", gaps), "", "inconclusive"];
  if (!found.shifts) return ["counting", say("counting", gaps), say("why.counting"), "", "counting"];
  const best = bestOf();
  if (!best) {
    const [first] = found.ranked;
    const why = first ? say("why.nothing", {
      k: thousands(found.judged.length), condition: wordsFor(first), p: even(first.p, 2),
    }) : say("why.nothing.none", gaps);
    return ["nothing", say("nothing", gaps), why, "", "ok"];
  }
  const {having, without, fact} = best;
  const amount = having.count === found.count ? "every" : having.count ? "some" : "none";
  const verb = phrase(fact, best.value, fact.head);
  const sentence = say(verb.startsWith("^") ? "found.subject" : "found", {
    ...gaps, amount: say(amount, {...gaps, a: thousands(having.count)}), verb: verb.replace(/^\^/, ""),
  });
  const take = slow ? say("take", {x: formatTime(found.bound)}) : say("are selected");
  const figures = {
    n1: thousands(having.of), n0: thousands(without.of), p1: percent(having.share), p0: percent(without.share), take,
    among: amongOf(fact),
  };
  const [ratio, low, high] = best.ratio;
  const never = !without.count;
  const why = best.z < 0
    ? say("why.less", {...figures, r: figure(1 / ratio), lo: figure(1 / high), hi: figure(1 / low)})
    : never ? say("why.never", {...figures, lo: figure(Math.max(1, low))})
      : say("why", {...figures, r: figure(ratio), lo: figure(low), hi: figure(high)});
  const large = best.z < 0 ? "" : never ? `≥${figure(Math.max(1, low))}×` : `${figure(ratio)}×`;
  // What fewer than half of them have they do not have in common.
  const chip = best.z < 0 ? "less" : 2 * having.count >= found.count ? "found" : "more";
  return [chip, sentence[0].toUpperCase() + sentence.slice(1), why, large, "slower"];
};
const drawAnswer = () => {
  const [name, sentence, why, large, kind] = answer();
  one("#chip").textContent = say(`chip.${name}`);
  one("#chip").className = `chip ${kind}`;
  one("#h").replaceChildren(...rich(sentence));
  one("#why").replaceChildren(...rich(why));
  one("#ratio").hidden = !large;
  one("#ratio b").textContent = large;
  one("#ratio span").textContent = large ? say("as often") : "";
};
// Sketches.
const sketched = (row) => Object.hasOwn(data.sketches, row);
const typical = (members) => {
  const rows = found.rows.filter((row) => members(row)).sort((a, b) => latency[a] - latency[b] || a - b);
  const middle = rows.length >> 1;
  const near = [...rows.keys()].sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle) || a - b);
  const at = near.find((place) => sketched(rows[place]));
  return at === undefined ? null : rows[at];
};
const sureOf = (row) => {
  const known = ["boundary", "attribution"].flatMap((name) => facts.get(name) ?? [])
    .map((fact) => fact.words[fact.values[row]]);
  return ["doubtful", "likely"].find((word) => known.includes(word)) ?? "";
};
const LANE = 44;
const HEAD = 22;
const LEAST_BAND = 0.7;
const nameOf = ([name, , , host]) => safe(host ? `${name}@${host}` : String(name));
const drawLink = ([from, to, at, sure = 1000, bound], tops, lanes, longest) => {
  const [top, bottom] = [tops[from] + (from < to ? 26 : 8), tops[to] + (from > to ? 26 : 8)];
  const left = (100 * at) / longest;
  const drawn = [];
  const titles = [];
  let kind = "ln";
  if (bound !== undefined) {
    kind += " far";
    const which = bound < 0 ? "unknown" : bound ? "bound" : "exact";
    titles.push(say(`crossing.${which}`, {one: nameOf(lanes[from]), other: nameOf(lanes[to]), bound: formatTime(bound)}));
    const wide = (100 * Math.max(bound, 0)) / longest;
    if (2 * wide >= LEAST_BAND) {
      const [low, high] = [Math.max(left - wide, 0), Math.min(left + wide, 100)];
      drawn.push(draw("rect", {
        class: "band", x: two(low), width: two(high - low), y: Math.min(top, bottom), height: Math.abs(top - bottom),
      }));
    }
    if (bound < 0) {
      drawn.push(draw("text", {class: "qm", x: two(left), y: Math.floor((top + bottom) / 2) + 4, dx: 4}, "?"));
    }
  }
  if (sure < 1000) {
    kind += " dashed";
    titles.push(say("inferred", {sure: `${Math.min(sure / 10, 99.9)} %`}));
  }
  const said = titles.length ? [draw("title", {}, titles.join("; "))] : [];
  const line = {class: kind, x1: two(left), x2: two(left), y1: top, y2: bottom, "marker-end": "url(#arrow)"};
  return [...drawn, draw("line", line, ...said)];
};
const drawSketch = (row, title, longest) => {
  const said = say("sketch", {
    one: data.noun, id: `\`${idOf(row)}\``, latency: formatTime(latency[row]), begin: formatTime(begin[row]),
  });
  if (!sketched(row)) {
    const none = say("sketch.none", {one: data.noun, k: Object.keys(data.sketches).length});
    return make("div", {class: "sk"}, make("p", {class: "lh"}, make("b", {}, title), " ", ...rich(`${said}. ${none}`), ...traceLink(row)));
  }
  const [lanes, stretches, leftOut, links] = data.sketches[row];
  const x = (value) => two((100 * value) / longest);
  const heads = lanes.map((lane, at) => (lane[3] && lane[3] !== lanes[at - 1]?.[3] ? lane[3] : ""));
  let above = 0;
  const tops = lanes.map((_, at) => LANE * at + HEAD * (above += heads[at] ? 1 : 0));
  const height = tops.at(-1) + LANE;
  const names = lanes.flatMap(([name, tid], at) => [
    ...(heads[at] ? [make("div", {class: "sn host"}, cut(safe(heads[at]), 24))] : []),
    make("div", {class: "sn"}, make("b", {}, cut(safe(String(name)), 24)), " ", make("span", {}, String(tid)))]);
  const step = stepOf(longest, 7);
  const lines = [];
  for (let value = step; value < longest; value += step) {
    lines.push(draw("line", {class: "g1", x1: x(value), x2: x(value), y1: 0, y2: "100%"}));
  }
  tops.forEach((top, at) => {
    if (heads[at]) lines.push(draw("line", {class: "hl", x1: 0, x2: "100%", y1: top - HEAD + 0.5, y2: top - HEAD + 0.5}));
  });
  const shown = stretches.map(([lane, doing, from, length, beneath]) => {
    const colour = lanes[lane][2];
    const kind = data.doings[doing];
    const did = data.doing[kind]
      + (beneath === undefined ? "" : say("beneath", {did: data.doing[data.doings[beneath]]}));
    return draw("rect", {
      class: "sg", fill: kind === "running" ? `var(--w${colour})` : `url(#${kind}${colour})`,
      stroke: kind === "shared" ? "none" : `var(--w${colour})`, x: x(from), y: tops[lane] + 8, height: 18,
      width: two(Math.max(0.06, (100 * length) / longest)),
    }, draw("title", {}, `${nameOf(lanes[lane])} ${did} ${formatTime(length)}`));
  });
  for (const link of links) shown.push(...drawLink(link, tops, lanes, longest));
  const sure = sureOf(row);
  if (sure === "doubtful") {
    const box = {fill: "url(#doubt)", x: 0, y: tops[0] + 4, width: x(latency[row]), height: 26};
    shown.push(draw("rect", box, draw("title", {}, say("doubtful"))));
  }
  const own = facts.get("true")?.values[row];
  const text = own < latency[row]
    ? say("true of", {true: formatTime(own), latency: formatTime(latency[row])}) : formatTime(latency[row]);
  const asked = (children.get(row) ?? []).map((child) => {
    const [first, last] = [begin[child] - begin[row], begin[child] - begin[row] + latency[child]].map(x);
    const low = tops[0] + 37;
    const line = (x1, x2, y1) => draw("line", {x1, x2, y1, y2: low});
    return draw("g", {class: `ask ${sure}`.trim()}, line(first, last, low), line(first, first, low - 4), line(last, last, low - 4),
      draw("title", {}, `${safe(data.labels[label[child]])} ${formatTime(latency[child])}`));
  });
  const more = leftOut ? ` (${say("lanes.more", {k: leftOut})})` : "";
  return make("div", {class: "sk"},
    make("p", {class: "lh"}, make("b", {}, title), " ", ...rich(said + more), ...traceLink(row)),
    make("div", {class: "skg"}, make("div", {class: "sns"}, ...names),
      draw("svg", {class: "sks", height, role: "img", "aria-label": `${title} ${lanes.length} threads, ${formatTime(latency[row])}`},
        ...lines, ...shown,
        ...asked, ...(own === undefined ? [] : [draw("rect", {class: "own", x: 0, y: tops[0] + 30, width: x(own), height: 4})]),
        draw("text", {class: "tl", x: x(latency[row]), y: tops[0] + 21, dx: 8}, text)),
      make("span"),
      draw("svg", {class: "axs", height: 18, "aria-hidden": "true"}, ...timeAxis(longest, longest, 7))));
};
const drawSketches = () => {
  const own = state.shown !== null && found.within[state.shown] ? state.shown : null;
  const first = own ?? typical((row) => found.chosen[row]);
  const second = typical((row) => !found.chosen[row]);
  const listed = [...new Set([first, second, ...state.more])].filter((row) => row !== null).slice(0, 5);
  const longest = 1.19 * Math.max(1, ...listed.map((row) => latency[row]));
  const title = (row) => row === own ? say(found.chosen[row] ? "chosen" : "chosen.others")
    : row === first ? say("typical") : row === second ? say("typical.others") : say("added");
  one("#v5").replaceChildren(...listed.map((row) => drawSketch(row, title(row), longest)));
};
const rowButton = (row) => make("button", {class: "lk", type: "button", "data-row": row}, safe(idOf(row)));
const chosenSlowest = () => found.rows.filter((row) => found.chosen[row])
  .sort((a, b) => latency[b] - latency[a] || a - b);
const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text
  : /'/.test(text) && /^[^"$`\\!]*$/.test(text) ? `"${text}"` : `'${text.replaceAll("'", "'\"'\"'")}'`);
const command = () => [
  data.call, ...state.given.map((step) => `  --given ${shell(commandOf(step))}`),
  `  --what ${shell(commandOf(state.what))}`,
].join(" \\\n");
const whatWords = () => {
  const {f, o, v} = state.what;
  if (!f || o !== ">=" || v.p === undefined) return wordsOf(state.what);
  const fact = facts.get(f);
  return phrase(fact, boundOf(state.what, fact, found.within));
};
const drawTrail = () => {
  const names = [say("all", {noun: data.nouns}), ...state.given.map(wordsOf)];
  const items = names.map((name, k) => make("li", {}, make("button", {class: "tr", type: "button", "data-k": k},
    ...rich(name), " ", make("b", {}, thousands(found.steps[k])))));
  items.push(make("li", {}, make("span", {class: "tr sel"}, ...rich(whatWords()), " ", make("b", {}, thousands(found.count)))));
  one("#trail").replaceChildren(...items);
};
const stopped = () => { one(".prog").hidden = true; };
const startJudging = () => {
  const mine = ++run;
  if (!found.enough) { stopped(); return; }
  const steps = judge(found);
  const bar = draw("rect", {width: 0, height: 3});
  one(".prog").replaceChildren(draw("svg", {}, bar));
  one(".prog").hidden = false;
  const go = () => {
    if (mine !== run) return;
    const from = performance.now();
    let now;
    do now = steps.next(); while (!now.done && performance.now() - from < 30);
    const share = now.done ? 1 : now.value;
    bar.setAttribute("width", `${100 * share}%`);
    one(".prog").setAttribute("aria-valuenow", Math.round(100 * share));
    if (now.done) { stopped(); drawList(); drawAnswer(); } else setTimeout(go);
  };
  setTimeout(go);
};
const drawViews = () => {
  drawTime();
  drawThreads();
  drawClusters();
  drawSketches();
  one("#t1").replaceChildren(...chosenSlowest().slice(0, 10).map((row) => {
    const line = make("tr", {}, make("th", {scope: "row"}, rowButton(row), ...traceLink(row)));
    cell(line, formatTime(begin[row]));
    cell(line, formatTime(latency[row]));
    return line;
  }));
};
const drawAll = () => {
  drawn = true;
  found = rank(state);
  drawViews();
  drawTrail();
  one("#n1").textContent = `${thousands(found.count)} of ${thousands(found.total)} selected`;
  one("#cmd").textContent = command();
  one("#y").value = state.y;
  one("#back").disabled = !history_.length;
  one("#live").textContent = say("announce", {m: found.count, n: found.total, noun: data.nouns});
  drawList();
  drawAnswer();
  startJudging();
};
const plain = (tree) => (tree.f ? {f: tree.f, o: tree.o, v: tree.v} : {k: tree.k, l: tree.l.map(plain)});
const link = () => {
  const text = JSON.stringify({g: state.given.map(plain), w: plain(state.what), y: state.y});
  history.replaceState(null, "", state === start ? "#" : `#${encodeURIComponent(text)}`);
};
const go = (changes) => {
  history_.push(state);
  state = {...state, shown: null, more: [], ...changes};
  every = false;
  link();
  drawAll();
};
const back = () => {
  if (!history_.length) return;
  state = history_.pop();
  link();
  drawAll();
};
const and = (tree, not) => go({given: [...state.given, not ? {k: "not", l: [tree]} : tree]});
const select = (tree, event) => go({
  what: event.shiftKey ? {k: "or", l: [state.what, tree]}
    : event.altKey ? {k: "and", l: [state.what, {k: "not", l: [tree]}]} : tree,
});
const show = (row, add) => {
  if (add && state.shown !== null) state = {...state, more: [...state.more, row].slice(-3)};
  else state = {...state, shown: row};
  drawTime();
  drawSketches();
};
const walk = (by) => {
  const rows = chosenSlowest();
  if (!rows.length) return;
  const at = state.shown === null ? (by > 0 ? -1 : 0) : rows.indexOf(state.shown);
  show(rows[(at + by + rows.length) % rows.length]);
};

// What one does: buttons, rectangles, keys.
const copy = () => {
  const failed = () => getSelection().selectAllChildren(one("#cmd"));
  if (!navigator.clipboard) return failed();
  navigator.clipboard.writeText(command()).then(() => toast("Copied as command line"), failed);
};
for (const id of ["#copy", "#copy2"]) one(id).addEventListener("click", copy);
one("#back").addEventListener("click", back);
one("#nx").addEventListener("click", () => walk(1));
one("#pv").addEventListener("click", () => walk(-1));
one("#more").addEventListener("click", () => { every = !every; drawList(); });
one("#y").addEventListener("change", (event) => {
  const y = event.target.value;
  const fact = facts.get(y);
  go({y, what: {f: y, o: ">=", v: quantile(found.rows.map((row) => fact.values[row]), 0.9)}});
});
// The static list has conditions as text: what is computed has the same order of the same ones.
const conditionAt = (button) => {
  const at = button.dataset.at ?? button.dataset.not;
  if (drawn && /^\d+$/.test(at ?? "")) return treeOf(found.ranked[Number(at)]);
  const text = button.dataset.c ?? button.dataset.not;
  const same = found.ranked.flatMap((x) => [x, ...x.also.map(([other]) => other)])
    .find((x) => commandOf(treeOf(x)) === text);
  return same ? treeOf(same) : null;
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const {row, k, cluster, o} = button.dataset;
  if (row !== undefined) {
    show(Number(row), event.shiftKey);
  } else if (k !== undefined) {
    if (Number(k) < state.given.length) go({given: state.given.slice(0, Number(k))});
  } else if (cluster !== undefined) and({f: "cluster", o: "==", v: Number(cluster)}, false);
  else if (o !== undefined) { sort = o; drawClusters(); }
  else if (button.classList.contains("cond") || button.classList.contains("notb")) {
    const tree = conditionAt(button);
    if (tree) and(tree, event.altKey || button.classList.contains("notb"));
  }
});
const drag = (svg, done, click) => {
  let from = null;
  let box = null;
  const at = (event) => {
    const area = svg.getBoundingClientRect();
    const share = (value, least, size) => Math.min(1, Math.max(0, (value - least) / size));
    return [share(event.clientX, area.left, area.width), share(event.clientY, area.top, area.height), area];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    from = at(event);
    svg.setPointerCapture(event.pointerId);
    box = draw("rect", {class: "drag"});
    svg.append(box);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = at(event);
    const set = (name, value) => box.setAttribute(name, `${100 * value}%`);
    set("x", Math.min(to[0], from[0]));
    set("y", Math.min(to[1], from[1]));
    set("width", Math.abs(to[0] - from[0]));
    set("height", Math.abs(to[1] - from[1]));
  });
  svg.addEventListener("pointerup", (event) => {
    if (!from) return;
    const to = at(event);
    const [a, b] = [from, to];
    from = null;
    box.remove();
    const small = Math.abs(a[0] - b[0]) * b[2].width < 5 && Math.abs(a[1] - b[1]) * b[2].height < 5;
    if (small) click(b, event);
    else done([Math.min(a[0], b[0]), Math.max(a[0], b[0])], [Math.min(a[1], b[1]), Math.max(a[1], b[1])], event);
  });
  svg.addEventListener("pointercancel", () => { from = null; box?.remove(); });
};
const currentScale = () => scaleOf(found.rows, facts.get(state.y).values);
const test = (f, o, v) => ({f, o, v});
drag(one("#v1"), (x, y, event) => {
  const scale = currentScale();
  const bounds = [
    test("begin", ">=", Math.round(most * x[0])), test("begin", "<=", Math.round(most * x[1])),
    ...(y[1] > 0.97 ? [] : [test(state.y, ">=", Math.round(scale.value(y[1])))]),
    test(state.y, "<=", Math.round(scale.value(y[0]))),
  ];
  select({k: "and", l: bounds}, event);
}, (place, event) => {
  const scale = currentScale();
  const {values} = facts.get(state.y);
  let best = null;
  let nearest = 14;
  for (const row of found.rows) {
    const dx = (begin[row] / most - place[0]) * place[2].width;
    const dy = (scale.place(values[row]) / 100 - place[1]) * place[2].height;
    const away = Math.hypot(dx, dy);
    if (away < nearest) [best, nearest] = [row, away];
  }
  if (best !== null) show(best, event.shiftKey);
});
drag(one("#v2"), (x, y, event) => {
  if (!threads.scale) drawThreads();
  const {columns, scale} = threads;
  const near = columns.filter((_, at) =>
    (at + 0.8) / columns.length >= x[0] && (at + 0.2) / columns.length <= x[1]);
  if (!near.length) return;
  const who = near[0].name ? test("thread", "in", near.map((column) => column.name))
    : test(facts.has("service") ? "service" : "label", "in", near.map((column) => data.labels[column.label]));
  if (!facts.has(who.f)) return;
  const bounds = [who, test("latency", ">=", Math.round(scale.value(y[1]))), test("latency", "<=", Math.round(scale.value(y[0])))];
  select({k: "any", l: [{k: "and", l: bounds}]}, event);
}, () => {});
const BOUNDS = [0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
one("#v1").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
  event.preventDefault();
  const fact = facts.get(state.y);
  const values = found.rows.map((row) => fact.values[row]);
  const bounds = quantiles(values, BOUNDS);
  const simple = state.what.f === state.y && state.what.o === ">=";
  const now = simple ? boundOf(state.what, fact, found.within) : bounds[3];
  const next = event.key === "ArrowUp" ? bounds.find((v) => v > now) : bounds.reverse().find((v) => v < now);
  if (next !== undefined) go({what: test(state.y, ">=", next)});
});
const KEYS = {
  t: turnTheme, c: copy, b: back, Backspace: back, n: () => walk(1), p: () => walk(-1),
  Escape: () => { if (state !== start) { history_.push(state); state = start; link(); drawAll(); } },
};
const focusCondition = (by) => {
  const listed = all(".cond");
  const at = listed.indexOf(document.activeElement);
  listed[Math.min(listed.length - 1, Math.max(0, at + by))]?.focus();
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || /^(SELECT|INPUT)$/.test(event.target.tagName)) return;
  const {key} = event;
  if (event.altKey && key === "Enter" && event.target.classList?.contains("cond")) {
    event.preventDefault();
    const tree = conditionAt(event.target);
    if (tree) and(tree, true);
    return;
  }
  if (event.altKey) return;
  if (key === "j" || key === "k") focusCondition(key === "j" ? 1 : -1);
  else if (/^[1-6]$/.test(key)) {
    const view = one(`#view-${key}`);
    view.scrollIntoView({block: "nearest"});
    (view.querySelector("[tabindex='0'],button:not(:disabled)") ?? view).focus({preventScroll: true});
  } else if (Object.hasOwn(KEYS, key)) {
    if (key === "Backspace") event.preventDefault();
    KEYS[key]();
  }
});
// A link from a tracing UI: the request that was asked first for that trace.
const traced = /^#trace=([0-9a-f]{16,32})$/i.exec(location.hash);
const followTrace = () => {
  const id = traced[1].toLowerCase().padStart(32, "0");
  const rows = traces ? [...latency.keys()].filter((row) => traceOf(row) === id) : [];
  if (!rows.length) return toast(say("trace.none", {id}));
  const top = rows.find((row) => !rows.includes(parent[row])) ?? rows[0];
  if (!found.within[top]) state = {...state, given: []};
  state = {...state, shown: top, more: rows.filter((row) => row !== top).slice(0, 3)};
  drawAll();
  return one("#view-5").scrollIntoView();
};
// A link to a step; a broken or hostile one opens the page as at the start.
if (traced) followTrace();
else if (location.hash.length > 2) {
  try {
    state = parse(JSON.parse(decodeURIComponent(location.hash.slice(1))));
    drawAll();
  } catch {
    state = start;
    found = rank(state);
  }
}
if (!drawn) drawViews();
// Cells are of pixels, and a page within another has none at first.
if (n > MANY) new ResizeObserver(() => { drawTime(); drawThreads(); }).observe(one("#v1"));
document.documentElement.dataset.ready = "1";
