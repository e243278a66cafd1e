"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const touch = matchMedia("(hover: none)").matches;
const options = {
  responsive: true,
  displaylogo: false,
  displayModeBar: touch ? false : "hover",
  modeBarButtons: [["toImage", "resetScale2d"]],
};

function ink() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  return {
    "font.color": colour("--text"),
    "xaxis.gridcolor": colour("--line"), "xaxis.linecolor": colour("--line"),
    "yaxis.gridcolor": colour("--line"), "yaxis.linecolor": colour("--line"),
    "hoverlabel.bgcolor": colour("--raised"), "hoverlabel.font.color": colour("--text"),
    "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": colour("--quiet"), "modebar.activecolor": colour("--text"),
    "dragmode": touch ? false : "zoom",
  };
}

for (const [id, figure] of Object.entries(charts)) {
  Plotly.newPlot(id, figure.data, figure.layout, options).then(() => Plotly.relayout(id, ink()));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const id of Object.keys(charts)) Plotly.relayout(id, ink());
});
