// A card with a chart: its title, its choice of what to show, its legend with the values under the
// cursor (or of the last row), and what it says while there is nothing to draw.

import { Plot } from "./plot.js";

/** Letters of a label that fit in a narrow column of a legend. */
const LABEL_SHORT = 12;

let number = 0;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

export class Chart {
  /** `panel` as in panels.js. */
  constructor(panel, history) {
    this.panel = panel;
    this.history = history;
    this.choice = panel.choices?.selected;
    this.hidden = new Set();
    this.plot = null;
    this.cursorRow = null;
    this.element = this.makeCard();
    new ResizeObserver(() => this.plot?.resize()).observe(this.area);
  }

  makeCard() {
    const card = make("article", "card");
    const header = make("header");
    const title = make("h3", "", this.panel.title);
    number += 1;
    title.id = `chart-${number}`;
    card.dataset.chart = this.panel.name;
    card.setAttribute("aria-labelledby", title.id);
    header.append(title);
    if (this.panel.choices) header.append(this.makeChoices());
    this.area = make("div", "plot");
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "img");
    this.area.addEventListener("keydown", (event) => this.onKey(event));
    this.area.addEventListener("blur", () => this.plot?.leave());
    this.empty = make("p", "empty", this.panel.empty);
    this.legend = make("ul", "legend");
    card.append(header);
    if (this.panel.note) card.append(make("p", "note", this.panel.note));
    card.append(this.empty, this.area, this.legend);
    this.area.hidden = true;
    this.legend.hidden = true;
    return card;
  }

  makeChoices() {
    const group = make("div", "choice small");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", this.panel.choices.label);
    for (const [name, label] of Object.entries(this.panel.choices.options)) {
      const button = make("button", "", label);
      button.type = "button";
      button.setAttribute("aria-pressed", String(name === this.choice));
      button.addEventListener("click", () => {
        this.choice = name;
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        this.rebuild();
      });
      group.append(button);
    }
    return group;
  }

  onKey(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -1e6, End: 1e6 };
    if (event.key === "Escape") this.plot?.leave();
    if (!(event.key in steps)) return;
    this.plot?.step(steps[event.key]);
    event.preventDefault();
  }

  /** All series of the present choice. */
  series() {
    const { series } = this.panel;
    return typeof series === "function" ? series(this.choice) : series;
  }

  values(series) {
    return series.of ? series.of(this.history) : this.history.column(series.name);
  }

  /** Draws what the history holds now. */
  update() {
    const series = this.series();
    const values = series.map((one) => this.values(one));
    const isEmpty = !values.some((column) => column.some((value) => value !== null && value !== 0));
    this.empty.hidden = !isEmpty;
    this.area.hidden = isEmpty;
    this.legend.hidden = isEmpty;
    if (isEmpty) return;
    const shown = series.map((one, at) => at).filter((at) => !this.hidden.has(series[at].label));
    if (!this.plot) this.build(series, shown);
    this.all = values;
    this.plot.setData(this.history.times, shown.map((at) => values[at]));
    this.fillLegend();
  }

  build(series, shown) {
    const { unit, isStacked, isLog, isSampled, max } = this.panel;
    this.plot = new Plot(this.area, {
      series: shown.map((at) => series[at]),
      unit, isStacked, isLog, isSampled, max,
      range: () => this.history.range(),
      onCursor: (row) => {
        this.cursorRow = row;
        this.fillLegend();
      },
    });
    this.legend.classList.toggle("is-wide", series.some((one) => one.label.length > LABEL_SHORT));
    this.keys = series.map((one) => this.makeKey(one));
    this.legend.replaceChildren(...this.keys.map((key) => key.item));
  }

  makeKey(series) {
    const item = make("li");
    const button = make("button", "key");
    button.type = "button";
    button.setAttribute("aria-pressed", String(!this.hidden.has(series.label)));
    button.title = `Show or hide ${series.label}`;
    const swatch = make("i", series.dash ? "swatch dashed" : "swatch");
    swatch.style.setProperty("--colour", `var(${series.colour})`);
    const value = make("b");
    button.append(swatch, make("span", "", series.label), value);
    button.addEventListener("click", () => {
      if (!this.hidden.delete(series.label)) this.hidden.add(series.label);
      this.rebuild();
    });
    item.append(button);
    return { item, value };
  }

  fillLegend() {
    if (!this.all || !this.keys) return;
    const last = this.history.times.length - 1;
    const row = this.cursorRow ?? last;
    const texts = this.all.map((column) => this.panel.unit.text(column[row]));
    texts.forEach((text, at) => {
      if (this.keys[at]) this.keys[at].value.textContent = text;
    });
    const spoken = this.series().map((one, at) => `${one.label} ${texts[at]}`).join(", ");
    this.area.setAttribute("aria-label", `${this.panel.title}. ${spoken}. Arrow keys read earlier values.`);
  }

  /** After a change of what is shown. The focus stays on the key that was pressed. */
  rebuild() {
    const focused = this.keys?.findIndex((key) => key.item.contains(document.activeElement)) ?? -1;
    this.plot?.destroy();
    this.plot = null;
    this.cursorRow = null;
    this.update();
    this.keys?.[focused]?.item.firstChild.focus();
  }
}
