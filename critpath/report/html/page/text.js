// Zooming, panning, pointing and filtering for the aligned paths.  The page reads without it.
// Text only ever goes through textContent and canvas: no name can become markup.
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// An element with attributes that are ours and children that are elements or plain text.
const make = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== "" && child !== null));
  return made;
};

const button = (text, action, label, kind) => {
  const made = make("button", { type: "button" }, text);
  if (label) made.title = made.ariaLabel = label;
  if (kind) made.className = kind;
  made.addEventListener("click", action);
  return made;
};

const duration = (ns, sign) => {
  if (ns === null || Number.isNaN(ns)) return "-";
  const value = Math.abs(ns), mark = ns < 0 ? "-" : sign && ns > 0 ? "+" : "";
  for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (value >= scale * 0.9995) {
      const scaled = value / scale;
      return mark + scaled.toFixed(scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0) + " " + unit;
    }
  }
  return mark + value.toFixed(0) + " ns";
};

const listed = (parts, between = ", ") => parts.filter(Boolean).join(between);
const count = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");

// Times are BigInt: nanoseconds of a clock do not fit a number.
const BILLION = 1000000000n;
const fraction = (ns) => "." + String(ns % BILLION).padStart(9, "0");
const seconds = (ns) => (ns < 0n ? "" : ns / BILLION + fraction(ns));
// Before 1970 and after the year 9999 there is nothing to paste.
const wallClock = (ns) => (ns < 0n || ns >= 253402300800n * BILLION ? ""
  : new Date(Number(ns / BILLION) * 1000).toISOString().slice(0, 19) + fraction(ns) + "Z");

// What is said to whoever does not see the page.
const live = make("p", { class: "unseen", "aria-live": "polite", role: "status" });
document.body.append(live);
const announce = (text) => { if (live.textContent !== text) live.textContent = text; };
