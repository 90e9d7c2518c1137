// Late parts of a page: an element with data-part gets the HTML of that URL, and again every
// data-every seconds while the page is visible. A part that fails says so in its own place.

async function load(element) {
  element.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(element.dataset.part, { headers: { "X-Part": "1" } });
    const text = await answer.text();
    if (!answer.headers.get("content-type")?.startsWith("text/html")) throw new Error(text);
    const open = new Set([...element.querySelectorAll("details[open][id]")].map((one) => one.id));
    element.innerHTML = text;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  } catch (error) {
    const note = document.createElement("p");
    note.className = "notice bad";
    note.textContent = `These figures could not be loaded (${error.message}). Reload the page to try again.`;
    element.replaceChildren(note);
  }
  element.removeAttribute("aria-busy");
}

function idle(element) {
  // Nothing is replaced while it is in use.
  return !document.hidden && !element.contains(document.activeElement);
}

export function startParts() {
  for (const element of document.querySelectorAll("[data-part]")) {
    const every = Number(element.dataset.every || 0) * 1000;
    const turn = async (first) => {
      if (first || idle(element)) await load(element);
      if (every) setTimeout(turn, every, false);
    };
    turn(!element.hasAttribute("data-loaded"));
  }
}
