// How cells look: colours and patterns as in palette.py and svg_patterns.py.
const ORANGE = "#e69f00", RED = "#d55e00";
const theme = { ink: "#000", page: "#fff", usual: "#0072b2" };
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
  theme.ink = style.getPropertyValue("--ink").trim() || theme.ink;
  theme.page = style.getPropertyValue("--page").trim() || theme.page;
  theme.usual = style.getPropertyValue("--usual").trim() || theme.usual;
  const ratio = window.devicePixelRatio || 1;
  if (ratio === pixels) return;
  pixels = ratio;
  looks = data.symbols.map((symbol) => ({
    ...symbol, fill: symbol.pattern === "solid" ? symbol.colour : tile(symbol),
  }));
};

// Paint one row's cells between two places.  Columns narrower than a pixel are merged:
// the longest segment of the pixel is shown, and one that is looked for before all others.
// `columns` places every column equally, otherwise it stands at its own time.
const paintRow = (c, row, y, height, place, wanted) => {
  const { from, scale, left, right, time } = place;
  const { symbols, durations, starts } = row, origin = from * scale, edge = origin + right - left;
  // Of the pixel: what is shown of it, how long, and whether it is looked for.
  let pixel = NaN, best = -1, longest = -1, lit = true;
  // Pixels side by side that show the same are one box.
  let shown = -1, shownLit = true, begun = 0, ended = 0;
  const flush = () => {
    if (shown >= 0) box(c, looks[shown], left + begun - origin, y, ended - begun, height, shownLit);
    shown = -1;
  };
  const settle = () => {
    if (best < 0) return;
    if (best !== shown || lit !== shownLit || pixel > ended) {
      flush();
      shown = best; shownLit = lit; begun = pixel;
    }
    ended = pixel + 1;
    best = longest = -1;
  };
  for (let i = Math.max(0, time ? after(starts, from) - 1 : Math.floor(from)); i < symbols.length; i++) {
    const begin = (time ? starts[i] : i) * scale;
    if (begin > edge) break;
    const code = symbols[i];
    if (code < 0) continue;
    const width = time ? durations[i] * scale : scale, isLit = !wanted || wanted(code, i);
    if (width >= 1.5) {
      settle(); flush();
      if (begin + width > origin) cell(c, looks[code], left + begin - origin, y, width, height, place, isLit);
      continue;
    }
    const at = Math.floor(begin);
    if (at !== pixel) { settle(); pixel = at; }
    const weight = (durations[i] || 0) + (wanted && isLit ? 1e18 : 0);
    if (weight > longest) { longest = weight; best = code; lit = isLit; }
  }
  settle(); flush();
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

const box = (c, look, x, y, width, height, lit, colour = look.colour) => {
  fill(c, colour, x, y, width, height, lit ? 1 : 0.15);
  // The dark foot of time on another thread.
  if (look.other) fill(c, "#000", x, y + height * 0.8, width, height * 0.2, lit ? 0.55 : 0.1);
};

const cell = (c, look, x, y, width, height, place, lit) => {
  // A cell wider than the view is cut, so that its letter stays in sight.
  const begin = Math.max(x, place.left), end = Math.min(x + (width > 4 ? width - 0.6 : width), place.right);
  if (end <= begin) return;
  box(c, look, begin, y, end - begin, height, lit, width > 3 ? look.fill : look.colour);
  if (end - begin < 9) return;
  c.globalAlpha = lit ? 1 : 0.4;
  c.fillStyle = look.ink;
  c.fillText(look.letter, (begin + end) / 2, y + height / 2 + 3.5);
  c.globalAlpha = 1;
};
