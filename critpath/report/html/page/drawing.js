// One alignment on a canvas: the normal group above, the anomaly below, findings, tracks.
const LABEL = 120, ROW = 13, PITCH = 16, TALL = 22, LANE = 18, TRACK = 26, BARS = 44, AXIS = 22;
const MOST_ROWS_SEEN = 16, ANOMALY = -1, FONT = "11px sans-serif";

const fill = (c, colour, x, y, width, height, alpha = 1) => {
  c.globalAlpha = alpha;
  c.fillStyle = colour;
  c.fillRect(x, y, width, height);
  c.globalAlpha = 1;
};

class Drawing {
  constructor(one) {
    this.one = one;
    this.length = Math.max(1, one.anomaly.total, ...one.group.map((row) => row.total));
    this.time = this.visible = false;
    this.top = this.width = 0;
    this.wanted = this.pinned = null;
    this.selected = one.findings[0] ?? null;
    this.cursor = { row: ANOMALY, column: this.selected ? this.selected.columns[0] : 0 };
    this.lanes = this.stack();
    this.reset();
  }

  reset() { this.from = 0; this.to = this.whole(); }
  whole() { return this.time ? this.length : Math.max(1, this.one.columns); }
  rowOf(index) { return index === ANOMALY ? this.one.anomaly : this.one.group[index].open(); }
  room() { return Math.max(50, this.width - LABEL - 2); }
  x(value) { return LABEL + (value - this.from) / (this.to - this.from) * this.room(); }
  value(x) { return this.from + (x - LABEL) / this.room() * (this.to - this.from); }

  // Findings that share columns get lanes of their own; beyond the third they share one.
  stack() {
    const ends = [];
    this.laneOf = new Map();
    for (const f of [...this.one.findings].sort((a, b) => a.columns[0] - b.columns[0])) {
      let lane = ends.findIndex((end) => end <= f.columns[0]);
      if (lane < 0) lane = Math.min(ends.length, 2);
      ends[lane] = Math.max(ends[lane] ?? 0, f.columns[1]);
      this.laneOf.set(f, lane);
    }
    return Math.max(1, ends.length);
  }

  // Where things stand from top to bottom; of the group's rows there is a window.
  layout() {
    this.rows = this.time ? 4 : 28;
    this.window = Math.min(this.one.group.length, MOST_ROWS_SEEN);
    this.here = this.rows + this.window * PITCH + 6;
    this.marks = this.here + TALL + 4;
    this.below = this.marks + this.lanes * LANE + 8;
    this.height = this.below + (this.time ? AXIS : TRACK + 8 + BARS + 4);
  }

  ask() {
    if (this.asked || !this.visible) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const { canvas, one, width, height } = this, ratio = devicePixelRatio;
    if (!width || !this.visible) return;
    const wide = Math.round(width * ratio), high = Math.round(height * ratio);
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const scale = this.room() / (this.to - this.from);
    this.place = { from: this.from, scale, left: LABEL, right: LABEL + this.room(), time: this.time };
    for (const [left, right] of this.selected ? this.spansOf(this.selected) : []) {
      fill(c, RED, left, 0, right - left, this.marks, 0.13);
    }
    strips.begin(Math.ceil(this.room()) + 1);
    if (!this.time) this.line(c, one.common, 4, 16, null);
    one.group.slice(this.top, this.top + this.window).forEach((row, i) => {
      this.line(c, row.open(), this.rows + i * PITCH, ROW, this.top + i);
    });
    this.line(c, one.anomaly, this.here, TALL, ANOMALY);
    strips.end(c);
    this.findings(c);
    if (this.time) this.axis(c, this.below);
    else this.tracks(c, this.below);
    this.outline(c, this.cursor, 1.5);
    if (this.pinned) this.outline(c, this.pinned, 3);
    this.told();
  }

  label(c, text, y, font = FONT) {
    c.fillStyle = theme.ink;
    c.font = font;
    c.textAlign = "right";
    const room = LABEL - 14;
    if (c.measureText(text).width > room) text = text.replace("normal ", "");
    const letters = [...text];
    while (letters.length && c.measureText(text).width > room) {
      letters.pop();
      text = letters.join("") + "…";
    }
    c.fillText(text, LABEL - 8, y + 4);
    return text;
  }

  line(c, row, y, height, index) {
    const middle = y + height / 2;
    row.label = this.label(c, row.label ?? row.name, middle, index === ANOMALY ? "bold " + FONT : FONT);
    fill(c, theme.ink, LABEL, middle - 0.5, this.room(), 1, 0.25);
    c.textAlign = "center";
    c.font = (height < 16 ? "10px" : "11px") + " monospace";
    // Only of the anomaly is it known which thread a cell is of.
    const wanted = this.wanted && ((code, i) => this.wanted(code, index === ANOMALY ? i : null));
    paintRow(c, row, y, height, this.place, wanted);
  }

  // Where columns of a row stand on the canvas, null where they are not in view.
  span(index, column, end = column + 1) {
    const { starts } = this.rowOf(index);
    const from = this.time ? starts[column] : column, to = this.time ? starts[end] : end;
    if (to < this.from || from > this.to) return null;
    return [Math.max(LABEL, this.x(from)), Math.min(LABEL + this.room(), this.x(to))];
  }

  // The stretches of a finding in view, those that touch on the canvas as one.
  spansOf({ own }) {
    const found = [];
    for (const [begin, end] of own) {
      const at = this.span(ANOMALY, begin, end), last = found.at(-1);
      if (at && last && at[0] - last[1] < 1) last[1] = at[1];
      else if (at) found.push(at);
    }
    return found;
  }

  findings(c) {
    c.font = "bold " + FONT;
    c.textAlign = "center";
    const taken = [];
    this.targets = [];
    for (const finding of this.one.findings) {
      const spans = this.spansOf(finding);
      if (!spans.length) continue;
      const chosen = finding === this.selected, lane = this.laneOf.get(finding);
      const left = spans[0][0], right = Math.max(left + 4, spans.at(-1)[1]), y = this.marks + lane * LANE;
      c.strokeStyle = RED;
      c.lineWidth = chosen ? 3 : 1.5;
      // A thin line holds its brackets together.
      fill(c, RED, left, y + 3.5, right - left, 1, 0.6);
      c.beginPath();
      for (const [begin, end] of spans) {
        const stop = Math.max(begin + 4, end) - 0.75;
        [[begin + 0.75, 0], [begin + 0.75, 4], [stop, 4], [stop, 0]]
          .forEach(([x, down], i) => c[i ? "lineTo" : "moveTo"](x, y + down));
      }
      c.stroke();
      // Numbers that would touch wait for zooming in.
      const half = c.measureText(finding.rank).width / 2 + 4, edge = LABEL + this.room() - half;
      const middle = Math.min(edge, Math.max(LABEL + half, (left + right) / 2));
      this.targets.push({ finding, left: Math.min(left, middle - half), right: Math.max(right, middle + half), top: y - 2, bottom: y + LANE });
      if (taken.some((t) => t.lane === lane && Math.abs(t.middle - middle) < t.half + half)) continue;
      taken.push({ lane, middle, half });
      if (chosen) fill(c, RED, middle - half, y + 6, 2 * half, 13);
      c.fillStyle = chosen ? "#fff" : theme.ink;
      c.fillText(finding.rank, middle, y + 16.5);
    }
  }

  tracks(c, y) {
    const { one } = this, { scale } = this.place, base = y + TRACK, floor = base + 8 + BARS;
    const level = (ns) => BARS * Math.min(6, Math.max(0, Math.log10(Math.max(1, ns || 0)) - 3)) / 6;
    this.label(c, "share of normals", y + TRACK / 2);
    this.label(c, "duration here", base + 20);
    this.label(c, "normal mean", base + 34);
    this.label(c, "1 us to 1 s, log", floor - 4, "9px sans-serif");
    fill(c, ORANGE, LABEL - 6, base + 16, 4, 9);
    fill(c, theme.usual, LABEL - 6, base + 30, 4, 9);
    // Columns below a pixel are merged: the rarest share and the longest durations.
    const step = Math.max(1, Math.ceil(1 / scale)), wide = Math.max(0.7, scale * step - (scale > 4 ? 0.6 : 0));
    c.save();
    c.beginPath();
    c.rect(LABEL, y, this.room(), this.height);
    c.clip();
    for (let i = Math.floor(this.from / step) * step; i < Math.min(one.columns, this.to); i += step) {
      let rarest = 2, here = 0, usual = 0;
      for (let k = i; k < Math.min(i + step, one.columns); k++) {
        if (one.probability[k] < rarest) rarest = one.probability[k];
        if (one.mean[k] > usual) usual = one.mean[k];
        here = Math.max(here, one.anomaly.durations[k]);
      }
      const left = this.x(i), high = rarest > 1 ? 0 : TRACK * rarest;
      fill(c, theme.ink, left, base - high, wide, high, 0.45);
      fill(c, ORANGE, left, floor - level(here), wide / 2, level(here));
      fill(c, theme.usual, left + wide / 2, floor - level(usual), wide / 2, level(usual));
    }
    c.restore();
    fill(c, theme.ink, LABEL, base, this.room(), 1, 0.25);
    fill(c, theme.ink, LABEL, floor, this.room(), 1, 0.25);
  }

  axis(c, y) {
    const rough = (this.to - this.from) / Math.max(2, this.room() / 90);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5].map((k) => k * power).find((s) => s >= rough) ?? 10 * power;
    this.label(c, "since its begin", y + 4);
    c.font = FONT;
    c.textAlign = "left";
    for (let k = Math.ceil(this.from / step); k * step <= this.to; k++) {
      const x = this.x(k * step), said = duration(k * step);
      fill(c, theme.ink, x, y - 2, 1, 5);
      if (x + 3 + c.measureText(said).width < this.width) c.fillText(said, x + 3, y + 12);
    }
  }

  outline(c, { row, column }, thick) {
    const at = this.span(row, column), own = row === ANOMALY;
    if (!at) return;
    c.lineWidth = thick;
    c.strokeStyle = theme.ink;
    if (own || (row >= this.top && row < this.top + this.window)) {
      const y = own ? this.here : this.rows + (row - this.top) * PITCH;
      c.strokeRect(at[0] - 1, y - 1, Math.max(2, at[1] - at[0]) + 1.5, (own ? TALL : ROW) + 2);
    }
    if (this.time) return;
    fill(c, theme.ink, at[0] - 1, 0, 1, this.height, 0.4);
    fill(c, theme.ink, at[1], 0, 1, this.height, 0.4);
  }
}
