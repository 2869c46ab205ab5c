// What the hand does: zooming, panning, pointing, pinning, by mouse, touch and keyboard.
const SCREEN = 100;

class View extends Drawing {
  constructor(one, hooks) {
    super(one);
    this.hooks = hooks;
    this.layout();
    this.canvas = make("canvas", {
      tabindex: "0", role: "application",
      "aria-label": "Aligned paths. Arrow keys move, plus and minus zoom, A and D pan, F goes to the next finding, "
        + "Enter shows details.",
    });
    this.spacer = make("div");
    this.stage = make("div", { class: "stage", tabindex: "-1" }, this.canvas, this.spacer);
    this.where = make("span", { class: "where" });
    this.about = make("p", { class: "about" });
    const tool = (text, label, action) => button(text, () => { action(); this.ask(); }, label);
    this.modes = [
      tool("columns", "Align by column", () => this.mode(false)),
      tool("true time", "Draw every path on its own time", () => this.mode(true)),
    ];
    this.tools = make("div", { class: "tools" },
      make("span", { class: "joined" }, ...this.modes),
      tool("+", "Zoom in", () => this.zoom(0.5)),
      tool("−", "Zoom out", () => this.zoom(2)),
      tool("all", "Show all", () => this.reset()),
      one.findings.length ? tool("next finding", "", () => this.next()) : "",
      this.where,
      make("span", { class: "hint" }, "drag, Ctrl+wheel, arrows, W A S D, + − 0 F, Enter"));
    this.listen();
    this.mode(false);
    // Whole, a long path is a carpet: begin where something is wrong.
    if (one.columns > SCREEN) this.move(this.cursor.column - SCREEN / 2, this.cursor.column + SCREEN / 2);
    this.resize();
  }

  // Heights are set through the object model: the policy knows no style in markup.
  resize() {
    this.canvas.style.height = this.height + "px";
    this.stage.style.height = this.height + "px";
    this.spacer.style.height = (this.one.group.length - this.window) * PITCH + "px";
  }

  mode(time) {
    // The same share of the whole, around the cursor.
    const share = (this.to - this.from) / this.whole() / 2;
    this.time = time;
    this.layout();
    this.resize();
    const half = share * this.whole(), at = this.centre();
    this.move(at - half, at + half);
    this.modes.forEach((mode, i) => { mode.ariaPressed = String(time === Boolean(i)); });
  }

  listen() {
    const { canvas } = this, held = new Map();
    let drag = null, pinch = null;
    const at = (e) => {
      const box = canvas.getBoundingClientRect();
      return [e.clientX - box.x, e.clientY - box.y];
    };
    canvas.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      canvas.setPointerCapture?.(e.pointerId);
      held.set(e.pointerId, at(e));
      drag = { x: at(e)[0], y: at(e)[1], from: this.from, to: this.to, moved: false };
      pinch = null;
    });
    const release = (e, click) => {
      held.delete(e.pointerId);
      if (click && drag && !drag.moved) this.click(...at(e));
      drag = pinch = null;
    };
    canvas.addEventListener("pointerup", (e) => release(e, true));
    canvas.addEventListener("pointercancel", (e) => release(e, false));
    canvas.addEventListener("pointermove", (e) => {
      const [x, y] = at(e);
      if (held.has(e.pointerId)) held.set(e.pointerId, [x, y]);
      if (held.size === 2) {
        const [[a], [b]] = [...held.values()], apart = Math.max(20, Math.abs(a - b));
        pinch ??= { apart, width: this.to - this.from, value: this.value((a + b) / 2) };
        this.zoom(pinch.width * pinch.apart / apart / (this.to - this.from), pinch.value);
        if (drag) drag.moved = true;
      } else if (drag) {
        drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > 4;
        const shift = (drag.x - x) * (drag.to - drag.from) / this.room();
        if (drag.moved) this.move(drag.from + shift, drag.to + shift);
      } else {
        this.point(x, y);
      }
      this.ask();
    });
    canvas.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoom(1.0025 ** Math.max(-150, Math.min(150, e.deltaMode ? 40 * e.deltaY : e.deltaY)), this.value(at(e)[0]));
      this.ask();
    }, { passive: false });
    this.stage.addEventListener("scroll", () => { this.top = Math.round(this.stage.scrollTop / PITCH); this.ask(); });
    canvas.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      // Not within the notice: drawing must not set off another one.
      this.ask();
    }).observe(canvas);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const step = (this.to - this.from) / 5, { cursor } = this;
    const pan = (way) => this.move(this.from + way * step, this.to + way * step);
    const keys = {
      ArrowLeft: () => e.shiftKey ? pan(-1) : this.go(cursor.row, cursor.column - 1),
      ArrowRight: () => e.shiftKey ? pan(1) : this.go(cursor.row, cursor.column + 1),
      ArrowUp: () => this.go(this.above(-1), cursor.column),
      ArrowDown: () => this.go(this.above(1), cursor.column),
      Home: () => this.go(cursor.row, 0),
      End: () => this.go(cursor.row, this.one.columns - 1),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "0": () => this.reset(), w: () => this.zoom(0.7), s: () => this.zoom(1 / 0.7),
      a: () => pan(-1), d: () => pan(1), f: () => this.next(),
      Enter: () => this.pin(cursor), " ": () => this.pin(cursor), Escape: () => this.pin(null),
    };
    const action = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!action) return;
    e.preventDefault();
    action();
    this.ask();
    announce(this.words());
  }

  move(from, to) {
    const width = Math.min(to - from, this.whole());
    this.from = Math.min(Math.max(0, from), this.whole() - width);
    this.to = this.from + width;
  }

  centre() {
    const { row, column } = this.cursor, { starts } = this.rowOf(row);
    return this.time ? (starts[column] + starts[column + 1]) / 2 : column + 0.5;
  }

  zoom(factor, around) {
    const least = this.time ? Math.min(1000, this.length) : Math.min(6, this.one.columns);
    const width = Math.min(this.whole(), Math.max(least, (this.to - this.from) * factor));
    const centre = this.centre(), inside = centre >= this.from && centre <= this.to;
    const at = around ?? (inside ? centre : (this.from + this.to) / 2);
    const share = (at - this.from) / (this.to - this.from);
    this.move(at - share * width, at + (1 - share) * width);
  }

  // The row above or below; the anomaly stands below the group.
  above(step) {
    const last = this.one.group.length, at = this.cursor.row === ANOMALY ? last : this.cursor.row;
    const next = Math.min(last, Math.max(0, at + step));
    return next === last ? ANOMALY : next;
  }

  go(row, column) {
    this.cursor = { row, column: Math.min(Math.max(0, column), Math.max(0, this.one.columns - 1)) };
    const at = this.centre(), width = this.to - this.from;
    if (at < this.from || at > this.to) this.move(at - width / 2, at + width / 2);
    if (row === ANOMALY) return;
    if (row < this.top) this.stage.scrollTop = row * PITCH;
    else if (row >= this.top + this.window) this.stage.scrollTop = (row - this.window + 1) * PITCH;
  }

  next() {
    const { findings } = this.one;
    if (!findings.length) return;
    const at = this.chosen ? findings.indexOf(this.selected) + 1 : 0;
    this.hooks.chosen(this.select(findings[at % findings.length]));
  }

  select(finding, pin = true) {
    this.selected = finding;
    this.chosen = true;
    const [begin, end] = finding.columns, width = this.to - this.from;
    this.go(ANOMALY, begin);
    // All of it in view, where it fits.
    if (!this.time && end - begin <= width && (begin < this.from || end > this.to)) {
      this.move((begin + end - width) / 2, (begin + end + width) / 2);
    }
    this.pin(pin ? this.cursor : null);
    return finding;
  }

  // What stands at a point: a cell of a row.
  cellAt(x, y) {
    if (x < LABEL || !this.one.columns) return null;
    let row = ANOMALY;
    const line = Math.floor((y - this.rows) / PITCH);
    if (line >= 0 && line < this.window) row = this.top + line;
    const at = this.value(x), { starts } = this.rowOf(row);
    const column = this.time ? after(starts, at) - 1 : Math.floor(at);
    return { row, column: Math.min(Math.max(0, column), this.one.columns - 1) };
  }

  point(x, y) {
    this.canvas.style.cursor = this.markAt(x, y) ? "pointer" : "";
    this.cursor = this.cellAt(x, y) ?? this.cursor;
  }

  markAt(x, y) {
    const hit = (this.targets ?? []).filter((t) => x >= t.left && x <= t.right && y >= t.top && y <= t.bottom);
    // Of several the narrowest: a wide one has room elsewhere.
    return hit.sort((a, b) => (a.right - a.left) - (b.right - b.left))[0]?.finding;
  }

  click(x, y) {
    const finding = this.markAt(x, y);
    if (finding) this.hooks.chosen(this.select(finding));
    else if (x >= LABEL) {
      this.point(x, y);
      this.pin(this.cursor);
    }
    this.ask();
  }

  pin(where) {
    this.pinned = where && this.one.columns ? { ...where } : null;
    this.hooks.pinned(this.pinned);
    this.ask();
  }

  show(visible) {
    if (visible === this.visible) return;
    this.visible = visible;
    if (visible) this.ask();
    else this.canvas.width = this.canvas.height = 0;
  }

  told() {
    const range = this.time
      ? duration(this.from) + " to " + duration(this.to) + " of " + duration(this.length)
      : "columns " + (Math.floor(this.from) + 1) + " to " + Math.ceil(this.to) + " of " + this.one.columns;
    if (this.where.textContent !== range) this.where.textContent = range;
    const words = this.words();
    if (this.about.textContent !== words) this.about.textContent = words;
  }

  words() { return describe(this.one, this.cursor); }
}
