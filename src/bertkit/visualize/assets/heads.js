"use strict";
// A grid of layers and heads for each statistic, and a table of all heads that sorts by any column.
const { names, rows } = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("heads");
const columns = { layer: "layer", head: "head", ...names };

function grid(key, name) {
  const most = Math.max(...rows.map((row) => row[key]));
  const numbers = [...new Set(rows.map((row) => row.head))];
  const top = element("tr", {}, element("th"), ...numbers.map((each) => element("th", { scope: "col" }, String(each))));
  const lines = new Map();
  for (const row of rows) {
    if (!lines.has(row.layer)) lines.set(row.layer, element("tr", {}, element("th", { scope: "row" }, String(row.layer))));
    const share = most > 0 ? Math.round((100 * row[key]) / most) : 0;
    const cell = element("td", { title: `layer ${row.layer}, head ${row.head}: ${row[key].toFixed(3)}` });
    cell.style.background = `color-mix(in srgb, var(--full) ${share}%, var(--empty))`;
    lines.get(row.layer).append(cell);
  }
  return element("table", {}, element("caption", {}, `${name}, at most ${most.toFixed(2)}`), top, ...lines.values());
}

const table = element("table", { className: "all" });
const body = element("tbody");
const heading = element("tr");
for (const [key, name] of Object.entries(columns)) {
  const button = element("button", { type: "button" }, name);
  const cell = element("th", { scope: "col", "aria-sort": key === "layer" ? "ascending" : "none" }, button);
  button.addEventListener("click", () => {
    const falls = cell.getAttribute("aria-sort") !== "descending";
    heading.querySelectorAll("th").forEach((each) => each.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
    fill([...rows].sort((a, b) => (falls ? b[key] - a[key] : a[key] - b[key])));
  });
  heading.append(cell);
}
function fill(sorted) {
  const whole = new Set(["layer", "head"]);
  const cell = (row, key) => element("td", {}, whole.has(key) ? String(row[key]) : row[key].toFixed(3));
  body.replaceChildren(...sorted.map((row) => element("tr", {}, ...Object.keys(columns).map((key) => cell(row, key)))));
}
fill(rows);
table.append(element("caption", {}, "All heads; a button at the top of a column sorts by it"), element("thead", {}, heading), body);
const grids = Object.entries(names).map(([key, name]) => grid(key, name));
main.append(
  element("p", { className: "quiet" }, "Means over all tokens. Down: layers; across: heads; the largest value of each grid has the full color."),
  element("div", { className: "grids" }, ...grids),
  element("div", { className: "wide" }, table),
);
