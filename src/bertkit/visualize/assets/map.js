"use strict";
// Points of a plane on a canvas: drag, zoom, point at, search, hide groups; all of it by keyboard as well.
const data = JSON.parse(document.getElementById("data").textContent);
const MOST_FOUND = 50, MOST_NAMED = 400, NEAR = 14, PAD = 34;
const probe = element("span", { hidden: true });
document.body.append(probe);
const ink = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
const theme = () => ({ ink: ink("--ink"), quiet: ink("--quiet"), paper: ink("--paper"), line: ink("--line"), accent: ink("--accent") });

const hidden = new Set(), matches = new Set();
let chosen = -1, zoom = 1, shift = [0, 0], size = [0, 0], colors = theme();
const low = [0, 1].map((axis) => data.places.reduce((least, p) => Math.min(least, p[axis]), Infinity));
const high = [0, 1].map((axis) => data.places.reduce((most, p) => Math.max(most, p[axis]), -Infinity));
const grouped = data.styles.length > 0;

const root = document.getElementById("map");
root.className = "map";
const controls = element("div", { class: "controls" });
const search = element("input", { type: "search", id: "search", placeholder: "part of it", size: "24" });
const label = element("label", { for: "search" }, "Search ");
label.append(search);
const button = (text, name, action) => {
  const made = element("button", { type: "button", "aria-label": name, title: name }, text);
  made.addEventListener("click", action);
  return made;
};
controls.append(label, button("+", "Zoom in", () => zoomAt(1.5)), button("−", "Zoom out", () => zoomAt(1 / 1.5)),
  button("Reset", "Show all points", () => { zoom = 1; shift = [0, 0]; draw(); }));
const legend = element("div", { class: "controls", role: "group", "aria-label": "Groups" });
const canvas = element("canvas", { tabindex: "0", role: "application", "aria-describedby": "keys",
  "aria-label": `Map of ${data.places.length} ${data.what}` });
const shown = element("p", { class: "shown", "aria-live": "polite" });
const keys = element("p", { class: "quiet", id: "keys" },
  "Drag to move, turn the wheel to zoom, point at a point to read it. By keyboard: arrows go to the next point in that direction, + and − zoom, 0 shows all, Escape lets go.");
const found = element("div", { class: "found" });
root.append(controls, legend, canvas, shown, keys, found);

const styleOf = (row) => data.groups[row] < 0 ? null : data.styles[data.groups[row]];
const isDark = matchMedia("(prefers-color-scheme: dark)");
const lighter = (color) => `rgb(${[1, 3, 5].map((at) => Math.round(parseInt(color.slice(at, at + 2), 16) * .7 + 255 * .3)).join(" ")})`;
const colorOf = (style) => {
  if (style === null) return grouped ? colors.quiet : colors.accent;
  return style.color === "#000000" ? colors.ink : isDark.matches ? lighter(style.color) : style.color;
};
const visible = (row) => !hidden.has(data.groups[row]);
const place = (row) => data.places[row].map((value, axis) => {
  const span = (high[axis] - low[axis]) || 1, room = size[axis] - 2 * PAD;
  const at = (value - low[axis]) / span;
  return (PAD + (axis ? 1 - at : at) * room - size[axis] / 2) * zoom + size[axis] / 2 + shift[axis];
});

const SHAPES = {
  o: (c, x, y, r) => c.arc(x, y, r, 0, 7),
  s: (c, x, y, r) => c.rect(x - r * .9, y - r * .9, 1.8 * r, 1.8 * r),
  "^": (c, x, y, r) => polygon(c, x, y, r * 1.2, 3, -Math.PI / 2),
  v: (c, x, y, r) => polygon(c, x, y, r * 1.2, 3, Math.PI / 2),
  D: (c, x, y, r) => polygon(c, x, y, r * 1.2, 4, 0),
  P: (c, x, y, r) => { c.rect(x - r * 1.2, y - r * .4, 2.4 * r, .8 * r); c.rect(x - r * .4, y - r * 1.2, .8 * r, 2.4 * r); },
  X: (c, x, y, r) => { c.save(); c.translate(x, y); c.rotate(Math.PI / 4); SHAPES.P(c, 0, 0, r); c.restore(); },
  "*": (c, x, y, r) => star(c, x, y, r * 1.4),
};
function polygon(c, x, y, r, corners, turn) {
  for (let n = 0; n < corners; n++) {
    const angle = turn + 2 * Math.PI * n / corners;
    c[n ? "lineTo" : "moveTo"](x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  c.closePath();
}
function star(c, x, y, r) {
  for (let n = 0; n < 10; n++) {
    const angle = Math.PI * (n / 5 - .5), length = n % 2 ? r * .45 : r;
    c[n ? "lineTo" : "moveTo"](x + length * Math.cos(angle), y + length * Math.sin(angle));
  }
  c.closePath();
}
function mark(c, style, x, y, r, faint) {
  c.globalAlpha = faint ? .12 : .85;
  c.fillStyle = colorOf(style);
  c.beginPath();
  SHAPES[style === null ? "o" : style.marker](c, x, y, style === null && grouped ? r * .7 : r);
  c.fill();
  c.globalAlpha = 1;
}

function draw() {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  size = [box.width, box.height];
  canvas.width = Math.round(size[0] * ratio);
  canvas.height = Math.round(size[1] * ratio);
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  const few = data.places.length, r = few <= 100 ? 6 : few <= 1000 ? 4 : 2.6, searching = search.value.trim() !== "";
  const order = [...data.places.keys()].sort((a, b) => (data.groups[a] < 0 ? 0 : 1) - (data.groups[b] < 0 ? 0 : 1));
  c.strokeStyle = colors.line;
  for (const link of data.links) {
    const strong = link.includes(chosen);
    c.strokeStyle = strong ? colors.accent : colors.line;
    c.lineWidth = strong ? 2 : 1;
    c.beginPath();
    link.filter(visible).forEach((row, n) => { const [x, y] = place(row); c[n ? "lineTo" : "moveTo"](x, y); });
    c.stroke();
  }
  for (const row of order) {
    if (!visible(row)) continue;
    const [x, y] = place(row);
    if (x < -20 || y < -20 || x > size[0] + 20 || y > size[1] + 20) continue;
    mark(c, styleOf(row), x, y, matches.has(row) ? r * 1.6 : r, searching && !matches.has(row));
  }
  if (data.names.length && data.names.length <= MOST_NAMED) writeNames(c, order, r);
  if (chosen >= 0 && visible(chosen)) {
    const [x, y] = place(chosen);
    c.strokeStyle = colors.ink;
    c.lineWidth = 2;
    c.beginPath();
    c.arc(x, y, r + 5, 0, 7);
    c.stroke();
  }
  c.fillStyle = colors.quiet;
  c.font = "13px system-ui, sans-serif";
  c.textAlign = "center";
  c.fillText(data.axes[0], size[0] / 2, size[1] - 8);
  c.translate(14, size[1] / 2);
  c.rotate(-Math.PI / 2);
  c.fillText(data.axes[1], 0, 0);
}

function writeNames(c, order, r) {
  const taken = [];
  c.font = "12px system-ui, sans-serif";
  c.fillStyle = colors.ink;
  c.textAlign = "left";
  for (const row of order) {
    if (!visible(row)) continue;
    const [x, y] = place(row), width = c.measureText(data.names[row]).width;
    for (const [dx, dy] of [[r + 3, 4], [-r - 3 - width, 4], [-width / 2, -r - 4], [-width / 2, r + 13]]) {
      const own = [x + dx, y + dy - 10, x + dx + width, y + dy + 3];
      if (taken.some((b) => own[0] < b[2] && b[0] < own[2] && own[1] < b[3] && b[1] < own[3])) continue;
      taken.push(own);
      c.fillText(data.names[row], x + dx, y + dy);
      break;
    }
  }
}

function choose(row) {
  chosen = row;
  if (row < 0) shown.textContent = "";
  else {
    const style = styleOf(row), name = data.names[row] || (style === null ? "" : style.name);
    shown.replaceChildren(element("strong", {}, name && `${name}: `), document.createTextNode(data.texts[row] || "(empty)"));
  }
  draw();
}
function zoomAt(factor, x = size[0] / 2, y = size[1] / 2) {
  const next = Math.min(200, Math.max(.5, zoom * factor)), ratio = next / zoom, middle = [size[0] / 2, size[1] / 2];
  [x, y].forEach((at, axis) => { shift[axis] = at - middle[axis] - (at - middle[axis] - shift[axis]) * ratio; });
  zoom = next;
  draw();
}
function nearest(x, y, most) {
  let best = -1, least = most * most;
  data.places.forEach((_, row) => {
    if (!visible(row)) return;
    const [px, py] = place(row), distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) { least = distance; best = row; }
  });
  return best;
}
function step(dx, dy) {
  if (chosen < 0 || !visible(chosen)) return choose(nearest(size[0] / 2, size[1] / 2, Infinity));
  const [x, y] = place(chosen);
  let best = -1, least = Infinity;
  data.places.forEach((_, row) => {
    if (row === chosen || !visible(row)) return;
    const [px, py] = place(row), along = (px - x) * dx + (py - y) * dy, across = Math.abs((px - x) * dy - (py - y) * dx);
    if (along > .01 && across <= along * 1.5 && along + 2 * across < least) { least = along + 2 * across; best = row; }
  });
  if (best < 0) return;
  const [bx, by] = place(best);  // keep it in view
  shift[0] += Math.min(0, size[0] - PAD - bx) + Math.max(0, PAD - bx);
  shift[1] += Math.min(0, size[1] - PAD - by) + Math.max(0, PAD - by);
  choose(best);
}

let grip = null;
canvas.addEventListener("pointerdown", (event) => { grip = [event.offsetX - shift[0], event.offsetY - shift[1]]; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { grip = null; });
canvas.addEventListener("pointermove", (event) => {
  if (grip) { shift = [event.offsetX - grip[0], event.offsetY - grip[1]]; return draw(); }
  const row = nearest(event.offsetX, event.offsetY, NEAR);
  if (row !== chosen && row >= 0) choose(row);
});
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomAt(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, { passive: false });
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (STEPS[event.key]) step(...STEPS[event.key]);
  else if (event.key === "+" || event.key === "=") zoomAt(1.5);
  else if (event.key === "-") zoomAt(1 / 1.5);
  else if (event.key === "0") { zoom = 1; shift = [0, 0]; draw(); }
  else if (event.key === "Escape") choose(-1);
  else return;
  event.preventDefault();
});

function lookFor() {
  const asked = search.value.trim().toLowerCase();
  matches.clear();
  const searched = data.names.length ? data.names : data.texts;
  if (asked) searched.forEach((text, row) => { if (text.toLowerCase().includes(asked)) matches.add(row); });
  const list = element("ol");
  for (const row of [...matches].slice(0, MOST_FOUND)) {
    const item = element("li"), link = element("button", { type: "button" }, [data.names[row], data.texts[row] || "(empty)"].filter(Boolean).join(": "));
    link.addEventListener("click", () => { choose(row); canvas.focus(); });
    item.append(link);
    list.append(item);
  }
  const more = matches.size > MOST_FOUND ? `, the first ${MOST_FOUND} of them` : "";
  found.replaceChildren(...(asked ? [element("p", { class: "quiet", role: "status" }, `${matches.size} found${more}`), list] : []));
  draw();
}
search.addEventListener("input", lookFor);

function entry(number, style, name, count) {
  const made = element("button", { type: "button", "aria-pressed": "true" });
  const swatch = element("canvas", { width: "32", height: "32", "aria-hidden": "true", class: "swatch" });
  const paint = () => { const c = swatch.getContext("2d"); c.clearRect(0, 0, 32, 32); mark(c, style, 16, 16, 9, false); };
  paint();
  repaint.push(paint);
  made.append(swatch, document.createTextNode(` ${name} (${count})`));
  made.addEventListener("click", () => {
    if (!hidden.delete(number)) hidden.add(number);
    made.setAttribute("aria-pressed", String(!hidden.has(number)));
    draw();
  });
  return made;
}
const repaint = [];
if (grouped) {
  data.styles.forEach((style, number) => legend.append(entry(number, style, style.name, style.size)));
  if (data.others) legend.append(entry(-1, null, data.others, data.groups.filter((number) => number < 0).length));
}
isDark.addEventListener("change", () => { colors = theme(); repaint.forEach((paint) => paint()); draw(); });
new ResizeObserver(draw).observe(canvas);
draw();
