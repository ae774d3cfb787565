// The tree as it is now: a row for each level, with a bar for its share of the bytes.

import { bytes, count } from "./units.js";

const LEVELS = [0, 1, 2, 3, 4, 5, 6];
/** Levels that are shown even when they are empty. */
const SHOWN_MIN = 3;
const HEADS = ["Level", "Runs", "Files", "Entries", "Size"];

function cell(tag, text, className) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function sizeCell(size, largest, colour) {
  const element = cell("td", bytes.text(size), "size");
  const bar = document.createElement("i");
  bar.className = "size-bar";
  bar.style.width = `${largest > 0 ? (size / largest) * 100 : 0}%`;
  bar.style.background = `var(${colour})`;
  element.append(bar);
  return element;
}

export class Tree {
  constructor(host) {
    const table = document.createElement("table");
    const head = document.createElement("thead");
    const row = document.createElement("tr");
    for (const name of HEADS) {
      const heading = cell("th", name);
      heading.scope = "col";
      row.append(heading);
    }
    head.append(row);
    this.body = document.createElement("tbody");
    this.foot = document.createElement("tfoot");
    table.append(head, this.body, this.foot);
    this.note = document.createElement("p");
    this.note.className = "note";
    host.append(table, this.note);
  }

  update(history) {
    if (history.latest.size === 0) return;
    const level = (n) => ["runs", "files", "entries", "bytes"]
      .map((figure) => history.now(`level.${n}.${figure}`) ?? 0);
    const levels = LEVELS.map(level);
    const deepest = levels.findLastIndex(([, files]) => files > 0);
    const largest = Math.max(...levels.map(([, , , size]) => size));
    const rows = levels.slice(0, Math.max(SHOWN_MIN, deepest + 1)).map((figures, n) => {
      const [runs, files, entries, size] = figures;
      const row = document.createElement("tr");
      const name = cell("th", `L${n}`);
      name.scope = "row";
      row.append(name, ...[runs, files, entries].map((value) => cell("td", count.text(value))));
      row.append(sizeCell(size, largest, `--l${n}`));
      if (files === 0) row.className = "is-empty";
      return row;
    });
    this.body.replaceChildren(...rows);
    const sums = [0, 1, 2, 3].map((at) => levels.reduce((sum, figures) => sum + figures[at], 0));
    const total = document.createElement("tr");
    const name = cell("th", "All");
    name.scope = "row";
    total.append(name, ...sums.slice(0, 3).map((value) => cell("td", count.text(value))),
      cell("td", bytes.text(sums[3]), "size"));
    this.foot.replaceChildren(total);
    const waiting = history.now("memtables.waiting") ?? 0;
    const memory = bytes.text(history.now("memory.memtables"));
    const flushes = waiting > 0 ? `, ${waiting} waiting to be flushed` : "";
    const start = deepest < 0 ? "No tables yet: the first flush writes L0. " : "";
    this.note.textContent = `${start}Above the tree: memtables of ${memory}${flushes}.`;
  }
}
