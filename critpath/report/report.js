"use strict";
// Zooming, panning and pointing for the aligned paths.  The page reads without it.
// Text only ever goes through textContent and canvas: no name can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LABEL = 120, MOST_NORMALS = 16;
  const ROW = 13, TALL = 22, SPACE = 3, MARKS = 22, TRACK = 26, BARS = 44, AXIS = 20;
  const SCREEN = 100;
  const ORANGE = "#e69f00", RED = "#d55e00";

  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const duration = (ns, sign) => {
    if (ns === null || ns === undefined) return "-";
    const value = Math.abs(ns), mark = ns < 0 ? "-" : sign && ns > 0 ? "+" : "";
    for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (value >= scale * 0.9995) {
        const scaled = value / scale;
        return mark + scaled.toFixed(scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0) + " " + unit;
      }
    }
    return mark + value.toFixed(0) + " ns";
  };

  const count = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");

  const element = (name, text, parent) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // A tile of each pattern, as in svg_patterns.py.
  const tile = (name) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 6;
    const c = canvas.getContext("2d");
    c.globalAlpha = 0.45;
    c.beginPath();
    if (name === "dots") {
      c.arc(1.5, 1.5, 1, 0, 7); c.arc(4.5, 4.5, 1, 0, 7); c.fill();
    } else if (name === "bars") {
      c.moveTo(0, 1.5); c.lineTo(6, 1.5); c.moveTo(0, 4.5); c.lineTo(6, 4.5); c.stroke();
    } else {
      c.moveTo(-1, 1); c.lineTo(1, -1); c.moveTo(0, 6); c.lineTo(6, 0); c.moveTo(5, 7); c.lineTo(7, 5);
      c.stroke();
    }
    return canvas;
  };
  const tiles = { diagonal: tile("diagonal"), dots: tile("dots"), bars: tile("bars") };

  class View {
    constructor(figure, one) {
      this.one = one;
      this.anomaly = one.rows[one.rows.length - 1];
      this.normals = one.rows.slice(0, -1).slice(0, MOST_NORMALS);
      this.hidden = one.rows.length - 1 - this.normals.length;
      this.segments = new Map(one.segments.map((s) => [s.column, s]));
      this.starts = one.rows.map((row) => {
        let at = 0;
        return row.durations.map((ns) => { const start = at; at += ns; return start; });
      });
      this.length = Math.max(1, ...one.rows.map((r, i) =>
        r.durations.length ? this.starts[i].at(-1) + r.durations.at(-1) : 0));
      this.time = false;
      this.cursor = one.findings.length ? one.findings[0].columns[0] : 0;
      this.reset();
      this.build(figure);
    }

    whole() { return this.time ? this.length : Math.max(1, this.one.columns); }
    reset() { this.from = 0; this.to = this.whole(); }

    build(figure) {
      const still = figure.querySelector(".still");
      const tools = document.createElement("div");
      tools.className = "tools";
      const button = (text, action, label) => {
        const made = element("button", text, tools);
        made.type = "button";
        if (label) made.setAttribute("aria-label", label);
        made.addEventListener("click", () => { action(); this.draw(); });
        return made;
      };
      this.modes = [
        button("columns", () => this.mode(false), "Align by column"),
        button("true time", () => this.mode(true), "Draw every path on its own time"),
      ];
      button("+", () => this.zoom(0.5), "Zoom in");
      button("−", () => this.zoom(2), "Zoom out");
      button("all", () => this.reset(), "Show all");
      if (this.one.findings.length) button("next finding", () => this.next());
      this.where = element("span", "", tools);
      element("span", "drag, Ctrl+wheel, arrow keys, + − 0 F", tools).className = "hint";
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "application");
      this.canvas.setAttribute("aria-label",
        "Aligned paths. Left and right move between columns, plus and minus zoom, F goes to the next finding.");
      this.about = element("p");
      this.about.className = "about";
      this.about.setAttribute("aria-live", "polite");
      still.hidden = true;
      still.before(tools, this.canvas, this.about);
      // The caption speaks of the still drawing, which leaves out other things.
      const beyond = this.hidden ? count(this.hidden, "further normal row") + " not drawn." : "";
      figure.querySelector("figcaption").textContent = [this.one.said, beyond].filter(Boolean).join(" ");
      this.listen();
      this.mode(false);
      // Whole, a long path is a carpet: begin where something is wrong.
      if (SCREEN < this.one.columns) {
        this.place(this.cursor - SCREEN / 2, this.cursor + SCREEN / 2);
      }
      // Drawing sets the height: only a new width may draw again, and not within the notice.
      this.draw();
      let seen = Math.round(figure.clientWidth);
      new ResizeObserver(([entry]) => {
        const width = Math.round(entry.contentRect.width);
        if (width === seen) return;
        seen = width;
        requestAnimationFrame(() => this.draw());
      }).observe(figure);
    }

    mode(time) {
      this.time = time;
      this.reset();
      this.modes[0].setAttribute("aria-pressed", String(!time));
      this.modes[1].setAttribute("aria-pressed", String(time));
    }

    listen() {
      const canvas = this.canvas;
      let drag = null;
      canvas.addEventListener("pointerdown", (e) => {
        drag = { x: e.clientX, from: this.from, to: this.to };
        canvas.setPointerCapture(e.pointerId);
      });
      canvas.addEventListener("pointerup", () => { drag = null; });
      canvas.addEventListener("pointercancel", () => { drag = null; });
      canvas.addEventListener("pointermove", (e) => {
        if (drag) {
          const shift = (drag.x - e.clientX) * (drag.to - drag.from) / this.room();
          this.place(drag.from + shift, drag.to + shift);
        } else {
          this.point(e.offsetX, e.offsetY);
        }
        this.draw();
      });
      canvas.addEventListener("wheel", (e) => {
        if (!e.ctrlKey && !e.metaKey) return;
        e.preventDefault();
        this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.value(e.offsetX));
        this.draw();
      }, { passive: false });
      canvas.addEventListener("keydown", (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        const step = (this.to - this.from) / 5;
        const keys = {
          ArrowLeft: () => e.shiftKey ? this.place(this.from - step, this.to - step) : this.go(-1),
          ArrowRight: () => e.shiftKey ? this.place(this.from + step, this.to + step) : this.go(1),
          Home: () => { this.cursor = 0; this.reveal(); },
          End: () => { this.cursor = this.one.columns - 1; this.reveal(); },
          "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
          "0": () => this.reset(), f: () => this.next(), F: () => this.next(),
        };
        if (!(e.key in keys)) return;
        e.preventDefault();
        keys[e.key]();
        this.draw();
      });
    }

    room() { return Math.max(50, this.canvas.clientWidth - LABEL - 2); }
    x(value) { return LABEL + (value - this.from) / (this.to - this.from) * this.room(); }
    value(x) { return this.from + (x - LABEL) / this.room() * (this.to - this.from); }

    place(from, to) {
      const width = Math.min(to - from, this.whole());
      this.from = Math.min(Math.max(0, from), this.whole() - width);
      this.to = this.from + width;
    }

    centre() {
      const row = this.one.rows.length - 1;
      return this.time ? this.starts[row][this.cursor] + this.anomaly.durations[this.cursor] / 2
        : this.cursor + 0.5;
    }

    zoom(factor, around) {
      const least = this.time ? 1000 : Math.min(6, this.one.columns);
      const width = Math.min(this.whole(), Math.max(least, (this.to - this.from) * factor));
      const inside = this.centre() >= this.from && this.centre() <= this.to;
      const at = around ?? (inside ? this.centre() : (this.from + this.to) / 2);
      const share = (at - this.from) / (this.to - this.from);
      this.place(at - share * width, at + (1 - share) * width);
    }

    go(step) {
      this.cursor = Math.min(Math.max(0, this.cursor + step), Math.max(0, this.one.columns - 1));
      this.reveal();
    }

    reveal() {
      const at = this.centre(), width = this.to - this.from;
      if (at < this.from || at > this.to) this.place(at - width / 2, at + width / 2);
    }

    next() {
      const at = this.one.findings.findIndex((f) => f.columns[0] === this.cursor);
      this.cursor = this.one.findings[(at + 1) % this.one.findings.length].columns[0];
      this.reveal();
    }

    point(x, y) {
      if (x < LABEL || !this.one.columns) return;
      const at = this.value(x);
      if (!this.time) {
        this.cursor = Math.min(Math.max(0, Math.floor(at)), this.one.columns - 1);
        return;
      }
      const line = this.lines.find((l) => l.row !== null && y >= l.y && y < l.y + l.height + SPACE);
      const row = line ? line.row : this.one.rows.length - 1;
      const { durations, symbols } = this.one.rows[row];
      const found = symbols.findIndex((s, i) =>
        s >= 0 && at >= this.starts[row][i] && at < this.starts[row][i] + durations[i]);
      if (found >= 0) this.cursor = found;
    }

    draw() {
      const { canvas, one } = this;
      this.lines = [];
      let y = 4;
      const line = (label, row, height, symbols) => {
        this.lines.push({ label, row, height, symbols, y });
        y += height + SPACE;
      };
      if (!this.time) { line("most of " + (one.rows.length - 1), null, 16, one.consensus); y += 4; }
      this.normals.forEach((row, i) => line("normal " + row.id.slice(0, 12), i, ROW, row.symbols));
      y += 4;
      line("this execution", one.rows.length - 1, TALL, this.anomaly.symbols);
      const marks = y;
      const height = marks + MARKS + (this.time ? AXIS : TRACK + 8 + BARS + 4);
      const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
      if (!width) return;
      canvas.style.height = height + "px";
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      const c = canvas.getContext("2d");
      c.scale(ratio, ratio);
      this.ink = getComputedStyle(document.body).color;
      this.usual = dark.matches ? "#56b4e9" : "#0072b2";
      this.lines.forEach((l) => this.row(c, l, width));
      this.marks(c, marks, width);
      if (this.time) this.axis(c, marks + MARKS, width);
      else this.tracks(c, marks + MARKS, width);
      this.pointer(c, height);
      this.where.textContent = this.time
        ? duration(this.from) + " to " + duration(this.to) + " of " + duration(this.length)
        : "columns " + (Math.floor(this.from) + 1) + " to " + Math.ceil(this.to) + " of " + this.one.columns;
      this.tell();
    }

    // Where column i of a row stands, null where it is not in view.
    span(row, i) {
      const from = this.time ? this.starts[row][i] : i;
      const to = this.time ? from + this.one.rows[row].durations[i] : i + 1;
      return to < this.from || from > this.to ? null : [this.x(from), this.x(to)];
    }

    label(c, text, y) {
      c.fillStyle = this.ink;
      c.font = "11px sans-serif";
      c.textAlign = "right";
      c.fillText(text, LABEL - 8, y + 4, LABEL - 10);
    }

    clip(c, width, paint) {
      c.save();
      c.beginPath();
      c.rect(LABEL, 0, width - LABEL, 1e5);
      c.clip();
      paint();
      c.restore();
    }

    row(c, line, width) {
      const middle = line.y + line.height / 2;
      this.label(c, line.label, middle);
      this.clip(c, width, () => {
        c.globalAlpha = 0.25;
        c.fillStyle = this.ink;
        c.fillRect(LABEL, middle - 0.5, width, 1);
        c.globalAlpha = 1;
        c.textAlign = "center";
        c.font = "10px monospace";
        let drawn = -1;
        line.symbols.forEach((code, i) => {
          if (code < 0) return;
          const at = this.span(line.row, i);
          if (!at) return;
          const [left, right] = at, gap = right - left > 4 ? 0.6 : 0;
          // Many segments in one pixel: the first that reaches a new pixel is drawn.
          if (right - left < 0.5 && Math.floor(right) <= drawn) return;
          drawn = Math.floor(right);
          this.cell(c, data.symbols[code], left, line.y, Math.max(0.7, right - left - gap), line.height);
        });
      });
    }

    cell(c, symbol, x, y, width, height) {
      c.fillStyle = symbol.colour;
      c.fillRect(x, y, width, height);
      if (symbol.pattern !== "solid" && width > 3) {
        c.fillStyle = c.createPattern(tiles[symbol.pattern], "repeat");
        c.fillRect(x, y, width, height);
      }
      if (symbol.other) {
        c.fillStyle = "rgba(0,0,0,0.55)";
        c.fillRect(x, y + height * 0.8, width, height * 0.2);
      }
      if (width >= 9) {
        c.fillStyle = symbol.ink;
        const left = Math.max(x, LABEL), right = Math.min(x + width, LABEL + this.room());
        c.fillText(symbol.letter, (left + right) / 2, y + height / 2 + 3.5);
      }
    }

    marks(c, y, width) {
      this.clip(c, width, () => {
        c.font = "bold 11px sans-serif";
        c.textAlign = "center";
        c.lineWidth = 2;
        for (const finding of this.one.findings) {
          const last = Math.max(finding.columns[0], finding.columns[1] - 1);
          const row = this.one.rows.length - 1;
          const begin = this.span(row, finding.columns[0]), end = this.span(row, last);
          if (!begin && !end) continue;
          const left = begin ? begin[0] : LABEL, right = Math.max(left + 4, end ? end[1] : width);
          c.strokeStyle = RED;
          c.beginPath();
          c.moveTo(left, y); c.lineTo(left, y + 4); c.lineTo(right, y + 4); c.lineTo(right, y);
          c.stroke();
          c.fillStyle = this.ink;
          c.fillText(String(finding.rank), (left + right) / 2, y + 16);
        }
      });
    }

    tracks(c, y, width) {
      const level = (ns) => BARS * Math.min(6, Math.max(0, Math.log10(Math.max(1, ns || 0)) - 3)) / 6;
      this.label(c, "share of normals", y + TRACK / 2);
      this.label(c, "duration here", y + TRACK + 20);
      this.label(c, "normal mean", y + TRACK + 34);
      c.fillStyle = ORANGE;
      c.fillRect(LABEL - 6, y + TRACK + 16, 4, 9);
      c.fillStyle = this.usual;
      c.fillRect(LABEL - 6, y + TRACK + 30, 4, 9);
      c.fillStyle = this.ink;
      c.font = "9px sans-serif";
      c.fillText("1 us to 1 s, log", LABEL - 8, y + TRACK + 8 + BARS);
      this.clip(c, width, () => {
        for (let i = Math.max(0, Math.floor(this.from)); i < Math.min(this.one.columns, this.to); i++) {
          const left = this.x(i), wide = Math.max(0.7, this.x(i + 1) - left - 0.6);
          const share = TRACK * (this.one.probability[i] || 0);
          c.globalAlpha = 0.45;
          c.fillStyle = this.ink;
          c.fillRect(left, y + TRACK - share, wide, share);
          c.globalAlpha = 1;
          const floor = y + TRACK + 8 + BARS;
          const here = level(this.anomaly.durations[i]), usual = level(this.one.mean[i]);
          c.fillStyle = ORANGE;
          c.fillRect(left, floor - here, wide / 2, here);
          c.fillStyle = this.usual;
          c.fillRect(left + wide / 2, floor - usual, wide / 2, usual);
        }
        c.globalAlpha = 0.25;
        c.fillStyle = this.ink;
        c.fillRect(LABEL, y + TRACK, width, 1);
        c.fillRect(LABEL, y + TRACK + 8 + BARS, width, 1);
        c.globalAlpha = 1;
      });
    }

    axis(c, y, width) {
      const rough = (this.to - this.from) / Math.max(2, this.room() / 90);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
      c.fillStyle = this.ink;
      c.font = "11px sans-serif";
      c.textAlign = "left";
      for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
        const x = this.x(t);
        c.fillRect(x, y - 2, 1, 5);
        if (x < width - 44) c.fillText(duration(t), x + 3, y + 10);
      }
    }

    pointer(c, height) {
      const at = this.span(this.one.rows.length - 1, this.cursor);
      if (!at || at[1] < LABEL) return;
      c.strokeStyle = this.ink;
      c.lineWidth = 1;
      const left = Math.max(LABEL, at[0]);
      c.strokeRect(left - 0.5, 1.5, Math.max(1, at[1] - left), height - 3);
    }

    tell() {
      const { one, cursor } = this;
      if (!one.columns) return;
      const code = this.anomaly.symbols[cursor], segment = this.segments.get(cursor);
      const usual = one.consensus[cursor];
      const words = ["Column " + (cursor + 1) + " of " + one.columns + ": here "];
      if (code < 0) words.push("nothing");
      else {
        const symbol = data.symbols[code];
        words.push(symbol.name + ", " + symbol.words + ", " + duration(this.anomaly.durations[cursor]));
        if (segment) {
          const begin = one.segments.length ? segment.begin - one.segments[0].begin : 0;
          words.push(" (" + segment.thread + (segment.detail ? ", " + segment.detail : "") +
            ", at +" + duration(begin) + ")");
        }
      }
      words.push("; normally " + (usual < 0 ? "nothing" : data.symbols[usual].name));
      if (one.mean[cursor] !== null) words.push(", " + duration(one.mean[cursor]) + " on average");
      if (one.probability[cursor] !== null) {
        words.push("; " + (100 * one.probability[cursor]).toFixed(0) +
          " % of the normal group are as here.");
      }
      for (const f of one.findings) {
        if (cursor >= f.columns[0] && cursor < f.columns[1]) {
          words.push(" Finding " + f.rank + ": " + f.words + ", " + duration(f.contribution, true) + ".");
        }
      }
      const text = words.join("");
      if (this.about.textContent !== text) this.about.textContent = text;
    }
  }

  const views = [];
  for (const one of data.aligned) {
    const figure = document.querySelector('figure[data-position="' + one.position + '"]');
    if (figure) {
      one.said = one.left_out
        ? count(one.left_out, "normal execution") + " of the group not aligned." : "";
      views.push(new View(figure, one));
    }
  }
  const redraw = () => views.forEach((view) => view.draw());
  dark.addEventListener("change", redraw);
})();
