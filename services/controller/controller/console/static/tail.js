// Live tail: records after the last one shown, fetched while the page is visible.
const KEPT = 500;

export function startTail() {
  const list = document.querySelector("[data-tail]");
  if (!list) return;
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("tail-pause");
  let after = list.dataset.after;
  let paused = false;
  pause?.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Continue" : "Pause";
    state.textContent = paused ? "Paused" : "Waiting for records";
  });
  const turn = async () => {
    let pauseMs = 1000;
    if (!paused && !document.hidden) {
      try {
        const url = new URL(list.dataset.tail, location.href);
        url.searchParams.set("after", after);
        const answer = await fetch(url, { headers: { "X-Part": "1" } });
        const text = await answer.text();
        if (!answer.ok) throw new Error(answer.statusText);
        after = answer.headers.get("X-After") || after;
        const holder = document.createElement("template");
        holder.innerHTML = text;
        const rows = [...holder.content.querySelectorAll(".record")];
        for (const row of rows) { row.classList.add("new"); list.prepend(row); }
        while (list.children.length > KEPT) list.lastElementChild.remove();
        state.textContent = rows.length ? `${rows.length} new` : "Waiting for records";
        if (rows.length) document.getElementById("tail-empty")?.remove();
      } catch (error) {
        state.textContent = `Not reachable (${error.message}), trying again`;
        pauseMs = 3000;
      }
    }
    setTimeout(turn, pauseMs);
  };
  turn();
}
