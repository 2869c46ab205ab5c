// Filters above the articles: what does not match is hidden, and counted.
let resetFilters = () => {};

const setUpFilters = () => {
  const first = find("article", section);
  if (!first) return;
  const choose = (name, values, say) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    const options = [...counts].map(([value, n]) => [say(value) + " (" + n + ")", value]).sort();
    const select = make("select", { id: "filter-" + name }, make("option", { value: "" }, "all"),
      ...options.map(([text, value]) => make("option", { value }, text)));
    form.append(make("label", { for: select.id }, name), select);
    select.addEventListener("change", () => apply());
    return select;
  };
  const typeOf = (one) => listed([one.type, one.label]) || "none";
  const form = make("form", { class: "filters", "aria-label": "Filters" });
  const type = choose("type", data.executions.map(typeOf), (name) => name);
  const state = choose("state", data.executions.flatMap((one) => one.states), (code) => data.symbols[code].name);
  const thread = choose("thread", data.executions.flatMap((one) => one.threads), (i) => data.threads[i]);
  const undo = button("reset", () => resetFilters(), "Show all executions");
  const said = make("span", { class: "said", role: "status" });
  form.append(undo);
  const picker = make("select", { id: "pick" });
  form.append(make("label", { for: "pick" }, "go to"), picker, said);
  picker.addEventListener("change", () => {
    if (picker.value) follow(linkTo(Number(picker.value)), true);
    picker.value = "";
  });

  const apply = () => {
    const number = (select) => (select.value === "" ? null : Number(select.value));
    filter = { symbol: number(state), thread: number(thread) };
    const matches = data.executions.filter((one) => (!type.value || typeOf(one) === type.value)
      && (filter.symbol === null || one.states.includes(filter.symbol))
      && (filter.thread === null || one.threads.includes(filter.thread)));
    const kept = new Set(matches.map((one) => one.position));
    for (const { position } of data.executions) {
      const article = articleOf(position);
      if (article) article.hidden = !kept.has(position);
    }
    for (const view of views.values()) { view.wanted = wantedOf(view.one); view.ask(); }
    picker.replaceChildren(make("option", { value: "" }, "an execution"), ...matches.map((one) =>
      make("option", { value: one.position }, listed([one.name ?? one.id, one.label, one.excess]))));
    const hidden = data.executions.length - matches.length;
    const rest = matches.filter((one) => !articleOf(one.position)).length;
    undo.disabled = !type.value && filter.symbol === null && filter.thread === null;
    said.textContent = listed([
      count(matches.length, "execution") + " listed, " + hidden.toLocaleString("en") + " hidden by the filters",
      rest ? rest.toLocaleString("en") + " of those listed are drawn when chosen under “go to”" : "",
    ], "; ") + ".";
  };
  resetFilters = () => {
    type.value = state.value = thread.value = "";
    apply();
  };
  (find("ul.legend", section) ?? first).before(form);
  section.append(make("div", { id: "drawn-on-demand" }));
  apply();
};
