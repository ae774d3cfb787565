// The last second in eight figures.

import { byteRate, bytes, number, rate, share, time } from "./units.js";

const READS = ["get.rate", "head.rate", "scan.rate"];
const WRITES = ["put.rate", "delete.rate", "batch.rate"];
const DISK = ["tables", "journal_live", "journal_dead", "journal_active", "spares"]
  .map((use) => `disk.${use}`);

const TILES = [
  ["Reads", (history) => rate.text(history.nowSum(READS)), "GET, HEAD and list requests"],
  ["Writes", (history) => rate.text(history.nowSum(WRITES)), "PUT, DELETE and batch requests"],
  ["GET p99", (history) => time.text(history.now("get.p99")), "99 of 100 were faster"],
  ["PUT p99", (history) => time.text(history.now("put.p99")), "99 of 100 were faster"],
  ["Failures", (history) => rate.text(history.now("failures")), "Answers of 500 and above"],
  ["Pressure", (history) => share.text(history.now("write_pressure")), "At 100 % writers wait"],
  ["Memory", (history) => bytes.text(history.now("memory.own")), "Of its own, without mapped files"],
  ["Disk", (history) => bytes.text(history.nowSum(DISK)), "Tables and journal"],
  ["Written", (history) => byteRate.text(history.nowSum(["journal.bytes", "flush.bytes",
    "compaction.bytes", "collection.bytes"])), "Bytes to disk"],
  ["Cores in use", (history) => number.text(history.now("process.cores")), "Processor time a second"],
];

export class Tiles {
  constructor(host) {
    this.values = TILES.map(([name, , meaning]) => {
      const tile = document.createElement("div");
      tile.className = "tile";
      tile.title = meaning;
      const label = document.createElement("span");
      label.textContent = name;
      const value = document.createElement("b");
      value.textContent = "–";
      tile.append(label, value);
      host.append(tile);
      return value;
    });
  }

  update(history) {
    if (history.latest.size === 0) return;
    TILES.forEach(([, text], at) => {
      this.values[at].textContent = text(history);
    });
  }
}
