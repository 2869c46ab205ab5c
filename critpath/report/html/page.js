// Search, copy, theme and keys: everything else the page says without a script.
const make = (name, text = "", kind = "") => {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = kind;
  return element;
};
const copySummary = () => {
  const failed = () => prompt("Copy:", data.markdown);
  if (!navigator.clipboard) return failed();
  navigator.clipboard.writeText(data.markdown).then(() => toast("Copied as Markdown"), failed);
};
one("#copy").addEventListener("click", copySummary);

const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const formatTime = (ns, sign = false) => {
  const size = Math.abs(ns);
  const [scale, unit] = units.find(([least]) => size >= least * 0.9995) ?? units[3];
  const value = size / scale;
  const digits = scale === 1 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${ns < 0 ? "\u2212" : sign ? "+" : ""}${value.toFixed(digits)}\u00a0${unit}`;
};

// The table of slowest requests: all of them, or those that a search finds.
const search = one("#search");
if (search) {
  const body = one("#rows");
  const shown = [...body.children];
  const labelled = data.rows.some((row) => row[1]);
  const longest = Math.max(1, ...data.rows.map((row) => row[5]));
  const cell = (row, name, text, kind = "") => row.appendChild(make(name, text, kind));
  const code = (row, name, text, kind = "") => cell(row, name, "", kind).append(make("code", text));
  const rowOf = ([id, label, thread, begin, took, longer, causes, marks, trace]) => {
    const row = make("tr");
    code(row, "th", id);
    row.firstChild.scope = "row";
    if (data.trace && /^[0-9a-f]{32}$/.test(trace)) {
      const link = make("a", "trace", "trace");
      link.href = data.trace.replace("{trace_id}", trace);
      link.rel = "noreferrer noopener";
      link.title = trace;
      row.firstChild.append(" ", link);
    }
    if (marks) row.firstChild.append(make("span", ` ${marks}`, "dim"));
    if (labelled) code(row, "td", label);
    code(row, "td", thread, "opt");
    cell(row, "td", begin, "n opt");
    cell(row, "td", formatTime(took), "n");
    cell(row, "td", formatTime(longer, true), "n");
    const bar = cell(row, "td", "", "longer").appendChild(make("i"));
    bar.style.width = `${Math.max(0, longer) / longest * 100}%`;
    const last = cell(row, "td", causes.length ? "" : "–");
    causes.forEach((number, place) => {
      const known = document.getElementById(`cause-${number}`);
      const link = make(known ? "a" : "span", number);
      if (known) link.href = `#cause-${number}`;
      last.append(place ? ", " : "", link);
    });
    return row;
  };
  const texts = data.rows.map((row) =>
    `${row[0]} ${row[1]} ${row[2]} ${row[8]} ${row[6].map((n) => `cause ${n}`).join(" ")}`.toLowerCase());
  let whole = false;
  const show = () => {
    const words = search.value.trim().toLowerCase();
    if (!words && !whole) {
      body.replaceChildren(...shown);
      one("#count").textContent = "";
      return;
    }
    const found = data.rows.filter((_, place) => texts[place].includes(words));
    body.replaceChildren(...found.map(rowOf));
    one("#count").textContent = `${found.length} of ${data.of}`;
  };
  search.addEventListener("input", show);
  one("#all").addEventListener("click", (event) => {
    whole = !whole;
    event.target.textContent = whole ? "Show the slowest" : "Show all";
    show();
  });
}

// What a link or a key goes to is opened.
const goTo = (element) => {
  if (!element) return;
  for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  element.scrollIntoView();
};
const openTarget = () => {
  if (location.hash.length > 1) goTo(document.getElementById(decodeURIComponent(location.hash.slice(1))));
};
addEventListener("hashchange", openTarget);
openTarget();
addEventListener("beforeprint", () => all("details.card").forEach((card) => { card.open = true; }));
const step = (way) => {
  const cards = all(".card");
  const next = cards.findIndex((card) => card.getBoundingClientRect().top > 40);
  const at = next < 0 ? cards.length : next;
  goTo(cards[way > 0 ? at : Math.max(0, at - 2)]);
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.tagName === "INPUT" && event.target.type === "search";
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "t") turnTheme();
  else if (event.key === "c") copySummary();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "f") {
    const root = one(".flame .f");
    if (root) {
      root.scrollIntoView({ block: "center" });
      root.focus();
    }
  } else if (/^[1-9]$/.test(event.key)) goTo(one(`#cause-${event.key}`));
});
