// Articles: those in the page get their drawing when they come near, others are made.
const views = new Map();
const section = find("#aligned");
let filter = { symbol: null, thread: null };

const linkTo = (position, finding) => {
  const { id } = executions.get(position);
  const twice = data.executions.filter((one) => one.id === id).length > 1;
  return "#execution=" + encodeURIComponent(id) + (twice ? "&position=" + position : "")
    + (finding ? "&finding=" + finding.rank : "");
};

const chosen = (position, finding) => {
  try {
    history.replaceState(null, "", linkTo(position, finding));
  } catch { /* a sandboxed page has no address of its own */ }
  markRow(position, finding);
};

const articleOf = (position) => find("#x" + position);

const markRow = (position, finding) => {
  if (!finding) return;
  for (const row of all("table.findings tbody tr", articleOf(position))) {
    const mine = row.cells[0].textContent === String(finding.rank);
    row.classList.toggle("chosen", mine);
    row.ariaCurrent = mine ? "true" : null;
  }
};

// The rows of a findings table choose their finding.
const enliven = (article, position) => {
  for (const row of all("table.findings tbody tr", article)) {
    const cell = row.cells[0], rank = Number(cell.textContent);
    cell.replaceChildren(button(String(rank), () => {}, "Show finding " + rank, "rank"));
    row.addEventListener("click", () => {
      const marked = getSelection();
      if (!marked.isCollapsed && marked.containsNode(row, true)) return;
      const view = mount(position), finding = view?.one.findings.find((f) => f.rank === rank);
      if (!finding) return;
      chosen(position, view.select(finding));
      announce(view.words());
      const box = view.stage.getBoundingClientRect();
      if (box.top < 0 || box.top > innerHeight - 200) view.stage.scrollIntoView({ block: "center" });
    });
  }
};

// The drawing of an article, made now if it is not there yet.
const mount = (position) => {
  if (views.has(position)) return views.get(position);
  const figure = find('figure[data-position="' + position + '"]'), one = load(position);
  if (!figure || !one) return null;
  const panel = make("section", { class: "details", "aria-label": "Details" });
  panel.hidden = true;
  const view = new View(one, {
    chosen: (finding) => chosen(position, finding),
    pinned: (where) => fillDetails(panel, one, where, () => { view.pin(null); view.canvas.focus(); },
      (finding) => linkTo(position, finding)),
  });
  const still = find(".still", figure), caption = find("figcaption", figure);
  caption.before(view.tools, view.stage, view.about, panel);
  if (still) still.hidden = true;
  // The caption speaks of the still drawing, which leaves out other things.
  const beyond = one.normals - one.group.length;
  caption.textContent = listed([
    one.left_out ? count(one.left_out, "normal execution") + " of the group not aligned." : "",
    beyond ? count(beyond, "normal row") + " left out for size; all are in “most of " + one.normals + "”." : "",
    one.group.length ? "Durations of normal rows are rounded, by 0.4 % at most." : "",
  ], " ");
  views.set(position, view);
  view.stage.view = view;
  view.wanted = wantedOf(one);
  near.observe(view.stage);
  return view;
};

// Of a view's cells, those that the filters look for; null where all are.
const wantedOf = (one) => {
  const { symbol, thread } = filter;
  if (symbol === null && thread === null) return null;
  return (code, column) => (symbol === null || code === symbol)
    && (thread === null || column === null || one.steps[one.stepAt.get(column)]?.kin === thread);
};

const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (target.localName === "figure") {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(Number(target.dataset.position));
    } else {
      target.view.show(isIntersecting);
    }
  }
}, { rootMargin: "300px" });

// Brings an execution into view; the page carries articles without a drawing as templates.
const open = (position) => {
  let article = articleOf(position);
  if (!article) {
    article = find("#t" + position)?.content.cloneNode(true).firstElementChild;
    if (!article) return null;
    find("#drawn-on-demand").append(article);
    enliven(article, position);
  }
  if (article.hidden) resetFilters();
  const view = mount(position);
  article.scrollIntoView();
  // Drawings above may have come to life meanwhile and moved it.
  requestAnimationFrame(() => requestAnimationFrame(() => article.scrollIntoView()));
  return view;
};
