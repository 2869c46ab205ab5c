// Draws threads and CPUs over time: only what is in view, and of what is narrower than a pixel
// what there is most of.
const clock = BigInt(data.begin);
const whole = data.length;
const columns = (of) => Object.fromEntries(
  Object.entries(of).map(([name, column]) => [name, decode(column)]));

// Intervals of each owner, one owner after the other: begins and ends within the window.
const intervalsOf = (packed, start) => {
  const {gap, length, cut, cutBegin, cutEnd, ...rest} = columns(packed);
  const n = length.length;
  const begin = new Float64Array(n);
  const end = new Float64Array(n);
  let owner = 0;
  for (let row = 0, before = 0; row < n; row++) {
    while (start[owner] <= row) { before = 0; owner++; }
    begin[row] = before + gap[row];
    before = end[row] = begin[row] + length[row];
  }
  const cuts = new Map(Array.from(cut, (row, at) => [row, [cutBegin[at], cutEnd[at]]]));
  return {begin, end, cuts, ...rest};
};
const {names, hosts, states, details} = data;
const start = decode(data.rows.start);
const rows = intervalsOf(data.rows, start);
const hostOf = decode(data.host);
const threads = hostOf.length;
const active = decode(data.active);
const cpus = {host: decode(data.cpus.host), cpu: decode(data.cpus.cpu)};
const ranStart = decode(data.cpus.ran.start);
const ran = intervalsOf(data.cpus.ran, ranStart);
const stolenStart = decode(data.cpus.stolen.start);
const stolen = intervalsOf(data.cpus.stolen, stolenStart);
const path = intervalsOf(data.path, [0, Infinity]);
const steps = path.begin.length;
const cpuPlace = (host, cpu) => cpus.cpu.findIndex((one, at) => one === cpu && cpus.host[at] === host);
// Colours of who had a CPU: of those on the path first, then of those that had one longest.
const COLOURS = 6;
const colourOf = (thread) => (thread < COLOURS ? thread : COLOURS);

// Text.
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
const formatTime = (ns) => {
  const [scale, unit] = UNITS.find(([least]) => Math.abs(ns) >= least * 0.9995) ?? [1, "ns"];
  const value = ns / scale;
  return `${value.toFixed(scale === 1 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0)}\u00a0${unit}`;
};
const inMicroseconds = (ns) => `${(ns / 1e3).toLocaleString("en", {maximumFractionDigits: 3})}\u00a0µs`;
const onClock = (ns) => (clock + BigInt(Math.round(ns))).toLocaleString("en");
const cutMiddle = (name, most) => {
  if (name.length <= most) return name;
  const tail = Math.floor(most / 2);
  return `${name.slice(0, most - tail - 1)}…${name.slice(name.length - tail)}`;
};

// What is shown: a stretch of time, rows from top to bottom, and one interval that is chosen.
const FIRST = 12; // threads besides those on the path that did something, before all are asked for
const ROW = 20;
const HEAD = 26;
const box = one("#rows");
const canvas = one("#canvas");
const room = one("#room");
const facts = one("#facts");
const brush = canvas.getContext("2d");
const over = one("#over");
const marks = over.getContext("2d");
let view = {from: 0, to: whole};
let lines = [];
let every = false;
let asked = "";
let chosen = null; // {line, at}: an interval of a row, or a segment of the path
let hovered = null;
let selected = null; // {from, to}: a stretch of time whose sums are shown
let width = 0;
let height = 0;
let gutter = 0;
let letter = 7; // how wide one is

// Hosts as their threads come: those on the path first.
const hostOrder = [...new Set([...hostOf, ...cpus.host])];

const lineUp = () => {
  const words = asked.trim().toLowerCase();
  const found = (thread) => names[thread].toLowerCase().includes(words);
  const shown = [];
  const others = [];
  if (steps) shown.push({kind: "path", name: "critical path"});
  for (const host of hostOrder) {
    const mine = (thread) => hostOf[thread] === host;
    const group = [];
    const listed = [];
    for (let thread = 0; thread < threads; thread++) if (mine(thread) && (!words || found(thread))) listed.push(thread);
    const first = listed.filter((thread) => thread < data.onPath);
    const rest = listed.filter((thread) => thread >= data.onPath);
    for (const thread of first) group.push({kind: "thread", thread, name: names[thread]});
    const order = [...cpus.cpu.keys()].filter((at) => cpus.host[at] === host).sort((a, b) => cpus.cpu[a] - cpus.cpu[b]);
    for (const place of order) group.push({kind: "cpu", place, name: `cpu ${cpus.cpu[place]}`});
    const busy = rest.filter((thread) => active[thread]);
    const most = every || words ? rest.length : Math.min(busy.length, FIRST);
    for (const thread of rest.slice(0, most)) group.push({kind: "thread", thread, name: names[thread]});
    if (hosts.length > 1 && group.length) shown.push({kind: "host", name: hosts[host]});
    shown.push(...group);
    others.push(...rest.slice(most));
    one("#count").textContent = words ? `${shown.filter((line) => line.kind === "thread").length} of ${threads}` : "";
  }
  if (others.length || every) {
    shown.push({kind: "more", name: every ? "fewer threads" : `${others.length} more threads`});
  }
  lines = shown;
  lines.forEach((line, at) => { line.top = HEAD + at * ROW; });
  room.style.height = "0";
  if (chosen && !lines.some((line) => same(line, chosen.line))) chosen = null;
  size();
};
const same = (a, b) => a.kind === b.kind && a.thread === b.thread && a.place === b.place;
const lineOf = (kind, key) => lines.find((line) => line.kind === kind && (line.thread === key || line.place === key));

// Rows of a line, as typed arrays and the places of the first and of the one after the last.
const courseOf = (line) => {
  if (line.kind === "thread") return [rows, start[line.thread], start[line.thread + 1]];
  if (line.kind === "cpu") return [ran, ranStart[line.place], ranStart[line.place + 1]];
  return line.kind === "path" ? [path, 0, steps] : [path, 0, 0];
};
// The first whose end is after a time.
const firstAfter = (end, low, high, time) => {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
};

// Colours and textures.
let look = {};
const readLook = () => {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  look = {};
  for (const name of ["page", "raised", "ink", "dim", "line", "grey", "focus", "on"]) look[name] = value(name);
  look.who = Array.from({length: COLOURS + 1}, (_, at) => value(`w${at}`));
  look.fills = states.map(([, colour, pattern]) => textureOf(colour, pattern));
  look.inks = states.map(([, colour]) => inkOf(colour));
  look.whoInks = look.who.map((colour) => inkOf(colour));
  look.paper = inkOf(look.page);
  // Beside a path that is lit.
  look.faint = states.map(([, colour]) => inkOf(colour, look.page));
};
// As the bytes of a picture have it, half of each where there are two; #rgb is a colour, too.
const inkOf = (colour, other = colour) => {
  const [one_, two] = [colour, other].map((text) => {
    const digits = text.length < 7 ? [...text.slice(1)].map((digit) => digit + digit).join("") : text.slice(1);
    return [0, 2, 4].map((at) => Number.parseInt(digits.slice(at, at + 2), 16));
  });
  const [red, green, blue] = one_.map((value, at) => (value + two[at]) >> 1);
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
};
const textureOf = (colour, pattern) => {
  if (pattern === "solid") return colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const on = tile.getContext("2d");
  on.fillStyle = colour;
  on.fillRect(0, 0, 6, 6);
  on.strokeStyle = on.fillStyle = ["#0072b2", "#009e73", "#d55e00"].includes(colour) ? "#fff" : "#000";
  on.lineWidth = 1.3;
  on.beginPath();
  if (pattern === "diagonal") for (const x of [-6, 0, 6]) { on.moveTo(x, 6); on.lineTo(x + 6, 0); }
  else if (pattern === "bars") { on.moveTo(2, 0); on.lineTo(2, 6); }
  else on.arc(3, 3, 1.3, 0, 7);
  if (pattern === "dots") on.fill();
  else on.stroke();
  return brush.createPattern(tile, "repeat");
};

// Intervals of a course from left to right: a box each, those below a pixel by what is most of it.
const NARROW = 1.2;
const PIXEL = 1;
const spans = (of, low, high, kindOf, put) => {
  const {from, to} = view;
  const scale = (width - gutter) / (to - from);
  const {begin, end} = of;
  let column = -1;
  let until = -1;
  let most = 0;
  let kind = -1;
  let open = -1; // where a run of equal columns begins
  let opened = -1;
  const flush = () => {
    if (column < 0) return;
    if (opened === kind && until === column) until = column + PIXEL;
    else {
      if (opened >= 0) put(open, until, opened, -1);
      open = column;
      until = column + PIXEL;
      opened = kind;
    }
    column = -1;
  };
  const close = () => {
    flush();
    if (opened >= 0) put(open, until, opened, -1);
    opened = -1;
    until = -1;
  };
  for (let row = firstAfter(end, low, high, from); row < high && begin[row] < to; row++) {
    const mine = kindOf(row);
    if (mine < 0) continue;
    const x = (Math.max(begin[row], from) - from) * scale;
    const right = (Math.min(end[row], to) - from) * scale;
    if (right - x >= NARROW) {
      close();
      put(x, right, mine, row);
    } else {
      const at = Math.floor(x);
      if (at !== column) {
        flush();
        column = at;
        most = 0;
      }
      if (right - x > most || most === 0) { most = right - x; kind = mine; }
    }
  }
  close();
};

const xOf = (time) => gutter + (time - view.from) * (width - gutter) / (view.to - view.from);
const HEIGHTS = [5, 12, 14];
const WIDE = 3; // from here on a box has its texture, and may have a name

// Narrow boxes, of which there are many, are written into the bytes of the picture: a strip for
// each height of a row, which is then as many lines of it. Wide ones are drawn over that.
let image = null;
let bytes = new Uint32Array(0);
let strips = [];
let wide = [];
const beginPicture = () => {
  if (image === null || image.width !== canvas.width || image.height !== canvas.height) {
    image = new ImageData(canvas.width, canvas.height);
    bytes = new Uint32Array(image.data.buffer);
    strips = HEIGHTS.map(() => new Uint32Array(canvas.width));
  }
  bytes.fill(look.paper);
  wide = [];
};
const stripsOf = (y, put) => {
  const ratio = canvas.width / width;
  for (const strip of strips) strip.fill(look.paper);
  put((x, right, level, ink) => {
    const first = Math.max(Math.round((gutter + x) * ratio), 0);
    const last = Math.min(Math.max(Math.round((gutter + right) * ratio), first + 1), canvas.width);
    for (let at = 0; at <= level; at++) for (let dot = first; dot < last; dot++) strips[at][dot] = ink;
    for (let at = level + 1; at < strips.length; at++) for (let dot = first; dot < last; dot++) strips[at][dot] = look.paper;
  });
  const end = Math.min(Math.round((y + 17) * ratio), canvas.height);
  for (let row = Math.max(Math.round((y + 3) * ratio), 0); row < end; row++) {
    const above = y + 17 - row / ratio;
    bytes.set(strips[HEIGHTS.findIndex((tall) => above <= tall)] ?? strips[2], row * canvas.width);
  }
};
const readThread = (line, y) => {
  const [of, low, high] = courseOf(line);
  const inks = steps ? look.faint : look.inks;
  stripsOf(y, (dot) => spans(of, low, high, (row) => rows.state[row], (x, right, kind) => {
    if (right - x >= WIDE) wide.push(x, right, y, kind);
    else dot(x, right, states[kind][3], inks[kind]);
  }));
};
const drawWide = () => {
  brush.globalAlpha = steps ? 0.5 : 1;
  let last = -1;
  for (let at = 0; at < wide.length; at += 4) {
    const [x, right, y, kind] = [wide[at], wide[at + 1], wide[at + 2], wide[at + 3]];
    const tall = HEIGHTS[states[kind][3]];
    if (kind !== last) brush.fillStyle = look.fills[kind];
    last = kind;
    brush.fillRect(gutter + x, y + 17 - tall, right - x, tall);
  }
  brush.globalAlpha = 1;
};
const readCpu = (line, y) => {
  const [of, low, high] = courseOf(line);
  stripsOf(y, (dot) => spans(of, low, high, whoAt, (x, right, kind) => {
    if (right - x < WIDE) dot(x, right, 2, look.whoInks[kind]);
  }));
};
const whoAt = (row) => (ran.thread[row] ? colourOf(ran.thread[row] - 1) : -1);
const drawCpu = (line, y) => {
  const [of, low, high] = courseOf(line);
  spans(of, low, high, whoAt, (x, right, kind, row) => {
    if (right - x < WIDE) return;
    brush.fillStyle = look.who[kind];
    brush.fillRect(gutter + x, y + 3, right - x - 0.6, 14);
    if (row < 0 || right - x <= 36) return;
    brush.fillStyle = look.on;
    brush.fillText(cutMiddle(names[ran.thread[row] - 1], Math.floor((right - x - 8) / letter)), gutter + x + 4, y + 14);
  });
  spans(stolen, stolenStart[line.place], stolenStart[line.place + 1], (row) => stolen.state[row], (x, right, kind) => {
    brush.fillStyle = states[kind][1];
    brush.fillRect(gutter + x, y + 2, Math.max(right - x, 0.8), 4);
  });
};
const drawLosses = (line, y) => {
  brush.strokeStyle = look.ink;
  brush.setLineDash([2, 2]);
  for (const [from, to, host, cpu] of data.losses) {
    if (host !== cpus.host[line.place] || (cpu >= 0 && cpu !== cpus.cpu[line.place])) continue;
    if (to >= view.from && from <= view.to) brush.strokeRect(xOf(from), y + 1.5, Math.max(xOf(to) - xOf(from), 2), 17);
  }
  brush.setLineDash([]);
};
// The path by itself, and lit on the rows of its threads.
const drawPath = (top) => {
  const y = (line) => line.top - top;
  const own = lines.find((line) => line.kind === "path");
  const at = new Map(lines.filter((line) => line.kind === "thread").map((line) => [line.thread, line]));
  const lit = (line, kindOf, tall) => spans(path, 0, steps, kindOf, (x, right, kind, row) => {
    brush.fillStyle = right - x < 3 ? states[kind][1] : look.fills[kind];
    brush.fillRect(gutter + x, y(line) + 17 - tall, Math.max(right - x, 0.8), tall);
    if (line !== own) {
      brush.fillStyle = look.ink;
      brush.fillRect(gutter + x, y(line) + 16.5, Math.max(right - x, 0.8), 3);
    } else if (row >= 0 && right - x > 46) {
      const words = cutMiddle(data.pathNames[path.name[row]], Math.floor((right - x - 10) / letter));
      brush.fillStyle = look.page;
      brush.fillRect(gutter + x + 3, y(line) + 4, words.length * letter + 4, 12);
      brush.fillStyle = look.ink;
      brush.fillText(words, gutter + x + 5, y(line) + 14);
    }
  });
  for (const line of lines) {
    if (y(line) > height || y(line) < HEAD - ROW || line.kind === "cpu") continue;
    if (line === own) lit(line, (row) => path.state[row], 14);
    else if (line.kind === "thread" && line.thread < data.onPath) {
      lit(line, (row) => (path.thread[row] === line.thread + 1 ? path.state[row] : -1), 14);
    }
  }
  // Where it goes from one thread to another.
  brush.strokeStyle = brush.fillStyle = look.ink;
  brush.lineWidth = 1.4;
  let last = -9;
  for (let row = firstAfter(path.end, 0, steps, view.from); row + 1 < steps && path.end[row] <= view.to; row++) {
    const [before, after] = [at.get(path.thread[row] - 1), at.get(path.thread[row + 1] - 1)];
    const x = xOf(path.end[row]);
    if (!before || !after || before === after || x - last < 3) continue;
    last = x;
    arrow(x, y(before) + 12, x, y(after) + 12);
  }
};
const arrow = (x1, y1, x2, y2) => {
  const away = Math.sign(y2 - y1) || 1;
  brush.beginPath();
  brush.moveTo(x1, y1);
  brush.lineTo(x2, y2 - 4 * away);
  brush.stroke();
  brush.beginPath();
  brush.moveTo(x2 - 3.5, y2 - 6 * away);
  brush.lineTo(x2 + 3.5, y2 - 6 * away);
  brush.lineTo(x2, y2);
  brush.fill();
};
// Who woke whom, where there is room to see it.
const WAKES = 300;
const drawWakes = (top) => {
  const shown = lines.filter((line) => line.kind === "thread" && line.top - top < height && line.top - top > HEAD - ROW);
  const at = new Map(lines.filter((line) => line.kind === "thread").map((line) => [line.thread, line]));
  const found = [];
  for (const line of shown) {
    const [of, low, high] = courseOf(line);
    for (let row = firstAfter(of.end, low, high, view.from); row < high && of.end[row] <= view.to; row++) {
      const from = rows.waker[row] ? at.get(rows.waker[row] - 1) : undefined;
      if (from && from !== line && states[rows.state[row]][3] === 0) found.push([row, from, line]);
      if (found.length > WAKES) return;
    }
  }
  brush.strokeStyle = brush.fillStyle = look.dim;
  brush.lineWidth = 0.8;
  for (const [row, from, to] of found) {
    arrow(xOf(rows.end[row] - rows.woken[row]), from.top - top + 14, xOf(rows.end[row]), to.top - top + 12);
  }
};

const tickStep = (length, most) => {
  const raw = length / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= raw);
};
const drawHead = () => {
  brush.fillStyle = look.page;
  brush.fillRect(0, 0, width, HEAD);
  brush.fillStyle = look.dim;
  const length = view.to - view.from;
  const step = tickStep(length, Math.max((width - gutter) / 110, 2));
  const [scale, unit] = UNITS.find(([least]) => Math.max(step, view.to / 1e4) >= least * 0.9995) ?? [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = xOf(time);
    brush.fillRect(x, HEAD - 5, 1, 5);
    const words = `${(time / scale).toFixed(digits)} ${unit}`;
    const wide = brush.measureText(words).width;
    if (x + 3 + wide < width) brush.fillText(words, x + 3, HEAD - 8);
  }
  brush.fillStyle = look.line;
  brush.fillRect(0, HEAD - 1, width, 1);
  // Which part of the window is in view.
  brush.fillRect(gutter, 0, width - gutter, 3);
  brush.fillStyle = look.focus;
  const [left, right] = [view.from, view.to].map((time) => time / whole * (width - gutter));
  brush.fillRect(gutter + left, 0, Math.max(right - left, 2), 3);
};
const drawNames = (top) => {
  const most = Math.floor((gutter - 22) / letter);
  for (const line of lines) {
    const y = line.top - top;
    if (y > height || y < HEAD - ROW) continue;
    brush.fillStyle = line.kind === "host" ? look.raised : look.page;
    brush.fillRect(0, y, gutter, ROW);
    if (line.kind === "thread") {
      brush.fillStyle = look.who[colourOf(line.thread)];
      brush.fillRect(7, y + 6, 7, 9);
    }
    brush.fillStyle = line.kind === "more" ? look.focus : line.kind === "thread" && line.thread >= data.onPath && steps ? look.dim : look.ink;
    brush.fillText(line.kind === "more" ? line.name : cutMiddle(line.name, line.kind === "thread" ? most : most + 2), line.kind === "thread" ? 19 : 7, y + 14);
  }
  brush.fillStyle = look.line;
  brush.fillRect(gutter - 1, HEAD, 1, height);
};
// What is chosen and what is pointed at, and who had the CPU that it waited for.
const drawChosen = (top) => {
  marks.save();
  marks.beginPath();
  marks.rect(0, HEAD, width, height);
  marks.clip();
  if (selected) {
    const [x, right] = [Math.max(xOf(selected.from), gutter), Math.max(xOf(selected.to), gutter)];
    marks.fillStyle = look.focus;
    marks.globalAlpha = 0.14;
    marks.fillRect(x, HEAD, right - x, height);
    marks.globalAlpha = 1;
    for (const edge of [x, right]) marks.fillRect(edge - 0.5, HEAD, 1, height);
  }
  for (const [of_, ink, wide] of [[hovered, look.dim, 1], [chosen, look.focus, 2]]) {
    const line = of_ ? lines.find((each) => same(each, of_.line)) : undefined;
    if (!line) continue;
    marks.fillStyle = marks.strokeStyle = ink;
    marks.lineWidth = wide;
    marks.fillRect(0, line.top - top + 2, 3, ROW - 4);
    if (of_.at < 0) continue;
    const [of] = courseOf(line);
    const x = Math.max(xOf(of.begin[of_.at]), gutter);
    const right = xOf(of.end[of_.at]);
    if (right < gutter) continue;
    marks.strokeRect(x, line.top - top + 1.5, Math.max(right - x, 2), ROW - 2);
    const cpu = waitedFor(line, of_.at);
    const had = cpu >= 0 ? lineOf("cpu", cpu) : undefined;
    if (!had) continue;
    marks.setLineDash([4, 3]);
    marks.strokeRect(x, had.top - top + 1.5, Math.max(right - x, 2), ROW - 2);
    marks.setLineDash([]);
  }
  marks.restore();
};
const waitedFor = (line, at) => {
  if (line.kind === "thread") {
    return states[rows.state[at]][3] === 1 && rows.cpu[at] ? cpuPlace(hostOf[line.thread], rows.cpu[at] - 1) : -1;
  }
  if (line.kind !== "path" || states[path.state[at]][3] !== 1 || !path.cpu[at] || !path.thread[at]) return -1;
  return cpuPlace(hostOf[path.thread[at] - 1], path.cpu[at] - 1);
};

let pending = false;
let stale = true; // whether more is to be drawn anew than what is pointed at
const drawRows = () => {
  const top = box.scrollTop;
  const seen = lines.filter((line) => line.top - top < height && line.top - top > HEAD - ROW);
  beginPicture();
  for (const line of seen) {
    if (line.kind === "thread") readThread(line, line.top - top);
    else if (line.kind === "cpu") readCpu(line, line.top - top);
  }
  brush.putImageData(image, 0, 0);
  brush.fillStyle = look.raised;
  for (const line of seen) if (line.kind === "host") brush.fillRect(0, line.top - top, width, ROW);
  drawWide();
  for (const line of seen) {
    if (line.kind !== "cpu") continue;
    drawCpu(line, line.top - top);
    drawLosses(line, line.top - top);
  }
  drawWakes(top);
  if (steps) drawPath(top);
  brush.lineWidth = 1;
  drawNames(top);
  drawHead();
};
const draw = () => {
  pending = false;
  const ratio = canvas.width / width;
  if (stale) {
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.font = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace";
    letter = brush.measureText("m").width;
    drawRows();
    stale = false;
  }
  marks.setTransform(ratio, 0, 0, ratio, 0, 0);
  marks.clearRect(0, 0, width, height);
  drawChosen(box.scrollTop);
};
const point = () => {
  if (!pending) requestAnimationFrame(draw);
  pending = true;
};
const redraw = () => {
  stale = true;
  point();
};
const size = () => {
  width = box.clientWidth;
  gutter = width < 500 ? 104 : width < 800 ? 150 : 210;
  const tall = HEAD + lines.length * ROW + 4;
  height = Math.min(tall, Math.max(Math.round(innerHeight * 0.72) - 2, 200));
  const ratio = devicePixelRatio || 1;
  over.width = canvas.width = Math.round(width * ratio);
  over.height = canvas.height = Math.round(height * ratio);
  over.style.height = canvas.style.height = `${height}px`;
  room.style.height = `${tall - height}px`;
  redraw();
};

// Facts of an interval.
const had = (place, from, to) => {
  const sums = new Map();
  for (let row = firstAfter(ran.end, ranStart[place], ranStart[place + 1], from); row < ranStart[place + 1] && ran.begin[row] < to; row++) {
    const spent = Math.min(ran.end[row], to) - Math.max(ran.begin[row], from);
    sums.set(ran.thread[row], (sums.get(ran.thread[row]) ?? 0) + spent);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
};
const code = (text) => {
  const element = document.createElement("code");
  element.textContent = text;
  return element;
};
const strong = (text) => {
  const element = document.createElement("b");
  element.textContent = text;
  return element;
};
const describe = (line, at) => {
  const [of] = courseOf(line);
  const [begin, end] = of.cuts.get(at) ?? [of.begin[at], of.end[at]];
  const parts = [];
  const cpu = waitedFor(line, at);
  if (line.kind === "thread") {
    const state = rows.state[at];
    parts.push(code(line.name), " ", strong(states[state][0]));
    if (details[rows.detail[at]] && states[state][3] !== 1) parts.push(` (${details[rows.detail[at]]})`);
    if (rows.cpu[at] && cpu < 0) parts.push(` on cpu ${rows.cpu[at] - 1}`);
  } else if (line.kind === "cpu") {
    const who = ran.thread[at];
    parts.push(strong(line.name), ...(who ? [": ", code(names[who - 1])] : [" was idle"]));
  } else {
    parts.push(code(data.pathNames[path.name[at]] || "unknown"), " ", strong(states[path.state[at]][0]));
    if (data.pathDetails[path.detail[at]] && cpu < 0) parts.push(` (${data.pathDetails[path.detail[at]]})`);
    if (path.cpu[at] && cpu < 0) parts.push(` on cpu ${path.cpu[at] - 1}`);
  }
  parts.push(` · ${inMicroseconds(end - begin)} · from ${formatTime(begin)} (${onClock(begin)} ns)`);
  if (of.cuts.has(at)) parts.push(", partly outside of the window");
  if (cpu >= 0) {
    parts.push(` · cpu ${cpus.cpu[cpu]}: `);
    had(cpu, of.begin[at], of.end[at]).slice(0, 3).forEach(([who, spent], place) => {
      parts.push(place ? ", " : "", who ? code(names[who - 1]) : "idle", ` ${inMicroseconds(spent)}`);
    });
  } else if (line.kind === "thread" && rows.waker[at] && states[rows.state[at]][3] === 0) {
    parts.push(" · woken by ", code(names[rows.waker[at] - 1]));
  }
  return parts;
};
// Of a stretch of time: what the path is spent on, and who had each CPU.
const MOST = 3;
const listed = (sums, nameOf) => [...sums].sort((a, b) => b[1] - a[1]).slice(0, MOST)
  .flatMap(([key, spent], place) => [place ? ", " : "", ...nameOf(key), ` ${formatTime(spent)}`]);
const sumUp = ({from, to}) => {
  const parts = [strong(formatTime(to - from)), ` from ${formatTime(from)} (${onClock(from)} ns)`];
  const doings = new Map();
  for (let row = firstAfter(path.end, 0, steps, from); row < steps && path.begin[row] < to; row++) {
    const spent = Math.min(path.end[row], to) - Math.max(path.begin[row], from);
    doings.set(path.state[row], (doings.get(path.state[row]) ?? 0) + spent);
  }
  if (doings.size) parts.push(" · critical path: ", ...listed(doings, (state) => [states[state][0]]));
  for (const line of lines) {
    if (line.kind !== "cpu") continue;
    const sums = had(line.place, from, to);
    if (sums.length) parts.push(` · ${line.name}: `, ...listed(sums, (who) => [who ? code(names[who - 1]) : "idle"]));
  }
  return parts;
};
const showFacts = () => {
  const at = hovered && hovered.at >= 0 ? hovered : chosen;
  if (selected && !(hovered && hovered.at >= 0)) facts.replaceChildren(...sumUp(selected));
  else if (at && at.at >= 0) facts.replaceChildren(...describe(at.line, at.at));
  else facts.textContent = at ? at.line.name : "Point at what is drawn, or choose a row with \u2191 \u2193.";
};

// Moving and zooming.
const LEAST = 100; // ns in view
const show = (from, to) => {
  const length = Math.min(Math.max(to - from, Math.min(LEAST, whole)), whole);
  const begin = Math.min(Math.max(from, 0), whole - length);
  view = {from: begin, to: begin + length};
  redraw();
};
const zoom = (times, around = (view.from + view.to) / 2) => {
  const length = (view.to - view.from) * times;
  const share = (around - view.from) / (view.to - view.from);
  show(around - share * length, around + (1 - share) * length);
};
const pan = (share) => {
  const by = share * (view.to - view.from);
  show(view.from + by, view.to + by);
};
const showWhole = () => show(0, whole);
const showPath = () => {
  const [from, to] = [path.begin[0], path.end[steps - 1]];
  show(from - (to - from) * 0.02, to + (to - from) * 0.02);
};
const zoomTo = (at) => {
  if (!at || at.at < 0) return;
  const [of] = courseOf(at.line);
  const length = of.end[at.at] - of.begin[at.at];
  show(of.begin[at.at] - length * 0.5, of.end[at.at] + length * 0.5);
};
const timeAt = (x) => view.from + (x - gutter) / (width - gutter) * (view.to - view.from);
const intervalAt = (line, time) => {
  const [of, low, high] = courseOf(line);
  const at = firstAfter(of.end, low, high, time);
  if (at < high && of.begin[at] <= time) return at;
  // What is drawn as a pixel can be pointed at.
  const near = 2 * (view.to - view.from) / (width - gutter);
  if (at < high && of.begin[at] - time < near) return at;
  return at > low && time - of.end[at - 1] < near ? at - 1 : -1;
};
const pointed = (event) => {
  const area = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - area.left, event.clientY - area.top];
  if (y < HEAD) return null;
  const line = lines[Math.floor((y + box.scrollTop - HEAD) / ROW)];
  if (!line) return null;
  return {line, at: x < gutter ? -1 : intervalAt(line, timeAt(x))};
};
const select = (from, to) => {
  const [low, high] = [Math.max(Math.min(from, to), 0), Math.min(Math.max(from, to), whole)];
  selected = high > low ? {from: low, to: high} : null;
  hovered = null;
  showFacts();
  point();
};
const choose = (at) => {
  chosen = at;
  hovered = selected = null;
  if (at) {
    const {top} = at.line;
    if (top - box.scrollTop < HEAD) box.scrollTop = top - HEAD;
    else if (top + ROW - box.scrollTop > height) box.scrollTop = top + ROW - height;
    if (at.at >= 0) {
      const [of] = courseOf(at.line);
      if (of.end[at.at] <= view.from || of.begin[at.at] >= view.to) {
        const middle = (of.begin[at.at] + of.end[at.at]) / 2;
        const half = (view.to - view.from) / 2;
        show(middle - half, middle + half);
      }
    }
  }
  showFacts();
  point();
};
const toggleEvery = () => { every = !every; lineUp(); };
const stepRow = (by) => {
  const usable = lines.filter((line) => line.kind !== "host");
  const now = chosen ? usable.findIndex((line) => same(line, chosen.line)) : by > 0 ? -1 : usable.length;
  const line = usable[Math.min(Math.max(now + by, 0), usable.length - 1)];
  if (!line) return;
  const kept = chosen && chosen.at >= 0 ? courseOf(chosen.line)[0].begin[chosen.at] : -1;
  const time = kept >= view.from && kept < view.to ? kept : (view.from + view.to) / 2;
  const [of, low, high] = courseOf(line);
  choose({line, at: high > low ? Math.min(firstAfter(of.end, low, high, time), high - 1) : -1});
};
const stepInterval = (by) => {
  if (!chosen) return stepRow(1);
  const [, low, high] = courseOf(chosen.line);
  if (high === low) return undefined;
  return choose({line: chosen.line, at: Math.min(Math.max(chosen.at + by, low), high - 1)});
};
const stepPath = (by) => {
  if (!steps) return;
  const line = lines.find((each) => each.kind === "path");
  const on = chosen && chosen.line.kind === "path" ? chosen.at + by : by > 0 ? 0 : steps - 1;
  choose({line, at: Math.min(Math.max(on, 0), steps - 1)});
};
// The longest of the path first, then those that are shorter.
const byLength = [...path.begin.keys()].sort((a, b) => path.end[b] - path.begin[b] - path.end[a] + path.begin[a]);
const stepLongest = () => {
  if (!steps) return;
  const on = chosen && chosen.line.kind === "path" ? byLength.indexOf(chosen.at) : -1;
  choose({line: lines.find((each) => each.kind === "path"), at: byLength[(on + 1) % steps]});
};
const copy = () => {
  const failed = () => getSelection().selectAllChildren(one("#cmd"));
  if (!navigator.clipboard) return failed();
  return navigator.clipboard.writeText(data.command).then(() => toast("Copied as command line"), failed);
};

box.addEventListener("wheel", (event) => {
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) {
    const area = canvas.getBoundingClientRect();
    zoom(1.0022 ** Math.max(-300, Math.min(300, event.deltaY)), Math.max(timeAt(event.clientX - area.left), view.from));
  } else if (sideways) pan(sideways / (width - gutter));
  else return;
  event.preventDefault();
}, {passive: false});
box.addEventListener("scroll", redraw);
let held = null;
box.addEventListener("pointerdown", (event) => {
  if (event.button || event.offsetX > box.clientWidth) return;
  const time = timeAt(event.clientX - canvas.getBoundingClientRect().left);
  held = {x: event.clientX, y: event.clientY, view, top: box.scrollTop, moved: false, time: event.shiftKey ? time : null};
});
box.addEventListener("pointermove", (event) => {
  if (held && (held.moved || Math.hypot(event.clientX - held.x, event.clientY - held.y) > 4)) {
    if (!held.moved) box.setPointerCapture(event.pointerId);
    held.moved = true;
    if (held.time !== null) {
      select(held.time, timeAt(event.clientX - canvas.getBoundingClientRect().left));
      return;
    }
    const by = (held.x - event.clientX) / (width - gutter) * (held.view.to - held.view.from);
    show(held.view.from + by, held.view.to + by);
    if (event.pointerType === "mouse") box.scrollTop = held.top + held.y - event.clientY;
    return;
  }
  hovered = pointed(event);
  showFacts();
  point();
});
box.addEventListener("pointerleave", () => { hovered = null; showFacts(); point(); });
box.addEventListener("pointercancel", () => { held = null; });
box.addEventListener("pointerup", (event) => {
  const moved = held?.moved;
  held = null;
  if (moved) return;
  const at = pointed(event);
  if (at?.line.kind === "more") toggleEvery();
  else choose(at);
});
box.addEventListener("dblclick", (event) => zoomTo(pointed(event)));
one("#in").addEventListener("click", () => zoom(0.5));
one("#out").addEventListener("click", () => zoom(2));
one("#whole").addEventListener("click", showWhole);
one("#critical")?.addEventListener("click", showPath);
one("#search").addEventListener("input", (event) => { asked = event.target.value; lineUp(); });
for (const id of ["#copy", "#copy2"]) one(id).addEventListener("click", copy);
const enter = () => {
  if (selected) show(selected.from, selected.to);
  else if (chosen?.line.kind === "more") toggleEvery();
  else zoomTo(chosen);
};
// Of the picture, where it has the focus; the others anywhere.
const INSIDE = {
  ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1), ArrowUp: () => stepRow(-1), ArrowDown: () => stepRow(1),
  Enter: enter, Home: showWhole, ",": () => stepInterval(-1), ".": () => stepInterval(1),
  Escape: () => choose(null),
};
const ANYWHERE = {
  "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "−": () => zoom(2), n: () => stepPath(1), p: () => stepPath(-1),
  l: stepLongest, s: () => select(view.from, view.to),
  x: toggleEvery, c: copy, t: () => turnTheme(), "/": () => one("#search").focus(),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.tagName === "INPUT") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const inside = document.activeElement === box && Object.hasOwn(INSIDE, event.key) ? INSIDE[event.key] : undefined;
  const act = inside ?? (Object.hasOwn(ANYWHERE, event.key) ? ANYWHERE[event.key] : undefined);
  if (!act) return;
  event.preventDefault();
  act();
});
const newLook = () => { readLook(); redraw(); };
new MutationObserver(newLook).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", newLook);
// On paper it is light, and all of it is there.
let theme;
addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  newLook();
  draw();
});
addEventListener("afterprint", () => {
  if (theme === undefined) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
});
new ResizeObserver(size).observe(box);
addEventListener("resize", size);
readLook();
lineUp();
if (steps) showPath();
showFacts();
document.documentElement.dataset.ready = "1";
