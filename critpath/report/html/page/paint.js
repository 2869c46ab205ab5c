// How cells look: colours and patterns as in palette.py and marks.py.
const ORANGE = "#e69f00", RED = "#d55e00";
const theme = { ink: "#000", usual: "#0072b2" };
let pixels = 0, looks = [];

const tile = (symbol) => {
  const canvas = make("canvas");
  canvas.width = canvas.height = Math.round(6 * pixels);
  const c = canvas.getContext("2d");
  c.scale(canvas.width / 6, canvas.width / 6);
  c.fillStyle = symbol.colour;
  c.fillRect(0, 0, 6, 6);
  c.fillStyle = c.strokeStyle = "#000";
  c.globalAlpha = 0.45;
  c.beginPath();
  if (symbol.pattern === "dots") {
    c.arc(1.5, 1.5, 1, 0, 7); c.closePath(); c.moveTo(5.5, 4.5); c.arc(4.5, 4.5, 1, 0, 7); c.fill();
  } else if (symbol.pattern === "bars") {
    c.moveTo(0, 1.5); c.lineTo(6, 1.5); c.moveTo(0, 4.5); c.lineTo(6, 4.5); c.stroke();
  } else {
    c.moveTo(-1, 1); c.lineTo(1, -1); c.moveTo(0, 6); c.lineTo(6, 0); c.moveTo(5, 7); c.lineTo(7, 5);
    c.stroke();
  }
  const pattern = c.createPattern(canvas, "repeat");
  pattern.setTransform(new DOMMatrix().scale(6 / canvas.width));
  return pattern;
};

// Once per resolution and theme, not per frame.
const refreshLooks = () => {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "usual"]) theme[name] = style.getPropertyValue("--" + name).trim() || theme[name];
  if (devicePixelRatio === pixels) return;
  pixels = devicePixelRatio;
  looks = data.symbols.map((symbol) => {
    // Red is the lowest byte of an image's words.
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(symbol.colour.slice(i, i + 2), 16));
    const word = b * 65536 + g * 256 + r;
    return {
      ...symbol, fill: symbol.pattern === "solid" ? symbol.colour : tile(symbol),
      word: word + 0xff000000, faint: word + 0x26000000,
    };
  });
};

// Columns too narrow to be cells are one pixel each, and all rows' pixels one image: in
// each the longest segment is shown, and one that is looked for before all others.
const strips = {
  canvas: make("canvas"),

  begin(width) {
    this.lines = [];
    if (this.width !== width) {
      this.width = this.canvas.width = width;
      this.canvas.height = 48;
      this.image = new ImageData(width, 48);
      this.words = new Uint32Array(this.image.data.buffer);
      this.weight = new Float64Array(width);
    }
    this.words.fill(0);
  },

  end(c) {
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
    c.imageSmoothingEnabled = false;
    this.lines.forEach(({ x, y, height }, i) => {
      c.drawImage(this.canvas, 0, 2 * i, this.width, 1, x, y, this.width, height);
      c.drawImage(this.canvas, 0, 2 * i + 1, this.width, 1, x, y + height * 0.8, this.width, height * 0.2);
    });
  },
};

const paintRow = (c, row, y, height, place, wanted) => {
  const { from, scale, left, right, time } = place, { symbols, durations, starts } = row;
  const origin = from * scale, first = Math.floor(origin), { words, weight, width: room } = strips;
  const line = 2 * strips.lines.length * room;
  strips.lines.push({ x: left + first - origin, y, height });
  weight.fill(-1);
  for (let i = Math.max(0, time ? after(starts, from) - 1 : Math.floor(from)); i < symbols.length; i++) {
    const begin = (time ? starts[i] : i) * scale, code = symbols[i];
    if (begin > origin + right - left) break;
    if (code < 0) continue;
    const width = time ? durations[i] * scale : scale, lit = !wanted || wanted(code, i), look = looks[code];
    if (width >= 3) {
      cell(c, look, left + begin - origin, y, width, height, place, lit);
      continue;
    }
    const heavy = (durations[i] || 0) + (wanted && lit ? 1e18 : 0), pixel = Math.floor(begin) - first;
    const end = Math.min(room, Math.max(pixel + 1, Math.floor(begin + width) - first));
    for (let p = Math.max(0, pixel); p < end; p++) {
      if (heavy <= weight[p]) continue;
      weight[p] = heavy;
      words[line + p] = lit ? look.word : look.faint;
      // The dark foot of time on another thread.
      words[line + room + p] = look.other ? (lit ? 0x8c000000 : 0x20000000) : 0;
    }
  }
};

// How many of the sorted values are not above one.
const after = (starts, value) => {
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
};

const cell = (c, look, x, y, width, height, place, lit) => {
  // A cell wider than the view is cut, so that its letter stays in sight.
  const begin = Math.max(x, place.left), end = Math.min(x + (width > 4 ? width - 0.6 : width), place.right);
  if (end <= begin) return;
  fill(c, look.fill, begin, y, end - begin, height, lit ? 1 : 0.15);
  if (look.other) fill(c, "#000", begin, y + height * 0.8, end - begin, height * 0.2, lit ? 0.55 : 0.12);
  if (end - begin < 9) return;
  c.globalAlpha = lit ? 1 : 0.4;
  c.fillStyle = look.ink;
  c.fillText(look.letter, (begin + end) / 2, y + height / 2 + 3.5);
  c.globalAlpha = 1;
};
