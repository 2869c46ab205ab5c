// The flame graph: click or Enter zooms, Escape goes back, a line below tells the box in focus.
const boxes = all(".flame .f").map((element) => {
  const [left, width, depth] = element.dataset.at.split(" ").map(Number);
  return { element, left, width, depth };
});
const within = (one, other) =>
  one.left >= other.left - 2e-3 && one.left + one.width <= other.left + other.width + 2e-3;
const zoom = (to) => {
  for (const box of boxes) {
    const above = box.depth < to.depth && within(to, box);
    const inside = box.depth >= to.depth && within(box, to);
    box.element.hidden = !above && !inside;
    const left = above ? 0 : (box.left - to.left) / to.width * 100;
    box.element.style.left = `${left}%`;
    box.element.style.width = above ? "100%" : `${box.width / to.width * 100}%`;
  }
};
const tell = (box) => { one("#box").textContent = box.element.title; };
for (const box of boxes) {
  box.element.addEventListener("click", () => zoom(box));
  box.element.addEventListener("focus", () => tell(box));
  box.element.addEventListener("mouseenter", () => tell(box));
}
if (boxes.length) {
  addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(boxes[0]); });
  addEventListener("beforeprint", () => zoom(boxes[0]));
}
