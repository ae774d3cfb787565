// The page: asks for what is new, shows it, and says so when the server is lost.

import { Chart } from "./chart.js";
import { History, SPANS } from "./history.js";
import { PANELS } from "./panels.js";
import { Profiler } from "./profile.js";
import { Tiles } from "./tiles.js";
import { Tree } from "./tree.js";
import { clock, count, duration } from "./units.js";

const RETRY_MS = 2000;

const find = (id) => document.getElementById(id);
const history = new History();
const tiles = new Tiles(find("tiles"));
const tree = new Tree(document.querySelector("#levels .body"));
const charts = [];
new Profiler(find("profiler"));

for (const host of document.querySelectorAll("[data-panels]")) {
  for (const panel of PANELS[host.dataset.panels]) {
    const chart = new Chart(panel, history);
    charts.push(chart);
    host.append(chart.element);
  }
}

let isPaused = false;
let lostSince = null;
let timer = null;
let isAsking = false;

function showServer() {
  const { server, run } = history;
  if (!server) return;
  const state = find("state");
  const isReady = !server.read_only && !server.is_stopping;
  state.textContent = server.is_stopping ? "stopping" : isReady ? "ready" : "read-only";
  state.dataset.state = isReady ? "good" : "bad";
  // By the server's clock alone: the page may be shown elsewhere.
  const up = duration(history.range()[1] - run / 1000);
  find("about").textContent = `version ${server.version}, up ${up}`;
  const every = history.now("sample_every");
  find("sampling").textContent =
    every === null ? ""
      : every === 0 ? "Timing is off."
        : every === 1 ? "Every operation is timed."
          : `One operation in ${count.text(every)} is timed.`;
  const warnings = [];
  if (server.read_only) warnings.push(`No writes are taken until the store is reopened: ${server.read_only}.`);
  if (server.background_error) warnings.push(`Background work fails and is retried: ${server.background_error}.`);
  find("warning").hidden = warnings.length === 0;
  find("warning").textContent = warnings.join(" ");
}

function showLost() {
  const isLost = lostSince !== null;
  find("lost").hidden = !isLost;
  document.body.classList.toggle("is-lost", isLost);
  if (!isLost) return;
  find("lost").textContent =
    `The server can't be reached since ${clock(lostSince)}. What is shown is from before; trying again every ${RETRY_MS / 1000} s.`;
  find("state").textContent = "lost";
  find("state").dataset.state = "bad";
}

function show() {
  showServer();
  tiles.update(history);
  tree.update(history);
  for (const chart of charts) chart.update();
}

async function ask() {
  if (isAsking) return;
  isAsking = true;
  clearTimeout(timer);
  const span = history.span;
  try {
    await history.fetchNew();
    lostSince = null;
  } catch {
    lostSince ??= Date.now() / 1000;
  }
  isAsking = false;
  if (lostSince === null) show();
  showLost();
  // A change of span while the answer was under way is served at once.
  if (span !== history.span) return ask();
  // Nobody looks at a hidden page; what it misses it asks for when it is shown again.
  if (!isPaused && !document.hidden) {
    timer = setTimeout(ask, lostSince === null ? SPANS[span].poll_ms : RETRY_MS);
  }
}

for (const button of find("spans").children) {
  button.addEventListener("click", () => {
    for (const other of find("spans").children) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    history.setSpan(button.dataset.span);
    ask();
  });
}

find("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  find("pause").setAttribute("aria-pressed", String(isPaused));
  find("pause").textContent = isPaused ? "Resume" : "Pause";
  clearTimeout(timer);
  if (!isPaused) ask();
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isPaused) ask();
});
addEventListener("themechange", () => {
  for (const chart of charts) chart.plot?.redraw();
});
ask();
