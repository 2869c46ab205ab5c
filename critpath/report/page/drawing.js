// One alignment on a canvas: the normal group above, the anomaly below, findings, tracks.
const LABEL = 120, ROW = 13, PITCH = 16, TALL = 22, MARKS = 36, TRACK = 26, BARS = 44, AXIS = 22;
const MOST_ROWS_SEEN = 16, ANOMALY = -1;

class Drawing {
  constructor(one) {
    this.one = one;
    this.length = Math.max(1, one.anomaly.total, ...one.group.map((row) => row.total));
    this.time = false;
    this.top = 0;
    this.width = 0;
    this.visible = false;
    this.wanted = null;
    this.selected = one.findings[0] ?? null;
    this.cursor = { row: ANOMALY, column: this.selected ? this.selected.columns[0] : 0 };
    this.pinned = null;
    this.from = 0;
    this.to = this.whole();
  }

  whole() { return this.time ? this.length : Math.max(1, this.one.columns); }
  rowOf(index) { return index === ANOMALY ? this.one.anomaly : this.one.group[index].open(); }
  room() { return Math.max(50, this.width - LABEL - 2); }
  x(value) { return LABEL + (value - this.from) / (this.to - this.from) * this.room(); }
  value(x) { return this.from + (x - LABEL) / this.room() * (this.to - this.from); }

  // Where things stand from top to bottom; the group's rows scroll in a window.
  layout() {
    const rows = this.one.group.length * PITCH;
    this.common = 4;
    this.rows = this.time ? 4 : 28;
    this.window = Math.min(rows, MOST_ROWS_SEEN * PITCH);
    this.beyond = rows - this.window;
    this.here = this.rows + this.window + 6;
    this.marks = this.here + TALL + 3;
    this.height = this.marks + MARKS + (this.time ? AXIS : TRACK + 8 + BARS + 4);
  }

  ask() {
    if (this.asked || !this.visible) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const { canvas, one, width, height } = this;
    if (!width || !this.visible) return;
    const ratio = window.devicePixelRatio || 1;
    const wide = Math.round(width * ratio), high = Math.round(height * ratio);
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      this.context = canvas.getContext("2d");
    }
    const c = this.context;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const scale = this.room() / (this.to - this.from);
    this.place = { from: this.from, scale, left: LABEL, right: LABEL + this.room(), time: this.time };
    if (!this.time) this.line(c, one.common, this.common, 16, ANOMALY - 1);
    this.clip(c, this.rows, this.window, () => {
      const first = Math.floor(this.top / PITCH);
      const last = Math.min(one.group.length, Math.ceil((this.top + this.window) / PITCH));
      for (let i = first; i < last; i++) {
        this.line(c, one.group[i].open(), this.rows + i * PITCH - this.top, ROW, i);
      }
    });
    this.line(c, one.anomaly, this.here, TALL, ANOMALY);
    this.findings(c);
    if (this.time) this.axis(c, this.marks + MARKS);
    else this.tracks(c, this.marks + MARKS);
    this.pointers(c);
    this.told();
  }

  clip(c, y, height, paint, x = 0) {
    c.save();
    c.beginPath();
    c.rect(x, y, this.width - x, height);
    c.clip();
    paint();
    c.restore();
  }

  label(c, text, y, strong) {
    c.fillStyle = theme.ink;
    c.font = (strong ? "bold " : "") + "11px sans-serif";
    c.textAlign = "right";
    let shown = text;
    if (c.measureText(shown).width > LABEL - 14) {
      while (shown && c.measureText(shown + "…").width > LABEL - 14) shown = shown.slice(0, -1);
      shown += "…";
    }
    c.fillText(shown, LABEL - 8, y + 4);
  }

  line(c, row, y, height, index) {
    row.label ??= row.name;
    this.label(c, row.label, y + height / 2, index === ANOMALY);
    c.globalAlpha = 0.25;
    c.fillStyle = theme.ink;
    c.fillRect(LABEL, y + height / 2 - 0.5, this.room(), 1);
    c.globalAlpha = 1;
    c.textAlign = "center";
    c.font = (height < 16 ? "10px" : "11px") + " monospace";
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

  spanOf(finding) {
    const end = Math.min(this.one.columns, Math.max(finding.columns[0] + 1, finding.columns[1]));
    return this.span(ANOMALY, finding.columns[0], end);
  }

  findings(c) {
    c.font = "bold 11px sans-serif";
    c.textAlign = "center";
    const levels = [[], []], y = this.marks;
    this.targets = [];
    for (const finding of this.one.findings) {
      const at = this.spanOf(finding);
      if (!at) continue;
      const chosen = finding === this.selected, left = at[0], right = Math.max(left + 4, at[1]);
      c.strokeStyle = RED;
      c.lineWidth = chosen ? 3 : 1.5;
      c.beginPath();
      c.moveTo(left + 0.75, y); c.lineTo(left + 0.75, y + 4);
      c.lineTo(right - 0.75, y + 4); c.lineTo(right - 0.75, y);
      c.stroke();
      // Ranks that would touch go to a second level, and beyond that wait for zooming in.
      const rank = String(finding.rank), half = c.measureText(rank).width / 2 + 5;
      const middle = Math.min(LABEL + this.room() - half, Math.max(LABEL + half, (left + right) / 2));
      const level = levels.findIndex((taken) => taken.every((x) => Math.abs(x.middle - middle) > x.half + half));
      this.targets.push({ finding, left: left - 2, right: right + 2, top: y - 2, bottom: y + 6 });
      if (level < 0) continue;
      levels[level].push({ middle, half });
      const top = y + 7 + level * 14;
      if (chosen) {
        c.fillStyle = RED;
        c.fillRect(middle - half, top, 2 * half, 13);
      }
      c.fillStyle = chosen ? "#fff" : theme.ink;
      c.fillText(rank, middle, top + 10.5);
      this.targets.push({ finding, left: middle - half, right: middle + half, top, bottom: top + 13 });
    }
  }

  tracks(c, y) {
    const { one } = this, floor = y + TRACK + 8 + BARS;
    const level = (ns) => BARS * Math.min(6, Math.max(0, Math.log10(Math.max(1, ns || 0)) - 3)) / 6;
    this.label(c, "share of normals", y + TRACK / 2);
    this.label(c, "duration here", y + TRACK + 20);
    this.label(c, "normal mean", y + TRACK + 34);
    c.fillStyle = ORANGE;
    c.fillRect(LABEL - 6, y + TRACK + 16, 4, 9);
    c.fillStyle = theme.usual;
    c.fillRect(LABEL - 6, y + TRACK + 30, 4, 9);
    c.fillStyle = theme.ink;
    c.font = "9px sans-serif";
    c.textAlign = "right";
    c.fillText("1 us to 1 s, log", LABEL - 8, floor);
    // Columns below a pixel are merged: the rarest share and the longest durations.
    const scale = this.place.scale, step = Math.max(1, Math.ceil(1 / scale)), bars = [[], [], []];
    const begin = Math.floor(this.from / step) * step;
    for (let i = Math.max(0, begin); i < Math.min(one.columns, this.to); i += step) {
      let rarest = NaN, here = 0, usual = 0;
      for (let k = i; k < Math.min(i + step, one.columns); k++) {
        const p = one.probability[k];
        if (!(p >= rarest)) rarest = Number.isNaN(p) ? rarest : p;
        here = Math.max(here, one.anomaly.durations[k]);
        if (one.mean[k] > usual) usual = one.mean[k];
      }
      const left = this.x(i), wide = Math.max(0.7, scale * step - (scale * step > 4 ? 0.6 : 0));
      bars[0].push([left, wide, TRACK * (rarest || 0)]);
      bars[1].push([left, wide / 2, level(here)]);
      bars[2].push([left + wide / 2, wide / 2, level(usual)]);
    }
    const paint = (list, base, fill, alpha) => {
      c.globalAlpha = alpha;
      c.fillStyle = fill;
      for (const [left, wide, high] of list) if (high > 0) c.fillRect(left, base - high, wide, high);
      c.globalAlpha = 1;
    };
    this.clip(c, y, this.height, () => {
      paint(bars[0], y + TRACK, theme.ink, 0.45);
      paint(bars[1], floor, ORANGE, 1);
      paint(bars[2], floor, theme.usual, 1);
    }, LABEL);
    c.globalAlpha = 0.25;
    c.fillStyle = theme.ink;
    c.fillRect(LABEL, y + TRACK, this.room(), 1);
    c.fillRect(LABEL, floor, this.room(), 1);
    c.globalAlpha = 1;
  }

  axis(c, y) {
    const rough = (this.to - this.from) / Math.max(2, this.room() / 90);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || 10 * power;
    this.label(c, "since its begin", y + 4);
    c.fillStyle = theme.ink;
    c.font = "11px sans-serif";
    c.textAlign = "left";
    for (let k = Math.ceil(this.from / step); k * step <= this.to; k++) {
      const x = this.x(k * step);
      c.fillRect(x, y - 2, 1, 5);
      const said = duration(k * step);
      if (x + 3 + c.measureText(said).width < this.width) c.fillText(said, x + 3, y + 12);
    }
  }

  // Top and height of a row of cells on the canvas, null where it is scrolled away.
  band(index) {
    if (index === ANOMALY) return [this.here, TALL];
    const y = this.rows + index * PITCH - this.top;
    return y + ROW < this.rows || y > this.rows + this.window ? null : [y, ROW];
  }

  pointers(c) {
    const at = this.span(this.cursor.row, this.cursor.column);
    if (at && at[1] >= LABEL) {
      c.strokeStyle = theme.ink;
      c.lineWidth = 1;
      if (!this.time) {
        c.globalAlpha = 0.5;
        c.strokeRect(at[0] - 0.5, 1.5, Math.max(2, at[1] - at[0]), this.height - 3);
        c.globalAlpha = 1;
      }
      this.outline(c, this.cursor, at, 1.5);
    }
    if (!this.pinned) return;
    const pinned = this.span(this.pinned.row, this.pinned.column);
    if (pinned) this.outline(c, this.pinned, pinned, 3);
  }

  outline(c, where, [left, right], thick) {
    const band = this.band(where.row);
    if (!band) return;
    this.clip(c, where.row === ANOMALY ? 0 : this.rows - 2, where.row === ANOMALY ? this.height : this.window + 4, () => {
      c.lineWidth = thick;
      c.strokeStyle = theme.ink;
      c.strokeRect(left - 1, band[0] - 1, Math.max(2, right - left) + 1.5, band[1] + 2);
    });
  }
}
