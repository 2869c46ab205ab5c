// Links to a finding, the theme, and the start.
const complaint = make("p", { class: "complaint", role: "alert" });
complaint.hidden = true;
const complain = (text) => {
  complaint.hidden = !text;
  complaint.textContent = text;
};

// #execution=ID&finding=RANK, and #x17 where there is no article 17 in the page.
const follow = (hash, update) => {
  complain("");
  const plain = /^#x(\d+)$/.exec(hash), asked = new URLSearchParams(plain ? "" : hash.slice(1).replaceAll("+", "%2B"));
  if (!plain && !asked.has("execution")) return;
  const id = plain ? null : asked.get("execution"), rank = asked.get("finding");
  const one = plain ? executions.get(Number(plain[1])) : data.executions.find((e) => e.id === id
    && (!asked.has("position") || String(e.position) === asked.get("position")));
  if (!one) {
    if (!plain || !articleOf(plain[1])) {
      complain("This report has no aligned execution " + (plain ? plain[1] : "\u201c" + id + "\u201d") + ".");
    }
    return;
  }
  const view = open(one.position);
  if (!view?.one) return;
  const finding = view.one.findings.find((f) => String(f.rank) === rank);
  if (finding) {
    view.select(finding);
    markRow(one.position, finding);
  } else if (rank !== null) {
    complain("Execution \u201c" + one.id + "\u201d has no finding " + rank + ".");
  }
  if (update) chosen(one.position, finding ?? null);
  view.canvas.focus({ preventScroll: true });
};

const stored = {
  get: () => { try { return localStorage.getItem("critpath-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("critpath-theme", value); } catch { /* no storage here */ } },
};
const darkness = matchMedia("(prefers-color-scheme: dark)");
const setUpTheme = () => {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
  const toggle = button("", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored.set(root.dataset.theme);
    renew();
  }, "", "theme");
  const renew = () => {
    toggle.textContent = isDark() ? "light" : "dark";
    toggle.setAttribute("aria-label", "Switch to " + toggle.textContent + " colours");
    refreshLooks();
    views.forEach((view) => view.ask());
  };
  const known = stored.get();
  if (known === "dark" || known === "light") root.dataset.theme = known;
  darkness.addEventListener("change", renew);
  addEventListener("resize", renew);
  find("header").append(toggle);
  renew();
};

setUpTheme();
find("header").after(complaint);
if (section) {
  setUpFilters();
  for (const figure of all("figure[data-position]", section)) {
    enliven(figure.closest("article"), Number(figure.dataset.position));
    near.observe(figure);
  }
}
addEventListener("hashchange", () => follow(location.hash, false));
if (location.hash) follow(location.hash, false);
