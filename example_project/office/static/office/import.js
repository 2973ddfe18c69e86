// Shows how far the latest import of price lists is, once a second until it has ended.
const box = document.getElementById("price-import");
const find = (name) => document.getElementById(`price-import-${name}`);

function show({ state, done, total, failed }) {
  find("word").textContent = state;
  find("bar").max = total || 1;
  find("bar").value = done;
  find("steps").textContent = `${done} of ${total} steps` + (failed ? `, ${failed} failed` : "");
}

async function look() {
  let is_running = true;
  try {
    const found = await (await fetch(box.dataset.url, { signal: AbortSignal.timeout(5000) })).json();
    if (found.state) show(found);
    is_running = found.is_running;
  } catch {
    // The site is being deployed, for example: ask again.
  }
  if (is_running) setTimeout(look, 1000);
}

if (box && "isRunning" in box.dataset) look();
