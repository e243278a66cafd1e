"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
window.ocsslCharts = Object.keys(charts).length;
requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("ocssl-chart"))); // charts are painted now

// ---- tooltips: what every line says at one place of the stream ------------------------------------------------------
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
const cursor = document.createElement("span");
cursor.className = "cursor";
const hidden = new Set(); // names of series

function written(value, form) {
  const [, digits, kind] = /^[+,]?(?:\.(\d+))?([a-z]?)$/.exec(form) || [];
  if (kind === "f" || kind === "d") return value.toFixed(Number(digits || 0));
  return String(Number(value.toPrecision(Number(digits || 3))));
}

function nearest(places, x) {
  let best = -1;
  for (let i = 0; i < places.length; i += 1) {
    if (places[i] !== null && (best < 0 || Math.abs(places[i] - x) < Math.abs(places[best] - x))) best = i;
  }
  return best;
}

function entry(words, ink) {
  const line = document.createElement("div");
  if (ink) {
    const swatch = document.createElement("i");
    swatch.style.background = ink;
    line.append(swatch);
  }
  line.append(words);
  return line;
}

function linesAt(panel, x) {
  const found = [];
  for (const line of panel.lines) {
    const i = hidden.has(line.series) ? -1 : nearest(line.x, x);
    if (i < 0 || line.y[i] === null) continue;
    let words = `${line.who}: ${written(line.y[i], line.form)}${line.unit ? ` ${line.unit}` : ""}`;
    if (line.sd && line.sd[i] !== null) words += ` ± ${written(line.sd[i], line.form)}`;
    if (line.detail && line.details[i] != null) words += ` (${line.detail.replace("#", written(line.details[i], ".4g"))})`;
    found.push({ at: line.x[i], y: line.y[i], entry: entry(words, line.ink) });
  }
  return found.sort((a, b) => b.y - a.y);
}

function show(area, event) {
  const panel = charts[area.dataset.chart][Number(area.dataset.panel)];
  const box = area.getBoundingClientRect();
  const [low, high] = panel.x;
  const x = low + ((event.clientX - box.left) / box.width) * (high - low);
  let at = x;
  const entries = [];
  if (panel.heat) {
    const { y, z, what, unit } = panel.heat;
    const column = nearest(panel.at, x);
    const row = Math.min(y.length - 1, Math.max(0, Math.floor((1 - (event.clientY - box.top) / box.height) * y.length)));
    at = panel.at[column];
    const value = z[row][column];
    entries.push(entry(`${what} ${y[row]}: ${value === null ? "nothing" : `${value} ${unit}`}`));
  } else {
    const found = linesAt(panel, x);
    if (!found.length) return;
    at = found.reduce((best, one) => (Math.abs(one.at - x) < Math.abs(best - x) ? one.at : best), found[0].at);
    entries.push(...found.slice(0, 14).map((one) => one.entry));
  }
  const head = entry(panel.stream ? `at ${Math.round(at)} % of the stream` : `at ${at}`);
  head.className = "quiet";
  tip.replaceChildren(head, ...entries);
  tip.hidden = false;
  const wide = tip.offsetWidth, tall = tip.offsetHeight;
  const left = event.clientX + 16 + wide > innerWidth ? event.clientX - 16 - wide : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - tall - 4))}px`;
  cursor.style.left = `${(100 * (at - low)) / (high - low || 1)}%`;
  area.append(cursor);
}

for (const area of document.querySelectorAll(".area")) {
  const leave = () => { tip.hidden = true; cursor.remove(); };
  area.addEventListener("pointermove", (event) => show(area, event));
  area.addEventListener("pointerdown", (event) => show(area, event));
  area.addEventListener("pointerleave", leave);
  area.addEventListener("pointercancel", leave);
}

// ---- a click on a name hides its lines in every chart, a double click shows them alone ------------------------------
const names = [...document.querySelectorAll("[data-name]")];

function paint() {
  for (const button of names) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.name)));
  for (const shape of document.querySelectorAll("[data-series]")) {
    shape.toggleAttribute("data-hidden", hidden.has(shape.dataset.series));
  }
}

for (const button of names) {
  const own = button.dataset.name;
  button.addEventListener("click", () => {
    if (!hidden.delete(own)) hidden.add(own);
    paint();
  });
  button.addEventListener("dblclick", () => {
    const others = new Set(names.map((other) => other.dataset.name).filter((name) => name !== own));
    const alone = [...others].every((name) => hidden.has(name));
    hidden.clear();
    if (!alone) for (const name of others) hidden.add(name);
    paint();
  });
}

// ---- where the reader is, and which tables are wider than the page --------------------------------------------------
const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new Set();
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target.id);
    else seen.delete(target.id);
  }
  const current = [...links.keys()].find((id) => seen.has(id));
  if (!current) return;
  for (const [id, link] of links) {
    if (id === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}, { rootMargin: "-10% 0px -60% 0px" });
for (const id of links.keys()) near.observe(document.getElementById(id));

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("overflows", target.scrollWidth > target.clientWidth + 1);
});
for (const region of document.querySelectorAll(".scroll")) sized.observe(region);

// ---- a page that is written again while runs go on reads itself again, where the reader was -------------------------
const follow = document.querySelector("[data-follow]");
if (follow) {
  const pause = follow.querySelector("button");
  let waiting = true;
  pause.addEventListener("click", () => {
    waiting = !waiting;
    pause.textContent = waiting ? "Pause" : "Continue";
  });
  setInterval(() => { if (waiting) location.reload(); }, 1000 * Number(follow.dataset.follow));
}
