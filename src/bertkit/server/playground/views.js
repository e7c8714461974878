// What the results of tasks look like: bars, marked texts, tables.
import { element, newId, plural, share, signed, slice } from "./dom.js";

const bar = (part, className = "") => {
  const made = element("div", { class: `bar ${className}`, "aria-hidden": true });
  made.style.setProperty("--share", Math.min(1, Math.max(0, part)));
  return made;
};

/** A table; the first row has the names of the columns. Numbers are aligned to the right. */
export function table(caption, names, rows) {
  const isNumber = (value) => typeof value === "number" || /^[−+]?\d[\d.]*(–\d+)?$/.test(value);
  const cell = (value) => element("td", { class: isNumber(value) ? "number" : null }, value instanceof Node ? value : String(value));
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, names.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell)))),
    ),
  );
}

/** Names with their scores as bars. `most` is the score of a full bar. */
export function bars(caption, name, found, most = 1) {
  const rows = found.map(([label, score, more, left]) =>
    element(
      "tr",
      { class: left ? "below" : null },
      element("th", { scope: "row" }, label),
      element("td", { class: "wide" }, bar(score / most), more ? element("div", { class: "quiet" }, more) : null),
      element("td", { class: "number" }, share(score)),
    ),
  );
  const head = [name, "", "Score"].map((each) => element("th", { scope: "col" }, each));
  return element(
    "table",
    { class: "bars" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, rows),
  );
}

/** Labels by probability, with their thresholds, and which of them the model gives; `chosen` undefined: it gives numbers. */
export function decided(labels, thresholds, chosen) {
  if (chosen === undefined) return [bars("Scores", "Label", labels.map(({ label, score }) => [label, score]))];
  const given = [chosen ?? []].flat();
  const least = ({ label }) => (thresholds[label] ? `threshold ${thresholds[label].toFixed(2)}` : null);
  const rows = labels.map((each) => [each.label, each.score, least(each), !given.includes(each.label)]);
  const none = Array.isArray(chosen) ? "no label reaches its threshold" : "the label that it decides for is below its threshold";
  const said = given.length ? ["The model gives: ", element("b", {}, given.join(", ")), "."] : [element("b", {}, "The model abstains"), `: ${none}.`];
  return [element("p", { role: "status", class: "decided" }, ...said), bars("Labels by probability", "Label", rows)];
}

const KINDS = 6; // colors in the style sheet

/** The number of the color of each name, in the order in which they appear. */
function colors(names) {
  const numbers = new Map();
  for (const name of names) if (!numbers.has(name)) numbers.set(name, numbers.size % KINDS);
  return numbers;
}

/** A text with spans marked, each with its label, so that no color has to be told apart. Spans do not overlap. */
export function marked(text, spans) {
  const numbers = colors(spans.map((span) => span.label));
  const parts = [];
  let done = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < done) continue;
    const label = span.label ? element("span", { class: "label" }, ` ${span.label}`) : null;
    const mark = element("mark", { class: `kind${numbers.get(span.label)}` }, slice(text, span.start, span.end), label);
    parts.push(slice(text, done, span.start), mark);
    done = span.end;
  }
  return element("p", { class: "text" }, ...parts, slice(text, done));
}

/** Entities in their text, and as a table. */
export function entities(text, found) {
  if (!found.length) return [element("p", {}, "The model finds no entity in this text.")];
  const spans = found.map((one) => ({ ...one, label: one.entity_group ?? one.entity }));
  const rows = spans.map((one) => [one.label, one.word, share(one.score), `${one.start}–${one.end}`]);
  return [marked(text, spans), table("Entities", ["Type", "Text", "Score", "Characters"], rows)];
}

export function redaction(text, { text: redacted, spans }) {
  const placeholders = spans.map((one) => ({ start: one.redacted_start, end: one.redacted_end, label: "" }));
  const rows = spans.map((one) => [one.placeholder, one.word, one.label, share(one.score)]);
  return [
    marked(redacted, placeholders),
    spans.length
      ? table("What was replaced", ["Placeholder", "Text", "Type", "Score"], rows)
      : element("p", {}, "The model finds no entity, so nothing is replaced."),
  ];
}

export function answers(context, found) {
  const real = found.filter((one) => one.answer);
  const rows = found.map((one) => [one.answer || "(no answer in this text)", share(one.score), `${one.start}–${one.end}`]);
  return [
    marked(context, real.slice(0, 1).map((one) => ({ ...one, label: "answer" }))),
    table("Answers, the most probable first", ["Answer", "Score", "Characters"], rows),
  ];
}

/** The words of a text, each with how far it moved a score: blue and a line for, orange and dashes against. */
export function moved(texts, words) {
  const most = Math.max(...words.map((word) => Math.abs(word.drop)), 1e-9);
  return texts.filter(Boolean).map((text, which) => {
    const parts = [];
    let done = 0;
    for (const word of words.filter((each) => each.second === (which === 1))) {
      const made = element(
        "span",
        { class: `word ${word.drop < 0 ? "against" : ""}`, title: signed(word.drop) },
        slice(text, word.start, word.end),
      );
      made.style.setProperty("--share", Math.abs(word.drop) / most);
      parts.push(slice(text, done, word.start), made);
      done = word.end;
    }
    return element("p", { class: "text" }, ...parts, slice(text, done));
  });
}

export function explanation(texts, found) {
  const gradients = "baseline" in found;
  const words = gradients ? found.words.map((word) => ({ ...word, drop: word.gradients })) : found.words;
  const most = Math.max(...words.map((word) => Math.abs(word.drop)), 1e-9);
  const rows = [...words].sort((a, b) => Math.abs(b.drop) - Math.abs(a.drop)).map((word) => [
    word.text,
    bar(Math.abs(word.drop) / most, word.drop < 0 ? "against" : ""),
    signed(word.drop),
    gradients ? signed(word.occlusion) : share(word.score),
  ]);
  const of = found.word === null || found.word === undefined ? "" : ` of “${found.words[found.word].text}”`;
  const how = found.hidden_by === "mask" ? "masked" : "left out, because the model has no mask";
  const said = gradients
    ? ` has the logit ${found.score.toFixed(3)}, and ${found.baseline_score.toFixed(3)} with ${found.baseline} in place of all words. ` +
      `The gradients add up to the difference with an error of ${(100 * found.completeness_error).toFixed(2)} %.`
    : ` has the score ${share(found.score)}. Each word was ${how} in turn.`;
  const columns = gradients ? ["Gradients", "Drop of the logit without it"] : ["Drop of the score", "Score without it"];
  return [
    element("p", {}, element("b", {}, found.label), `${of}${said}`),
    ...moved(texts, words),
    element("p", { class: "quiet" }, gradients
      ? "Blue, solid line: the word speaks for it. Orange, dashed line: against it."
      : "Blue, solid line: the score drops without the word. Orange, dashed line: it rises."),
    table("Words, the strongest first", ["Word", "", ...columns], rows),
  ];
}

/** The pieces of a text, as they follow each other, and as a table. */
export function pieces(found) {
  const chips = found.map((piece) =>
    element("li", { class: piece.special ? "special" : "" }, piece.text, element("small", {}, String(piece.id))),
  );
  const rows = found.map((piece, at) => [
    at,
    piece.text,
    piece.word === null ? "" : piece.word + 1,
    piece.id,
    piece.segment,
    piece.special ? "special" : `${piece.start}–${piece.stop}`,
  ]);
  return [
    element("p", {}, `${plural(found.length, "piece")}, special ones included.`),
    element("ol", { class: "chips", "aria-label": "Pieces" }, chips),
    table("Pieces", ["Place", "Piece", "Word", "Id", "Segment", "Characters"], rows),
  ];
}

export function vector(found) {
  const numbers = found.slice(0, 12).map((value) => value.toFixed(4)).join(", ");
  const length = Math.sqrt(found.reduce((sum, value) => sum + value * value, 0));
  return [
    element("p", {}, `${plural(found.length, "number")}; length of the vector ${length.toFixed(3)}.`),
    element("pre", { tabindex: 0 }, `[${numbers}${found.length > 12 ? ", …" : ""}]`),
  ];
}

/** What one of several heads says of a text: entities, labels or a number. */
export function head(name, text, found) {
  const title = element("h3", {}, name);
  if (Array.isArray(found) && found.every((one) => "start" in one)) return [title, ...entities(text, found)];
  const labels = [found].flat();
  if (!labels.every((one) => "label" in one)) return [title, element("pre", { tabindex: 0 }, JSON.stringify(found, null, 2))];
  const most = Math.max(1, ...labels.map((one) => one.score));
  return [title, bars("Labels", "Label", labels.map((one) => [one.label, one.score]), most)];
}
