// One drawing area: uPlot with this page's axes, stacks, gaps and cursor. It knows numbers and
// colours, not what they mean.

import { clock, shortClock } from "./units.js";

const HEIGHT = 190;
const FONT = "11px system-ui, sans-serif";
const CLOCK_STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600];
/** Between samples no further apart than this the line is drawn through. */
const BRIDGE_S = 30;

/** How far from a row the cursor still means it, in pixels. */
const CURSOR_REACH = 24;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Sums from the bottom up; a moment at which no series has a value has no sum. */
function stack(columns) {
  let below = null;
  return columns.map((column) => {
    const lower = below;
    const sums = column.map((value, at) => {
      if (columns.every((other) => other[at] === null)) return null;
      return (value ?? 0) + (lower ? lower[at] : 0);
    });
    below = sums;
    return sums;
  });
}

/** Points of a line that have no neighbour, which a line alone would not show. */
function lonePoints(plot, series) {
  const values = plot.data[series];
  const lone = [];
  for (let at = 0; at < values.length; at += 1) {
    if (values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) {
      lone.push(at);
    }
  }
  return lone;
}

/** Gaps that stay open: those too long to be the pause between two samples. */
function longGaps(plot, series, from, to, gaps) {
  const [start, end] = [plot.scales.x.min, plot.scales.x.max];
  const bridge_s = Math.max(BRIDGE_S, (end - start) / 60);
  const width = (bridge_s / (end - start)) * plot.bbox.width;
  return gaps.filter(([left, right]) => right - left > width);
}

function logRange(plot, min, max) {
  if (!(max > 0)) return [1, 1000];
  const low = Math.floor(Math.log10(min));
  return [10 ** low, 10 ** Math.max(Math.ceil(Math.log10(max)), low + 1)];
}

/** Whole powers of ten: a log axis with a line for each digit is all lines. */
function decades(plot, axis, min, max) {
  const powers = [];
  for (let power = Math.round(Math.log10(min)); 10 ** power <= max * 1.001; power += 1) {
    powers.push(10 ** power);
  }
  return powers;
}

export class Plot {
  /**
   * `spec`: series ({label, colour, dash}), unit, isStacked, isLog, isSampled, max, and functions
   * range() and onCursor(row or null).
   */
  constructor(host, spec) {
    this.host = host;
    this.spec = spec;
    this.isHovered = false;
    this.values = [];
    this.tooltip = document.createElement("div");
    this.tooltip.className = "tooltip";
    this.tooltip.hidden = true;
    this.uplot = new uPlot(this.options(), [[], ...spec.series.map(() => [])], host);
    host.append(this.tooltip);
    this.uplot.over.addEventListener("mouseenter", () => this.hover(true));
    this.uplot.over.addEventListener("mouseleave", () => this.hover(false));
  }

  options() {
    const { series, unit, isStacked, isLog, max, range } = this.spec;
    const axis = { stroke: () => css("--soft"), font: FONT, ticks: { show: false } };
    const grid = { stroke: () => css("--grid"), width: 1 };
    const linear = (plot, from, to) => [0, max ?? (to > 0 ? to * 1.08 : 1)];
    return {
      width: this.width(),
      height: HEIGHT,
      padding: [8, 6, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: false, y: false },
        y: false,
        sync: { key: "tallybook" },
        points: { show: !isStacked, size: 6 },
      },
      scales: {
        x: { time: true, range: () => range() },
        y: isLog ? { distr: 3, range: logRange } : { range: linear },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 58, incrs: CLOCK_STEPS, size: 22, gap: 4,
          values: (plot, ticks) => ticks.map(shortClock) },
        { ...axis, grid, size: 68, gap: 6, space: 34, incrs: unit.steps,
          ...(isLog && { splits: decades, filter: (plot, ticks) => ticks }),
          values: (plot, ticks) => ticks.map(unit.axis) },
      ],
      series: [{}, ...series.map((one) => this.line(one))],
      bands: isStacked
        ? series.slice(1).map((one, at) => ({ series: [at + 2, at + 1], fill: this.fill(one) }))
        : [],
      hooks: { setCursor: [() => this.showCursor()] },
    };
  }

  line(series) {
    const { isStacked, isSampled } = this.spec;
    return {
      label: series.label,
      stroke: () => css(series.colour),
      // A part of nothing would draw its line over the part below it.
      width: isStacked ? 0 : 1.75,
      ...(series.dash && { dash: series.dash }),
      ...(isStacked && { fill: this.fill(series) }),
      ...(isSampled && { gaps: longGaps }),
      points: { show: true, filter: lonePoints, size: 4, fill: () => css(series.colour) },
    };
  }

  fill(series) {
    return () => `${css(series.colour)}d4`;
  }

  width() {
    return Math.max(160, this.host.clientWidth);
  }

  resize() {
    this.uplot.setSize({ width: this.width(), height: HEIGHT });
  }

  redraw() {
    this.uplot.redraw(false, true);
  }

  setData(times, values) {
    this.values = values;
    this.uplot.setData([times, ...(this.spec.isStacked ? stack(values) : values)]);
    if (this.isHovered) this.showCursor();
  }

  hover(isHovered) {
    this.isHovered = isHovered;
    this.showCursor();
  }

  /** Moves the cursor by so many rows, as the arrow keys do. */
  step(rows) {
    const times = this.uplot.data[0];
    if (times.length === 0) return;
    const [start] = this.spec.range();
    const first = Math.max(0, times.findIndex((time) => time >= start));
    const from = this.uplot.cursor.idx ?? times.length - (rows > 0 ? 2 : 0);
    const row = Math.min(times.length - 1, Math.max(first, from + rows));
    this.isHovered = true;
    const left = this.uplot.valToPos(times[row], "x");
    this.uplot.setCursor({ left, top: this.uplot.over.clientHeight / 3 }, true, true);
  }

  leave() {
    this.isHovered = false;
    this.uplot.setCursor({ left: -10, top: -10 }, true, true);
  }

  /** The row under the cursor; null where there is none, though uPlot names the nearest. */
  rowAtCursor() {
    const { left, idx } = this.uplot?.cursor ?? {};
    const time = this.uplot?.data[0][idx];
    if (time === undefined) return null;
    const away = Math.abs(this.uplot.valToPos(time, "x") - left);
    return away > CURSOR_REACH ? null : idx;
  }

  showCursor() {
    const row = this.rowAtCursor();
    this.spec.onCursor(row);
    this.tooltip.hidden = !this.isHovered || row === null;
    if (!this.tooltip.hidden) this.fillTooltip(row, this.uplot.data[0][row]);
  }

  fillTooltip(row, time) {
    const { series, unit, isStacked } = this.spec;
    const head = document.createElement("strong");
    head.textContent = clock(time);
    const entries = series.map((one, at) => tooltipRow(one, unit.text(this.values[at][row])));
    // A stack reads from the top down.
    if (isStacked) entries.reverse();
    if (isStacked && series.length > 1) {
      const known = this.values.map((column) => column[row]).filter((value) => value !== null);
      const sum = known.length > 0 ? known.reduce((a, b) => a + b, 0) : null;
      entries.push(tooltipRow({ label: "together" }, unit.text(sum)));
    }
    this.tooltip.replaceChildren(head, ...entries);
    const { left } = this.uplot.cursor;
    const start = this.uplot.over.offsetLeft + left;
    const isLeft = left > this.uplot.over.clientWidth / 2;
    this.tooltip.style.left = isLeft ? "auto" : `${start + 12}px`;
    this.tooltip.style.right = isLeft ? `${this.host.clientWidth - start + 12}px` : "auto";
  }

  destroy() {
    this.uplot.destroy();
    this.tooltip.remove();
  }
}

function tooltipRow(series, text) {
  const row = document.createElement("div");
  const swatch = document.createElement("i");
  swatch.className = "swatch";
  if (series.colour) swatch.style.background = `var(${series.colour})`;
  const label = document.createElement("span");
  label.textContent = series.label;
  const value = document.createElement("b");
  value.textContent = text;
  row.append(swatch, label, value);
  return row;
}
