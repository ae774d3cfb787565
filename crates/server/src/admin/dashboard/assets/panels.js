// What is drawn, in which colours, and what each chart says while there is nothing to draw.
//
// A series is a column of the history (`name`), or made of several (`of`). Names of columns are those
// of the server's rows. The same thing has the same colour everywhere.

import { byteRate, bytes, count, number, rate, share, time, timeRate } from "./units.js";

const OPERATIONS = {
  get: ["GET", "--blue"],
  head: ["HEAD", "--sky"],
  put: ["PUT", "--orange"],
  delete: ["DELETE", "--red"],
  scan: ["list", "--green"],
  batch: ["batch", "--purple"],
  files: ["files", "--l2"],
  s3: ["S3", "--l3"],
  other: ["other", "--grey"],
};

const PERCENTILES = {
  p50: ["p50", "--p50"],
  p99: ["p99", "--p99"],
  p999: ["p99.9", "--p999"],
  max: ["longest", "--max"],
};

const LEVELS = {
  memory: ["memtables", "--memory"],
  l0: ["L0", "--l0"],
  l1: ["L1", "--l1"],
  l2: ["L2", "--l2"],
  lower: ["L3 and below", "--l3"],
  missed: ["nowhere", "--missed"],
};

/** Series of columns `before + key + after`, with labels and colours by key. */
function columns(kinds, before, after = "", keys = Object.keys(kinds)) {
  return keys.map((key) => {
    const [label, colour] = kinds[key];
    return { name: before + key + after, label, colour };
  });
}

const series = (name, label, colour, dash) => ({ name, label, colour, dash });

/** The share that `part` has of `part` and `rest`; null where there was neither. */
const shareOf = (part, rest) => (history) => {
  const others = history.column(rest);
  return history.column(part).map((value, at) => {
    const sum = (value ?? 0) + (others[at] ?? 0);
    return sum > 0 ? value / sum : null;
  });
};

const requests = [
  {
    name: "throughput", title: "Requests by operation", unit: rate,
    series: columns(OPERATIONS, "", ".rate"),
    empty: "No requests yet. The first one on the data listener appears here within a second.",
  },
  {
    name: "latency", title: "Latency by operation", unit: time, isLog: true,
    choices: {
      label: "Percentile", selected: "p99",
      options: { p50: "p50", p99: "p99", p999: "p99.9", max: "longest" },
    },
    series: (percentile) => columns(OPERATIONS, "", `.${percentile}`),
    empty: "No requests yet. Latency is from a request's head being read to its answer being ready.",
  },
  {
    name: "spread", title: "Latency of one operation", unit: time, isLog: true,
    choices: {
      label: "Operation", selected: "get",
      options: { get: "GET", head: "HEAD", put: "PUT", delete: "DELETE", scan: "list", batch: "batch" },
    },
    series: (operation) => columns(PERCENTILES, `${operation}.`),
    empty: "No such request yet. Its median and its slowest appear with the first one.",
  },
  {
    name: "bytes", title: "Bytes over HTTP", unit: byteRate,
    series: [
      series("bytes.received", "received", "--orange"),
      series("bytes.sent", "sent", "--blue"),
    ],
    empty: "No bytes yet. Heads and bodies of both directions count.",
  },
];

const stages = [
  {
    name: "get", title: "GET by stage", unit: time, isStacked: true, isSampled: true,
    series: [
      series("stage.get.head", "finding the entry", "--sky"),
      series("stage.get.body", "getting the value", "--blue"),
      series("stage.get.rest", "rest", "--grey"),
    ],
    empty: "No GET was timed yet. One in some hundred is, so a few hundred make the first point.",
  },
  {
    name: "put", title: "PUT by stage", unit: time, isStacked: true, isSampled: true,
    series: [
      series("stage.put.prepare", "prepare", "--yellow"),
      series("stage.put.stall", "stall", "--red"),
      series("stage.put.wait", "write queue", "--purple"),
      series("stage.put.journal", "journal", "--orange"),
      series("stage.put.memtable", "memtable", "--green"),
      series("stage.put.sync", "sync", "--blue"),
      series("stage.put.rest", "rest", "--grey"),
    ],
    empty: "No write was timed yet. One in some hundred is, so a few hundred make the first point.",
  },
  {
    name: "head", title: "Finding an entry, by level it was in", unit: time,
    isStacked: true, isSampled: true,
    note: "What a HEAD does, and a GET before it gets the value. Each level's share of the mean.",
    series: columns(LEVELS, "stage.head."),
    empty: "No look-up was timed yet. One in some hundred is, so a few hundred make the first point.",
  },
  {
    name: "table", title: "Finding an entry, inside the tables", unit: time,
    isStacked: true, isSampled: true,
    note: "What of the same mean went into table files.",
    series: [
      series("stage.table.index", "finding the file", "--yellow"),
      series("stage.table.filter", "point index", "--purple"),
      series("stage.table.recent", "read lately", "--green"),
      series("stage.table.cache", "block from cache", "--sky"),
      series("stage.table.fetch", "block from file", "--orange"),
      series("stage.table.search", "search in block", "--blue"),
    ],
    empty: "No look-up in a table was timed yet. Until the first flush every entry is in memory.",
  },
  {
    name: "waits", title: "Waiting, by what for", unit: timeRate, isStacked: true,
    note: "Time that threads waited, in each second. A lock that is free costs nothing and isn't here.",
    series: [
      series("wait.lock.commit", "lock.commit", "--orange"),
      series("wait.lock.memtable", "lock.memtable", "--green"),
      series("wait.lock.log", "lock.log", "--red"),
      series("wait.lock.sync", "lock.sync", "--blue"),
      series("wait.lock.spares", "lock.spares", "--grey"),
      series("wait.lock.flushes", "lock.flushes", "--sky"),
      series("wait.lock.tree", "lock.tree", "--purple"),
      series("wait.lock.install", "lock.install", "--yellow"),
      series("wait.sync.wait", "another's sync", "--p50"),
    ],
    empty: "Nobody waited for a lock or a sync yet.",
  },
  {
    name: "stalls", title: "Write pressure", unit: share, max: 1,
    note: "How far background work lags. At 100 % writers wait.",
    series: [series("write_pressure", "pressure", "--red")],
    empty: "None: flushes keep up with writing.",
  },
];

const exits = [
  {
    name: "exits", title: "By level", unit: rate, isStacked: true,
    series: columns(LEVELS, "exit.head."),
    empty: "No reads yet: the share of each level appears with the first GET or HEAD.",
  },
  {
    name: "files", title: "Requests to files, by what answered", unit: rate, isStacked: true,
    note: "Cheapest first. An absent key should end at the file list or the point index.",
    series: [
      series("exit.file.index", "no file covers the key", "--yellow"),
      series("exit.file.filter", "point index: not there", "--purple"),
      series("exit.file.recent", "read lately", "--green"),
      series("exit.file.cache", "block from cache", "--sky"),
      series("exit.file.block", "block from file", "--orange"),
      series("exit.file.in_vain", "block read in vain", "--red"),
    ],
    empty: "No file was asked yet: what was read so far was in memory, or nothing was read.",
  },
  {
    name: "cache", title: "Answered from the block cache", unit: share, max: 1,
    series: [{
      label: "of blocks", colour: "--sky", of: shareOf("cache.hits", "cache.misses"),
    }],
    empty: "The block cache was not asked yet. It serves reads by pread and compressed blocks.",
  },
  {
    name: "values", title: "Where values were", unit: rate, isStacked: true,
    series: [
      series("exit.value.inline", "in the entry", "--sky"),
      series("exit.value.journal", "in the journal", "--orange"),
    ],
    empty: "No value was read yet.",
  },
];

const tree = [
  {
    name: "levels", title: "Bytes by level", unit: bytes, isStacked: true,
    series: [0, 1, 2, 3, 4, 5, 6].map((n) => series(`level.${n}.bytes`, `L${n}`, `--l${n}`)),
    empty: "The tree is empty: everything written is in memory and in the journal. The first flush writes L0.",
  },
];

const work = [
  {
    name: "work", title: "Bytes written to disk", unit: byteRate, isStacked: true,
    series: [
      series("journal.bytes", "journal", "--orange"),
      series("flush.bytes", "flush", "--green"),
      series("compaction.bytes", "compaction", "--purple"),
      series("collection.bytes", "collection", "--red"),
    ],
    empty: "Nothing was written yet.",
  },
  {
    name: "jobs", title: "Jobs done", unit: rate,
    series: [
      series("flushes", "flushes", "--green"),
      series("compactions", "compactions", "--purple"),
      series("collections", "collections", "--red"),
      series("syncs", "journal syncs", "--blue"),
    ],
    empty: "No flush, compaction, collection or sync in this time.",
  },
  {
    name: "amplification", title: "Bytes in and out of the tree", unit: byteRate,
    series: [
      series("user.bytes", "keys and values put", "--grey", [4, 3]),
      series("compaction.bytes_read", "read by compactions", "--sky"),
      series("compaction.bytes", "written by compactions", "--purple"),
    ],
    empty: "Nothing was put and nothing was merged in this time.",
  },
  {
    name: "slowed", title: "Writes slowed by a stall", unit: timeRate,
    note: "Time that writers were held back in each second, because flushes lag.",
    series: [series("stall.time", "held back", "--red")],
    empty: "No write was slowed in this time.",
  },
];

const sizes = [
  {
    name: "memory", title: "Memory of the process", unit: bytes, isStacked: true,
    note: "Files that are mapped are resident too, but belong to the system's page cache.",
    series: [
      series("memory.memtables", "memtables", "--green"),
      series("memory.spare_memtables", "kept for memtables", "--yellow"),
      series("memory.block_cache", "block cache", "--sky"),
      series("memory.indexes", "indexes of tables and of moved values", "--blue"),
      series("memory.bodies", "bodies and large values", "--orange"),
      series("memory.rest", "rest of its own", "--purple"),
      series("memory.mapped", "mapped files", "--grey"),
    ],
    empty: "The system doesn't tell.",
  },
  {
    name: "disk", title: "Disk", unit: bytes, isStacked: true,
    series: [
      series("disk.tables", "tables", "--purple"),
      series("disk.journal_live", "journal, in use by tables", "--orange"),
      series("disk.journal_dead", "journal, dead or unflushed", "--red"),
      series("disk.journal_active", "segment being written", "--yellow"),
      series("disk.spares", "spare segments", "--grey"),
    ],
    empty: "No files yet.",
  },
  {
    name: "connections", title: "Connections and requests under way", unit: count,
    series: [
      series("connections", "connections", "--blue"),
      series("in_flight", "requests that wait", "--orange"),
    ],
    empty: "No connection to the data listener yet.",
  },
  {
    name: "processor", title: "Processor", unit: number,
    series: [series("process.cores", "cores in use", "--blue")],
    empty: "Idle.",
  },
];

/** By the place in the page that shows them. */
export const PANELS = { requests, stages, exits, tree, work, sizes };
