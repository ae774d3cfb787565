// The rows that the page holds, and how it gets those it lacks.
//
// The server numbers rows; each request asks for those from the first unknown number on. A server
// that was restarted says another `run`, and everything held is void.

export const SPANS = {
  "5m": { seconds: 300, poll_ms: 1000 },
  "1h": { seconds: 3600, poll_ms: 2000 },
  "24h": { seconds: 86400, poll_ms: 5000 },
};

const PATIENCE_MS = 5000;

export class History {
  constructor() {
    this.setSpan("5m");
  }

  setSpan(span) {
    this.span = span;
    this.clear();
  }

  clear() {
    this.run = null;
    this.next = 0;
    this.interval_s = 1;
    this.times = [];
    this.columns = new Map();
    this.latest = new Map();
    this.server = null;
  }

  /** Asks for what is new; throws when the server can't be reached. */
  async fetchNew() {
    const span = this.span;
    const response = await fetch(`/dashboard.json?span=${span}&since=${this.next}`, {
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    const reply = await response.json();
    // The choice may have changed meanwhile; those rows aren't of this span.
    if (span !== this.span) return;
    if (this.run !== null && this.run !== reply.run) {
      this.clear();
      await this.fetchNew();
      return;
    }
    this.take(reply);
  }

  take(reply) {
    this.run = reply.run;
    this.next = reply.next;
    this.interval_s = reply.interval_s;
    this.server = reply.server;
    const rows = reply.times.length;
    const kept = this.firstKept(reply.times);
    this.times = this.times.slice(kept).concat(reply.times.map((ms) => ms / 1000));
    reply.names.forEach((name, at) => {
      const column = reply.columns[at];
      const values = Array.isArray(column) ? column : new Array(rows).fill(column);
      const held = this.columns.get(name) ?? [];
      this.columns.set(name, held.slice(kept).concat(values));
      this.latest.set(name, reply.latest[at] ?? null);
    });
  }

  /** How many of the rows held are too old once these come. */
  firstKept(newTimes) {
    if (newTimes.length === 0) return 0;
    const from = newTimes[newTimes.length - 1] / 1000 - this.seconds() - 2 * this.interval_s;
    const first = this.times.findIndex((time) => time >= from);
    return first < 0 ? this.times.length : first;
  }

  seconds() {
    return SPANS[this.span].seconds;
  }

  /** The values of a column, one for each of `times`. */
  column(name) {
    return this.columns.get(name) ?? new Array(this.times.length).fill(null);
  }

  /** The last second's value of a column, whatever the span; null if there is none. */
  now(name) {
    return this.latest.get(name) ?? null;
  }

  /** The sum of the last second's values. */
  nowSum(names) {
    return names.reduce((sum, name) => sum + (this.now(name) ?? 0), 0);
  }

  /** From when to when charts reach, in seconds since 1970. */
  range() {
    const last = this.times.length > 0 ? this.times[this.times.length - 1] : Date.now() / 1000;
    return [last - this.seconds(), last];
  }
}
