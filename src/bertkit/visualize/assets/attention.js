"use strict";
// Views of attention: lines between words, a matrix, and all layers and heads. Made from the data in the page alone.
const { maps, shown } = JSON.parse(document.getElementById("data").textContent);
const ROW = 26; // pixels of a word, as in attention.css
const MOST_LINES = 4000; // drawn at once, the strongest
const SMALL = 56; // pixels of the matrix of a head among all heads
const main = document.getElementById("attention");

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const value = (byte) => (byte / 255) ** 2;
for (const map of maps) {
  map.bytes = bytesOf(map.values);
  map.rolled = map.rollout && bytesOf(map.rollout);
}
const TITLES = { encoder: "encoder", decoder: "decoder, to what it has written", cross: "decoder to input" };
const VIEWS = { lines: "lines between words", matrix: "matrix", heads: "all layers and heads" };
const BETWEEN = { all: "all words", "00": "first text to itself", "01": "first text to second", "10": "second text to first", "11": "second text to itself" };

const state = {
  map: Math.max(0, maps.findIndex((map) => map.name === shown.map)),
  layer: shown.layer,
  head: shown.view === "rollout" ? "rollout" : shown.view === "average" ? (shown.all ? "all" : "mean") : shown.head || "mean",
  view: shown.view === "heads" ? "heads" : shown.view === "lines" ? "lines" : "matrix",
  between: "all",
};
let pinned = null; // {side, at} of a word whose lines alone are shown
const map = () => maps[state.map];

/** Probabilities of one head, or of a mean, row by row. */
function weights(layer, head) {
  const { rows, columns, layers, heads, bytes, rolled } = map();
  const size = rows.length * columns.length;
  const at = layers.indexOf(layer);
  const found = new Float32Array(size);
  const add = (source, start, share) => {
    for (let place = 0; place < size; place++) found[place] += value(source[start + place]) * share;
  };
  if (head === "rollout") add(rolled, at * size, 1);
  else if (head === "all") for (let each = 0; each < layers.length * heads; each++) add(bytes, each * size, 1 / (layers.length * heads));
  else if (head === "mean") for (let each = 0; each < heads; each++) add(bytes, (at * heads + each) * size, 1 / heads);
  else add(bytes, (at * heads + head - 1) * size, 1);
  return found;
}

/** The numbers of the rows and of the columns that are shown. */
function chosen() {
  const numbers = (names, texts, side) =>
    names.map((_, at) => at).filter((at) => state.between === "all" || texts[at] === Number(state.between[side]));
  return [numbers(map().rows, map().rowTexts, 0), numbers(map().columns, map().columnTexts, 1)];
}

const named = (head) => (head === "rollout" ? "rollout" : head === "mean" ? "mean of the heads" : head === "all" ? "mean of all layers" : `head ${head}`);
const number = (weight) => (weight < 0.1 ? weight.toPrecision(1) : weight.toFixed(2));
/** A color of the style sheet as red, green, blue and opacity. */
function color(name) {
  const probe = element("span");
  probe.style.color = `var(${name})`;
  main.append(probe);
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return [...parts.slice(0, 3), 255];
}

// Controls ---------------------------------------------------------------------------------------

const controls = element("div", { className: "controls" });
const place = element("div");
const said = element("p", { className: "said", role: "status" });
main.append(controls, said, place);

function select(label, options, key, parse = (text) => text) {
  if (Object.keys(options).length < 2) return;
  const made = element("select", { id: `choose-${key}` });
  for (const [name, text] of Object.entries(options)) made.append(element("option", { value: name, selected: String(state[key]) === name }, text));
  made.addEventListener("change", () => {
    state[key] = parse(made.value);
    pinned = null;
    draw();
  });
  controls.append(element("label", {}, label, made));
}

function drawControls() {
  const kept = document.activeElement?.id;
  controls.replaceChildren();
  const { layers, heads, rolled, rowTexts, columnTexts } = map();
  const counted = (from, name) => Object.fromEntries(from.map((each) => [each, `${name} ${each}`]));
  select("attention", Object.fromEntries(maps.map((each, at) => [at, TITLES[each.name]])), "map", Number);
  select("view", VIEWS, "view");
  if (state.view !== "heads") {
    if (state.head !== "all") select("layer", counted(layers, "layer"), "layer", Number);
    const means = { mean: named("mean"), ...(layers.length > 1 && { all: named("all") }), ...(rolled && { rollout: "rollout down to the input" }) };
    select("head", { ...counted(Array.from({ length: heads }, (_, at) => at + 1), "head"), ...means }, "head", (text) => Number(text) || text);
  }
  if ([...rowTexts, ...columnTexts].includes(1) && map().name === "encoder") select("words", BETWEEN, "between");
  document.getElementById(kept)?.focus();
}

function draw() {
  const { layers, heads, rolled, name } = map();
  if (!layers.includes(state.layer)) state.layer = layers[layers.length - 1];
  if ((state.head === "rollout" && !rolled) || state.head > heads || (state.head === "all" && layers.length < 2)) state.head = "mean";
  if (name !== "encoder") state.between = "all";
  drawControls();
  said.textContent = "";
  ({ lines: drawLines, matrix: drawMatrix, heads: drawHeads })[state.view]();
}

// Lines between words ----------------------------------------------------------------------------

function drawLines() {
  const found = weights(state.layer, state.head);
  const [rows, columns] = chosen();
  const width = map().columns.length;
  const height = ROW * Math.max(rows.length, columns.length);
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", `0 0 100 ${height}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("width", "100%");
  picture.setAttribute("height", height);
  picture.setAttribute("aria-hidden", "true");

  const show = (focus) => {
    let links = [];
    rows.forEach((row, y) => {
      if (focus && focus.side === 0 && focus.at !== row) return;
      columns.forEach((column, to) => {
        if (focus && focus.side === 1 && focus.at !== column) return;
        const weight = found[row * width + column];
        if (weight >= 0.005) links.push([weight, y, to]);
      });
    });
    links.sort((a, b) => b[0] - a[0]);
    const all = links.length;
    links = links.slice(0, MOST_LINES).reverse();
    picture.replaceChildren(
      ...links.map(([weight, y, to]) => {
        const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        const ends = { x1: 0, y1: (y + 0.5) * ROW, x2: 100, y2: (to + 0.5) * ROW, "stroke-opacity": Math.min(1, weight), "vector-effect": "non-scaling-stroke" };
        for (const [key, end] of Object.entries(ends)) line.setAttribute(key, end);
        return line;
      }),
    );
    said.textContent = focus ? strongest(found, focus, rows, columns) : all > MOST_LINES ? `The strongest ${MOST_LINES} of ${all} lines.` : "Point at a word, or move to it with Tab and the arrow keys, to see its lines alone; Enter keeps them.";
  };

  const sides = [rows, columns].map((numbers, side) => {
    const names = side ? map().columns : map().rows;
    const texts = side ? map().columnTexts : map().rowTexts;
    const column = element("div", { className: "column", role: "group", "aria-label": side ? "attended to" : "attending" });
    numbers.forEach((at, position) => {
      const isPinned = pinned && pinned.side === side && pinned.at === at;
      const button = element("button", { type: "button", tabIndex: position ? -1 : 0, "aria-pressed": String(Boolean(isPinned)), className: texts[at] === 1 ? "second" : "" }, names[at]);
      const here = { side, at };
      button.addEventListener("mouseenter", () => show(here));
      button.addEventListener("mouseleave", () => show(pinned));
      button.addEventListener("focus", () => show(here));
      button.addEventListener("blur", () => show(pinned));
      button.addEventListener("click", () => {
        const was = button.getAttribute("aria-pressed") === "true";
        place.querySelectorAll("[aria-pressed]").forEach((each) => each.setAttribute("aria-pressed", "false"));
        pinned = was ? null : here;
        button.setAttribute("aria-pressed", String(!was));
        show(pinned);
      });
      column.append(button);
    });
    return column;
  });
  rove(sides.map((side) => [...side.children]), true);
  place.replaceChildren(element("div", { className: "words" }, sides[0], picture, sides[1]));
  show(pinned);
}

/** What a word attends to most, or by which words it is attended to. */
function strongest(found, { side, at }, rows, columns) {
  const width = map().columns.length;
  const others = side ? rows : columns;
  const links = others.map((other) => [side ? found[other * width + at] : found[at * width + other], (side ? map().rows : map().columns)[other]]);
  const best = links.sort((a, b) => b[0] - a[0]).slice(0, 5).map(([weight, name]) => `${name} ${number(weight)}`);
  const name = (side ? map().columns : map().rows)[at];
  return `“${name}” ${side ? "is attended to by" : "attends to"}: ${best.join(", ")}`;
}

/** Arrow keys move among buttons; only one of them is reached by Tab in each list, or in all lists. */
function rove(lists, down) {
  lists.forEach((list, first) =>
    list.forEach((button, second) =>
      button.addEventListener("keydown", (event) => {
        const along = { [down ? "ArrowDown" : "ArrowRight"]: 1, [down ? "ArrowUp" : "ArrowLeft"]: -1 }[event.key] || 0;
        const across = { [down ? "ArrowRight" : "ArrowDown"]: 1, [down ? "ArrowLeft" : "ArrowUp"]: -1 }[event.key] || 0;
        let next = null;
        if (along) next = list[second + along];
        else if (across) next = lists[first + across]?.[Math.min(second, lists[first + across].length - 1)];
        else if (event.key === "Home") next = list[0];
        else if (event.key === "End") next = list[list.length - 1];
        else return;
        event.preventDefault();
        if (!next) return;
        (down ? lists.find((each) => each.includes(next)) : lists.flat()).forEach((each) => (each.tabIndex = -1));
        next.tabIndex = 0;
        next.focus();
      }),
    ),
  );
}

// Matrices ---------------------------------------------------------------------------------------

/** Draw weights as colors from the paper to the accent, the darkest for `most`. */
function paint(canvas, found, rows, columns, width, most) {
  const context = canvas.getContext("2d");
  const [from, to] = [color("--empty"), color("--full")];
  const image = context.createImageData(columns.length, rows.length);
  rows.forEach((row, y) =>
    columns.forEach((column, x) => {
      const share = Math.min(1, found[row * width + column] / (most || 1));
      for (let part = 0; part < 4; part++) image.data[4 * (y * columns.length + x) + part] = from[part] + (to[part] - from[part]) * share;
    }),
  );
  context.putImageData(image, 0, 0);
}

const picture = (rows, columns, width, height) => {
  const canvas = element("canvas", { width: columns.length, height: rows.length });
  canvas.style.cssText = `width:${width}px;height:${height}px;image-rendering:pixelated;display:block`;
  return canvas;
};

function drawMatrix() {
  const found = weights(state.layer, state.head);
  const [rows, columns] = chosen();
  const width = map().columns.length;
  const cell = Math.max(2, Math.min(24, Math.floor(900 / Math.max(rows.length, columns.length))));
  const canvas = picture(rows, columns, cell * columns.length, cell * rows.length);
  let most = 0;
  for (const row of rows) for (const column of columns) most = Math.max(most, found[row * width + column]);
  paint(canvas, found, rows, columns, width, most);

  const cursor = { x: 0, y: 0 };
  const mark = element("div");
  const frame = element("div", { tabIndex: 0, role: "application", "aria-label": "matrix; arrow keys move from cell to cell" }, canvas, mark);
  frame.style.cssText = `position:relative;width:${cell * columns.length}px;height:${cell * rows.length}px`;
  const point = (x, y) => {
    cursor.x = Math.max(0, Math.min(columns.length - 1, x));
    cursor.y = Math.max(0, Math.min(rows.length - 1, y));
    const size = Math.max(cell, 6);
    mark.style.cssText = `position:absolute;box-sizing:border-box;border:2px solid var(--other);pointer-events:none;width:${size}px;height:${size}px;left:${cursor.x * cell}px;top:${cursor.y * cell}px`;
    const [row, column] = [rows[cursor.y], columns[cursor.x]];
    said.textContent = `“${map().rows[row]}” (${row + 1}) → “${map().columns[column]}” (${column + 1}): ${number(found[row * width + column])}`;
  };
  frame.addEventListener("mousemove", (event) => point(Math.floor(event.offsetX / cell), Math.floor(event.offsetY / cell)));
  frame.addEventListener("focus", () => point(cursor.x, cursor.y));
  frame.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    point(cursor.x + dx, cursor.y + dy);
  });

  const labelled = cell >= 12;
  const label = (name, side) => {
    const made = element("div", {}, labelled ? name : "");
    made.style.cssText = side
      ? `width:${cell}px;writing-mode:vertical-rl;font:11px/${cell}px system-ui,sans-serif;max-height:8rem;overflow:hidden;white-space:pre`
      : `height:${cell}px;font:11px/${cell}px system-ui,sans-serif;text-align:right;padding-right:8px;max-width:8rem;overflow:hidden;white-space:pre`;
    return made;
  };
  const left = element("div", {}, ...rows.map((row) => label(map().rows[row], 0)));
  const below = element("div", {}, ...columns.map((column) => label(map().columns[column], 1)));
  below.style.cssText = "display:flex;padding-top:8px";
  const table = element("div", { className: "scroll" }, left, frame, element("div"), below);
  table.style.cssText = "display:grid;grid-template-columns:auto auto;justify-content:start;padding:4px";
  place.replaceChildren(table, element("p", { className: "quiet" }, `From the words on the left to those below. The full color is the largest value, ${number(most)}.`));
}

// All layers and heads ---------------------------------------------------------------------------

/** A matrix of at most SMALL cells a side, each the largest of those that it stands for, with the numbers of both sides. */
function shrunk(found, rows, columns, width) {
  const [height, wide] = [Math.min(SMALL, rows.length), Math.min(SMALL, columns.length)];
  const small = new Float32Array(height * wide);
  rows.forEach((row, y) =>
    columns.forEach((column, x) => {
      const at = Math.floor((y * height) / rows.length) * wide + Math.floor((x * wide) / columns.length);
      small[at] = Math.max(small[at], found[row * width + column]);
    }),
  );
  return [small, [...Array(height).keys()], [...Array(wide).keys()]];
}

function drawHeads() {
  const { layers, heads } = map();
  const [rows, columns] = chosen();
  const width = map().columns.length;
  const grid = element("div", { className: "grid" });
  grid.style.gridTemplateColumns = `auto repeat(${heads}, auto)`;
  grid.append(element("span"), ...Array.from({ length: heads }, (_, at) => element("span", {}, String(at + 1))));
  const lists = layers.map((layer) => {
    grid.append(element("span", {}, `layer ${layer}`));
    return Array.from({ length: heads }, (_, at) => {
      const [small, down, across] = shrunk(weights(layer, at + 1), rows, columns, width);
      const canvas = picture(down, across, SMALL, SMALL);
      paint(canvas, small, down, across, across.length, Math.max(...small));
      const current = layer === state.layer && at + 1 === (Number(state.head) || 1);
      const button = element("button", { type: "button", tabIndex: current ? 0 : -1, "aria-label": `layer ${layer}, head ${at + 1}` }, canvas);
      button.addEventListener("click", () => {
        Object.assign(state, { layer, head: at + 1, view: "lines" });
        draw();
        document.getElementById("choose-view").focus();
      });
      button.addEventListener("focus", () => (said.textContent = `Layer ${layer}, head ${at + 1}. Enter opens it.`));
      grid.append(button);
      return button;
    });
  });
  rove(lists, false);
  said.textContent = "Each head in its own scale of colors. Choose one to see its lines; arrow keys move between heads.";
  place.replaceChildren(element("div", { className: "scroll" }, grid));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
