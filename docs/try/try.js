// "Try it here": loads the model when asked, and draws what the engine answers. Nothing is sent anywhere.

import { Engine, whatIsMissing } from "./engine.js";

const PROGRAM = new URL("bertkit.wasm", import.meta.url);
const MODEL = new URL("bertkit-tiny-en.bin.gz", import.meta.url);
const CANDIDATES = 5;
// Between the last key and the answer.
const PAUSE_MILLISECONDS = 150;

const section = document.querySelector(".bertkit-try");
const [button, progress, status, tools] = ["load", "progress", "status", "tools"].map((name) =>
  section.querySelector(`.try-${name}`));

// ---- Drawing ----

function made(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function withShare(element, share) {
  element.style.setProperty("--share", Math.min(1, Math.max(0, share)));
  return element;
}

// Two decimals, without a minus before 0.00.
function hundredths(number) {
  return (Math.round(100 * number) / 100 || 0).toFixed(2);
}

// A table that scrolls by keyboard as well where it is wider than the page.
function scrolled(table, label) {
  const box = made("div", "", { class: "try-scroll", tabindex: "0", role: "region", "aria-label": label });
  box.append(table);
  return box;
}

function headRow(names) {
  const head = made("thead");
  const row = head.appendChild(made("tr"));
  for (const name of names) row.append(made(name ? "th" : "td", name, name ? { scope: "col" } : {}));
  return head;
}

// By tool, what a text becomes: an element, and a note.
const TOOLS = {
  similarity(engine, text) {
    const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!lines.length) throw new Error("Write a line.");
    const table = made("table", "", { class: "try-matrix" });
    table.append(headRow(["Line", ...lines.map((_, i) => `${i + 1}`)]));
    const body = table.appendChild(made("tbody"));
    engine.similarities(lines).forEach((cosines, i) => {
      const row = body.appendChild(made("tr"));
      row.append(made("th", `${i + 1}. ${lines[i]}`, { scope: "row", title: lines[i] }));
      for (const cosine of cosines) row.append(withShare(made("td", hundredths(cosine)), cosine));
    });
    return [scrolled(table, "Similarities of the lines"), "Cosines of the lines' vectors: 1 is the same direction."];
  },

  fill(engine, text) {
    const answer = made("div");
    engine.fill(text, CANDIDATES).forEach((candidates, mask, all) => {
      if (all.length > 1) answer.append(made("p", `[MASK] ${mask + 1}`));
      const list = answer.appendChild(made("ol", "", { class: "try-bars" }));
      for (const { token, probability } of candidates) {
        const row = list.appendChild(made("li"));
        row.append(made("span", token), withShare(made("span", "", { class: "try-bar" }), probability));
        row.append(made("span", `${(100 * probability).toFixed(1)} %`, { class: "try-share" }));
      }
    });
    return [answer, "The probabilities of the likeliest words of the vocabulary."];
  },

  pieces(engine, text) {
    const pieces = engine.pieces(text);
    const characters = [...text];
    const table = made("table", "", { class: "try-pieces" });
    table.append(headRow(["In the text", "Piece", "Id", "Word", "From", "To"]));
    const body = table.appendChild(made("tbody"));
    for (const { token, id, word, start, end } of pieces) {
      const row = body.appendChild(made("tr"));
      for (const cell of [characters.slice(start, end).join(""), token, id, word, start, end]) row.append(made("td", cell));
    }
    return [scrolled(table, "Pieces of the text"), `${pieces.length} pieces. From and to count characters.`];
  },
};

function show(engine, form) {
  const note = form.querySelector(".try-note");
  const answer = form.querySelector(".try-answer");
  const begun = performance.now();
  try {
    const [element, text] = TOOLS[form.dataset.tool](engine, form.querySelector("textarea").value);
    answer.replaceChildren(element);
    note.textContent = `${text} ${Math.ceil(performance.now() - begun)} ms.`;
    note.classList.remove("try-wrong");
  } catch (error) {
    answer.replaceChildren();
    note.textContent = sentence(error);
    note.classList.add("try-wrong");
  }
}

function sentence(error) {
  const text = error.message;
  return text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}

// ---- Loading ----

let tries = 0;

// The bytes of a file; told(bytes) as they come. A second try asks the server, whatever the browser has kept.
async function downloaded(url, told) {
  const name = url.pathname.split("/").pop();
  const response = await fetch(url, { cache: tries > 1 ? "reload" : "default" }).catch(() => {
    throw new Error(`${name} could not be loaded; is the server, or the network, gone?`);
  });
  if (!response.ok) throw new Error(`${name} could not be loaded: the server said ${response.status}`);
  const chunks = [];
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    told(value.length);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

// Some servers unpack a .gz on the way, or have the browser do it.
async function unpacked(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Error("the model's file came damaged, or not all of it came; load it again");
  }
}

async function load() {
  const total = Number(section.dataset.bytes);
  let received = 0;
  const told = (bytes) => {
    received += bytes;
    progress.value = Math.min(1, received / total);
  };
  status.textContent = "Loading …";
  const begun = performance.now();
  const [program, packed] = await Promise.all([downloaded(PROGRAM, told), downloaded(MODEL, told)]);
  const engine = await Engine.load(program, await unpacked(packed));
  status.textContent = `The model is loaded: ${((performance.now() - begun) / 1000).toFixed(1)} s. It answers as you type.`;
  return engine;
}

function begin(engine) {
  tools.hidden = false;
  for (const form of tools.querySelectorAll("form")) {
    let waiting;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => show(engine, form), PAUSE_MILLISECONDS);
    });
    show(engine, form);
  }
  tools.querySelector("textarea").focus();
}

async function pressed() {
  tries += 1;
  button.disabled = true;
  progress.hidden = false;
  status.classList.remove("try-wrong");
  try {
    begin(await load());
    button.hidden = true;
  } catch (error) {
    status.textContent = sentence(error);
    status.classList.add("try-wrong");
    button.disabled = false;
  }
  progress.hidden = true;
}

const missing = whatIsMissing();
if (missing) {
  status.textContent = `This browser cannot run the model: it has no ${missing}. A newer one can, and so can Python: pip install bertkit.`;
} else {
  button.hidden = false;
  button.addEventListener("click", pressed);
}
