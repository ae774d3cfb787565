"use strict";
// Shows the figures under the pointer, or under a finger, of charts that carry them. Text goes in as text.
for (const chart of document.querySelectorAll("svg[data-readout]")) {
  const { plot, lines } = JSON.parse(chart.dataset.readout);
  const [left, right, top, bottom] = plot.map(Number);
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  chart.parentNode.append(box);
  const rule = document.createElementNS("http://www.w3.org/2000/svg", "line");
  rule.setAttribute("class", "mark");
  const hide = () => { box.hidden = true; rule.remove(); };
  const show = (event) => {
    const frame = chart.getBoundingClientRect();
    const scale = frame.width / chart.viewBox.baseVal.width;
    const x = (event.clientX - frame.left) / scale;
    const y = (event.clientY - frame.top) / scale;
    if (x < left - 4 || x > right + 4 || y < top || y > bottom) return hide();
    const nearest = lines.filter((line) => line.x.length).map((line) => {
      let best = 0;
      line.x.forEach((at, index) => {
        if (Math.abs(at - x) < Math.abs(line.x[best] - x)) best = index;
      });
      return { line, best };
    });
    if (!nearest.length) return hide();
    const closest = nearest.reduce((a, b) =>
      Math.abs(b.line.x[b.best] - x) < Math.abs(a.line.x[a.best] - x) ? b : a);
    const at = Number(closest.line.x[closest.best]);
    for (const [name, value] of [["x1", at], ["x2", at], ["y1", top], ["y2", bottom]]) rule.setAttribute(name, value);
    chart.append(rule);
    const head = document.createElement("b");
    head.textContent = closest.line.at[closest.best];
    box.replaceChildren(head, ...nearest.map(({ line, best }) => {
      const row = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = line.slot;
      row.append(swatch, line.text[best] + (line.name ? "  " + line.name : ""));
      return row;
    }));
    box.hidden = false;
    const place = chart.parentNode.getBoundingClientRect();
    const wanted = event.clientX - place.left + 14;
    const room = place.width - box.offsetWidth;
    box.style.left = Math.max(0, wanted > room ? event.clientX - place.left - box.offsetWidth - 14 : wanted) + "px";
    box.style.top = event.clientY - place.top + 12 + "px";
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  chart.addEventListener("pointerleave", hide);
}
