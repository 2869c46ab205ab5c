// What the scripts of all pages begin with: elements, the page's data, its theme, short messages.
document.documentElement.classList.add("js");
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = JSON.parse(one("#data").textContent);

// Columns: a type and bytes.
const TYPES = {u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array};
const decode = ([kind, text]) => {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  return new TYPES[kind](bytes.buffer);
};

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const turnTheme = () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; };
one("#theme").addEventListener("click", turnTheme);
const toast = (text) => {
  const shown = document.createElement("div");
  shown.className = "toast";
  shown.setAttribute("role", "status");
  shown.textContent = text;
  document.body.append(shown);
  setTimeout(() => shown.remove(), 1600);
};
