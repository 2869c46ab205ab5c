// A cell in words: one line while pointing, all that is known once it is pinned.
const percent = (share) => (100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0) + " %";

const describe = (one, { row, column }) => {
  if (!one.columns) return "";
  const line = row === ANOMALY ? one.anomaly : one.group[row].open();
  const code = line.symbols[column], step = row === ANOMALY ? one.steps[one.stepAt.get(column)] : null;
  const words = ["Column " + (column + 1) + " of " + one.columns + ": "
    + (row === ANOMALY ? "here " : line.name + " ")];
  if (code < 0) words.push("nothing");
  else {
    const symbol = data.symbols[code];
    words.push(symbol.name + ", " + symbol.words + ", " + duration(line.durations[column]));
    if (step) words.push(" (" + listed([step.thread, step.detail, "at +" + duration(step.at)]) + ")");
  }
  words.push("; " + usually(one, column) + ".");
  for (const f of covering(one, column)) {
    words.push(" Finding " + f.rank + ": " + listed([f.words, f.difference]) + ".");
  }
  return words.join("");
};

const usually = (one, column) => {
  const usual = one.common.symbols[column];
  return "normally " + (usual < 0 ? "nothing" : data.symbols[usual].name)
    + (Number.isNaN(one.mean[column]) ? "" : ", " + duration(one.mean[column]) + " on average")
    + (Number.isNaN(one.probability[column]) ? ""
      : "; " + percent(one.probability[column]) + " of the normal group are as here");
};

const covering = (one, column) =>
  one.findings.filter((f) => f.own.some(([begin, end]) => column >= begin && column < end));

// Copies a text, or selects it where the browser does not let us.
const copy = async (source) => {
  let done = "copied";
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    done = "selected";
  }
  announce(done + " " + source.textContent);
  return done;
};

const copyable = (text, what) => {
  const source = make("code", {}, text);
  const copied = button("copy", async () => {
    copied.textContent = await copy(source);
    setTimeout(() => { copied.textContent = "copy"; }, 1500);
  }, "Copy " + what, "copy");
  return [source, " ", copied];
};

// Everything about a pinned cell; the times are those of the trace, to paste elsewhere.
const fillDetails = (panel, one, where, unpin, link) => {
  panel.hidden = !where;
  if (!where) return panel.replaceChildren();
  const { row, column } = where, line = row === ANOMALY ? one.anomaly : one.group[row].open();
  const code = line.symbols[column], symbol = data.symbols[code];
  let table = "";
  const list = make("dl"), fact = (name, ...values) => {
    list.append(make("div", {}, make("dt", {}, name), make("dd", {}, ...values)));
  };
  const head = make("h4", {}, code < 0 ? "Nothing here" : symbol.name + ": " + symbol.words);
  const index = row === ANOMALY ? one.stepAt.get(column) : undefined;
  fact("column", (column + 1) + " of " + one.columns + (row === ANOMALY ? "" : ", " + line.name));
  if (line.id && !line.name.endsWith(line.id)) fact("execution", line.id);
  if (code >= 0) fact("duration", (row === ANOMALY ? "" : "about ") + duration(line.durations[column]));
  fact("normal group", usually(one, column).replace("normally ", ""));
  if (index !== undefined) {
    const step = one.steps[index], before = one.steps[index - 1], next = one.steps[index + 1];
    fact("thread", step.thread);
    fact("cpu", step.cpu < 0 ? "unknown" : String(step.cpu));
    if (step.detail) fact(symbol?.instead ? "ran instead" : "detail", step.detail);
    const [comes, goes] = [index, index + 1].map((i) => one.changes.get(i));
    if (comes !== undefined) fact(comes ? "woken by" : "here while this sleeps", before.thread);
    if (goes !== undefined) fact(goes ? "wakes" : "then sleeps until woken; next", next.thread);
    fact("since its begin", "+" + duration(step.at));
    const begin = one.begin + BigInt(step.at);
    table = times(begin, begin + BigInt(step.ns), one.epoch);
  }
  for (const f of row === ANOMALY ? covering(one, column) : []) {
    fact("finding", make("a", { href: link(f) }, f.rank + ": " + listed([f.words, f.difference])));
  }
  panel.replaceChildren(make("div", { class: "head" }, head, button("close", unpin)), list, table);
};

const times = (begin, end, epoch) => {
  const table = make("table", {}, make("caption", {}, "Timestamps of this segment"));
  const line = (name, form) => {
    const cells = [["begin", begin], ["end", end]].map(([what, ns]) => [what + ", " + name, form(ns)]);
    if (cells.every(([, text]) => text)) {
      table.append(make("tr", {}, make("th", { scope: "row" }, name),
        ...cells.map(([what, text]) => make("td", {}, ...copyable(text, what)))));
    }
  };
  table.append(make("tr", {}, make("td"), make("th", { scope: "col" }, "begin"), make("th", { scope: "col" }, "end")));
  line("trace clock, ns", String);
  line("trace clock, s", seconds);
  if (epoch) line("UTC", (ns) => wallClock(ns + epoch));
  return table;
};
