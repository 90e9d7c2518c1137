// Behaviour of all pages. Every page works without it, but for live figures and copying.
import { startParts } from "./parts.js";
import { startTail } from "./tail.js";

// "Copy as command": the text of the nearest code element.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code, pre");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    // Outside of HTTPS and loopback a browser has no clipboard for pages: select the text instead.
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1600);
});

// Destructive forms: the button is enabled once the name is typed. The server checks it too.
for (const input of document.querySelectorAll("input[data-must-equal]")) {
  const button = input.form.querySelector("button.danger");
  const check = () => { button.disabled = input.value !== input.dataset.mustEqual; };
  input.addEventListener("input", check);
  check();
}

// A form whose choices show or hide fields: data-shown-for lists values of the select it names.
for (const part of document.querySelectorAll("[data-shown-for]")) {
  const select = document.getElementById(part.dataset.shownBy);
  const show = () => { part.hidden = !part.dataset.shownFor.split(" ").includes(select.value); };
  select.addEventListener("change", show);
  show();
}

// Keys: / filters, g and a letter goes to a page, ? lists them.
const pages = { o: "/", b: "/brokers", t: "/topics", c: "/groups", s: "/share-groups", d: "/dead-letters", x: "/transactions", a: "/access", r: "/reassignments" };
let went = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    const filter = document.querySelector("input[type=search]");
    if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
  } else if (event.key === "?") {
    document.getElementById("keys").showModal();
  } else if (event.key === "g") {
    went = event.timeStamp;
  } else if (event.timeStamp - went < 1500 && pages[event.key]) {
    location.assign(pages[event.key]);
  }
});
document.querySelector("[data-opens=keys]")?.addEventListener("click", () => document.getElementById("keys").showModal());

startParts();
startTail();
