// Pictures of numbers: a matrix of similarities, a map of texts, lines and a matrix of attention.
import { drawn, element, newId, plural, rove, share, shortened } from "./dom.js";

const MOST_LINES = 1500; // of attention, drawn at once: the strongest
const ROW = 28; // pixels of a piece, as in the style sheet

/** Cosines of vectors of length 1 as a table with colored cells. */
export function similarities(lines, vectors) {
  const cosine = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  const rows = vectors.map((one, row) => {
    const cells = vectors.map((other, column) => {
      const value = cosine(one, other);
      const cell = element("td", { class: "cell number", title: `${row + 1} and ${column + 1}` }, value.toFixed(2));
      cell.style.setProperty("--share", Math.max(0, value));
      return cell;
    });
    return element("tr", {}, element("th", { scope: "row" }, `${row + 1}. ${shortened(lines[row], 60)}`), cells);
  });
  const numbers = lines.map((_, at) => element("th", { scope: "col" }, String(at + 1)));
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Similarity matrix" },
    element(
      "table",
      { class: "matrix" },
      element("caption", {}, "Cosine similarity of each line with each other one"),
      element("thead", {}, element("tr", {}, element("td", {}), numbers)),
      element("tbody", {}, rows),
    ),
  );
}

/** Texts as numbered points; the list under the picture says which is which. */
export function map(lines, found) {
  const size = Math.min(600, document.documentElement.clientWidth - 60);
  const edge = 40;
  const named = size >= 450 && lines.length <= 25; // else the list under the picture names them
  const spans = [0, 1].map((axis) => {
    const values = found.places.map((place) => place[axis]);
    return [Math.min(...values), Math.max(...values)];
  });
  // One scale for both axes, so that distances look as they are.
  const scale = (size - 2 * edge) / (Math.max(...spans.map(([low, high]) => high - low)) || 1);
  const [width, height] = spans.map(([low, high]) => Math.max(120, (high - low) * scale + 2 * edge));
  const at = ([x, y]) => [edge + (x - spans[0][0]) * scale, height - edge - (y - spans[1][0]) * scale];
  const taken = [];
  const points = found.places.map((place, number) => {
    const [x, y] = at(place);
    const right = x > width * 0.6;
    let line = y + 5; // of the label, which moves down until no other is there
    while (taken.some(([side, left, height]) => side === right && Math.abs(left - x) < (named ? 180 : 30) && Math.abs(height - line) < 15)) line += 15;
    taken.push([right, x, line]);
    const label = named ? `${number + 1} ${shortened(lines[number], 22)}` : `${number + 1}`;
    return drawn(
      "g",
      { class: "point" },
      drawn("title", {}, lines[number]),
      drawn("circle", { cx: x, cy: y, r: 6 }),
      drawn("text", { x: right ? x - 10 : x + 10, y: line, "text-anchor": right ? "end" : "start" }, label),
    );
  });
  const said = `${plural(lines.length, "text")} on a plane: ${found.axes.join(", ")}`;
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said }, ...points);
  const mark = (number, on) => points[number].classList.toggle("chosen", on);
  const items = lines.map((line, number) =>
    element(
      "li",
      { tabindex: 0, focus: () => mark(number, true), blur: () => mark(number, false),
        mouseenter: () => mark(number, true), mouseleave: () => mark(number, false) },
      line,
    ),
  );
  return [
    element("figure", { class: "map" }, picture, element("figcaption", {}, `${found.axes[0]} to the right, ${found.axes[1]} upwards.`)),
    element(
      "p",
      { class: "quiet" },
      `Trustworthiness ${share(found.trustworthiness)} (1: neighbours on the map are neighbours among the vectors). `,
      ...found.notes.map((note) => `${note}. `),
    ),
    element("ol", { class: "texts" }, items),
  ];
}

/** The attention of a layer: a head, or the mean of all, as lines or as a matrix. */
export function attention(found) {
  const { pieces, attentions, layer, layers } = found;
  const heads = attentions.map((_, head) => [String(head), `head ${head + 1}`]);
  const place = element("div");
  const said = element("p", { class: "quiet said", role: "status" });
  const select = (label, options) => {
    const id = newId();
    const made = element("select", { id, change: draw }, options.map(([value, name]) => element("option", { value }, name)));
    return [element("span", { class: "pair" }, element("label", { for: id }, label), made), made];
  };
  const [headField, head] = select("Head", [["mean", "mean of all heads"], ...heads]);
  const [viewField, view] = select("View", [["lines", "lines"], ["matrix", "matrix"]]);
  function weights() {
    if (head.value !== "mean") return attentions[Number(head.value)];
    return pieces.map((_, row) =>
      pieces.map((_, column) => attentions.reduce((sum, each) => sum + each[row][column], 0) / attentions.length),
    );
  }
  function draw() {
    said.textContent = "Choose a piece to see what it attends to.";
    place.replaceChildren((view.value === "lines" ? lines : matrix)(pieces, weights(), said));
  }
  draw();
  return [
    element("p", {}, `Layer ${layer} of ${layers}, ${plural(attentions.length, "head")}, ${plural(pieces.length, "piece")}.`),
    element("div", { class: "row" }, headField, viewField),
    said,
    place,
  ];
}

/** What a piece attends to most, in words. */
function strongest(pieces, row) {
  const order = row.map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  return order.map(([weight, at]) => `${pieces[at].text} ${share(weight)}`).join(", ");
}

function lines(pieces, weights, said) {
  const all = weights.flatMap((row, from) => row.map((weight, to) => ({ weight, from, to })));
  const sorted = all.sort((a, b) => b.weight - a.weight);
  const middle = (at) => at * ROW + ROW / 2;
  const height = pieces.length * ROW;
  const picture = drawn("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": true });
  picture.style.height = `${height}px`;
  function draw(only) {
    const chosen = only === null ? sorted.slice(0, MOST_LINES) : sorted.filter((each) => each.from === only);
    const most = Math.max(...chosen.map((each) => each.weight), 1e-9);
    picture.replaceChildren(
      ...chosen.map(({ weight, from, to }) =>
        drawn("line", {
          x1: 0, x2: 100, y1: middle(from), y2: middle(to),
          "stroke-opacity": Math.min(1, weight / most).toFixed(3), "vector-effect": "non-scaling-stroke",
        }),
      ),
    );
  }
  const buttons = pieces.map((piece, at) => {
    const choose = () => {
      buttons.forEach((button, each) => button.setAttribute("aria-pressed", each === at));
      draw(at);
      said.textContent = `“${piece.text}” attends to: ${strongest(pieces, weights[at])}`;
    };
    return element("button", { type: "button", "aria-pressed": false, click: choose, focus: choose }, piece.text);
  });
  rove(buttons);
  draw(null);
  const right = pieces.map((piece) => element("div", {}, piece.text));
  return element(
    "div",
    { class: "lines" },
    element("div", { class: "column from", role: "group", "aria-label": "Pieces; arrow keys move" }, buttons),
    picture,
    element("div", { class: "column", "aria-hidden": true }, right),
  );
}

function matrix(pieces, weights, said) {
  const most = Math.max(...weights.map((row) => Math.max(...row)));
  const cells = weights.map((row, from) => {
    const made = row.map((weight, to) => {
      const cell = element("td", { title: `${pieces[from].text} → ${pieces[to].text}: ${share(weight)}` });
      cell.style.setProperty("--share", weight / most);
      return cell;
    });
    const choose = () => (said.textContent = `“${pieces[from].text}” attends to: ${strongest(pieces, row)}`);
    const button = element("button", { type: "button", click: choose, focus: choose }, pieces[from].text);
    return [button, element("tr", { mouseenter: choose }, element("th", { scope: "row" }, button), made)];
  });
  rove(cells.map(([button]) => button));
  const names = pieces.map((piece) => element("th", { scope: "col" }, element("span", {}, piece.text)));
  const rows = element("tbody", {}, cells.map(([, row]) => row));
  const head = element("thead", {}, element("tr", {}, element("td", {}), names));
  const table = element("table", { class: "heat", "aria-label": "Attention" }, head, rows);
  return element(
    "div",
    {},
    element("p", { class: "quiet" }, `From the pieces on the left to those above. The full color is ${share(most)}.`),
    element("div", { class: "scroll" }, table),
  );
}
