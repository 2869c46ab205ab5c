// Links to a finding, the theme, and the start.
const complaint = make("p", { class: "complaint", role: "alert" });
complaint.hidden = true;
const complain = (text) => {
  complaint.hidden = !text;
  complaint.textContent = text;
};

// #execution=ID&finding=RANK; and #x17 and #x17f2, as the page's links say without scripts.
const follow = (hash, update) => {
  complain("");
  const plain = /^#x(\d+)(?:f(\d+))?$/.exec(hash), asked = new URLSearchParams(plain ? "" : hash.slice(1).replaceAll("+", "%2B"));
  if (!plain && !asked.has("execution")) return;
  const id = plain ? null : asked.get("execution"), rank = plain ? plain[2] : asked.get("finding");
  const one = plain ? executions.get(Number(plain[1])) : data.executions.find((e) => e.id === id
    && (!asked.has("position") || String(e.position) === asked.get("position")));
  if (!one) {
    complain("This report draws no execution " + (plain ? plain[1] : "“" + id + "”") + ": not anomalous, or unknown.");
    return;
  }
  const view = open(one.position);
  if (!view) return;
  const finding = view.one.findings.find((f) => String(f.rank) === rank);
  if (finding) {
    // The details would push the findings out of view.
    view.select(finding, false);
    markRow(one.position, finding);
  } else if (rank) {
    complain("Execution “" + one.id + "” has no finding " + rank + ".");
  }
  if (update) chosen(one.position, finding ?? null);
  view.canvas.focus({ preventScroll: true });
};

const darkness = matchMedia("(prefers-color-scheme: dark)");
const setUpTheme = () => {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
  const toggle = button("", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("critpath-theme", root.dataset.theme); } catch { /* no storage here */ }
    renew();
  }, "", "theme");
  const renew = () => {
    toggle.textContent = isDark() ? "light" : "dark";
    toggle.title = toggle.ariaLabel = "Switch to " + toggle.textContent + " colours";
    refreshLooks();
    views.forEach((view) => view.ask());
  };
  try {
    const known = localStorage.getItem("critpath-theme");
    if (known === "dark" || known === "light") root.dataset.theme = known;
  } catch { /* no storage here */ }
  darkness.addEventListener("change", renew);
  addEventListener("resize", renew);
  find("header").prepend(toggle);
  renew();
};

setUpTheme();
document.body.prepend(complaint);
if (section) {
  setUpFilters();
  for (const figure of all("figure[data-position]", section)) {
    enliven(figure.closest("article"), Number(figure.dataset.position));
    near.observe(figure);
  }
}
// Executions that the page did not draw are named with their position: now they can be linked.
for (const place of all("span[data-position]")) {
  const position = Number(place.dataset.position);
  if (executions.has(position)) place.replaceChildren(make("a", { href: linkTo(position) }, place.textContent));
}
addEventListener("hashchange", () => follow(location.hash, false));
if (location.hash) follow(location.hash, false);
