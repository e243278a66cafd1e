"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const touch = matchMedia("(hover: none)").matches;
const options = {
  responsive: true,
  displaylogo: false,
  displayModeBar: touch ? false : "hover",
  modeBarButtons: [["toImage", "resetScale2d"]],
};
const drawn = new Map(); // id of a chart: the promise of its drawing
window.ocsslCharts = Object.keys(charts).length;
window.ocsslDrawn = 0;

// Text, grid and bars in the colours of the page, written into a figure before it is drawn.
function painted(figure) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const line = { gridcolor: colour("--line"), linecolor: colour("--line") };
  const layout = figure.layout;
  Object.assign(layout, {
    font: { ...layout.font, color: colour("--text") },
    xaxis: { ...layout.xaxis, ...line },
    yaxis: { ...layout.yaxis, ...line },
    hoverlabel: { ...layout.hoverlabel, bgcolor: colour("--raised"), font: { color: colour("--text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: colour("--text") },
    dragmode: touch ? false : "zoom",
  });
  return figure;
}

// The library is run once the page is open: its five megabytes take a second in which tables can be read already.
const library = new Promise((ready) => addEventListener("load", () => setTimeout(() => {
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
  ready();
})));

function draw(id) {
  if (!drawn.has(id)) {
    drawn.set(id, library.then(() => {
      const { data, layout } = painted(charts[id]);
      return Plotly.newPlot(id, data, layout, options);
    }).then(() => {
      window.ocsslDrawn += 1;
      performance.mark("ocssl-chart");
    }));
  }
  return drawn.get(id);
}

window.ocsslDrawAll = () => Promise.all(Object.keys(charts).map(draw));

// Charts are drawn when they come near the window: a page of many opens as fast as one of few.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      near.unobserve(entry.target);
      draw(entry.target.id);
    }
  }
}, { rootMargin: "600px" });
for (const id of Object.keys(charts)) near.observe(document.getElementById(id));
addEventListener("beforeprint", window.ocsslDrawAll);

for (const select of document.querySelectorAll("select[data-chart]")) {
  const show = () => draw(select.dataset.chart).then(() => {
    const visible = charts[select.dataset.chart].layout.meta.map((panel) => panel === Number(select.value));
    return Plotly.restyle(select.dataset.chart, { visible });
  });
  select.addEventListener("change", show);
  if (select.value !== "0") show(); // a browser may remember what was chosen
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [id, done] of drawn) done.then(() => Plotly.react(id, charts[id].data, painted(charts[id]).layout, options));
});
