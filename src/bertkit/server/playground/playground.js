// The page: asks the server for its models, makes a tab for each, and in it one for each of its tasks.
import { element, newId, plural, tabs } from "./dom.js";
import { curl } from "./samples.js";
import { TASKS } from "./tasks.js";

const server = document.getElementById("server");
const keyForm = document.getElementById("key");
const WAIT = 1000; // milliseconds between two looks for models that are being loaded
let key = null; // lives as long as the page

class Refused extends Error {
  constructor(status, said) {
    super(said.message ?? String(said));
    Object.assign(this, { status, kind: said.type ?? "error" });
  }
}

/** What the server answers, and the milliseconds that it took; Refused where it says no. */
async function ask(route, body = undefined) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (key !== null) headers.authorization = `Bearer ${key}`;
  const begun = performance.now();
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(route, { ...sent, headers }).catch(() => {
    throw new Refused(0, { type: "no answer", message: "The server does not answer. Is it still running?" });
  });
  const found = await response.json().catch(() => ({}));
  if (!response.ok) {
    // Paths of other services say it their way.
    throw new Refused(response.status, found.error ?? { message: found.message ?? response.statusText });
  }
  return { found, truncated: Number(response.headers.get("x-truncated") ?? 0), milliseconds: performance.now() - begun };
}

// The form of a task ------------------------------------------------------------------------------

/** A slider for each of several names, from 0 to 1. */
function slidersOf({ name, label, hint, shares }) {
  const rows = shares.map(([each, value]) => {
    const id = newId();
    const said = element("output", { for: id }, value.toFixed(2));
    const moved = ({ target }) => (said.textContent = Number(target.value).toFixed(2));
    const slider = element("input", { id, name, type: "range", min: 0, max: 1, step: 0.01, value, "data-name": each, input: moved });
    return element("div", { class: "row" }, element("label", { for: id }, each), slider, said);
  });
  return element("fieldset", { class: "field wide shares" }, element("legend", {}, label), element("small", { class: "quiet" }, hint), rows);
}

/** A field's element, its label, and what it says. */
function fieldOf(field, id) {
  if (field.kind === "shares") return slidersOf(field);
  const { name, label, kind, hint, optional, value, least, most, choices } = field;
  const described = hint ? { "aria-describedby": `${id}-hint` } : {};
  const common = { id, name, ...described, required: !optional && kind !== "flag" && kind !== "choice" };
  const input = {
    text: () => element("textarea", { ...common, rows: 3 }),
    lines: () => element("textarea", { ...common, rows: 6 }),
    line: () => element("input", { ...common, type: "text", autocomplete: "off" }),
    number: () => element("input", { ...common, type: "number", min: least, max: most, value }),
    flag: () => element("input", { ...common, type: "checkbox" }),
    choice: () => element("select", common, choices.map(([each, title]) => element("option", { value: each }, title))),
  }[kind]();
  const note = hint ? element("small", { id: `${id}-hint`, class: "quiet" }, hint) : null;
  const said = element("label", { for: id }, label, optional ? element("span", { class: "quiet" }, " (optional)") : null);
  const wide = ["text", "lines", "line"].includes(kind);
  return element("div", { class: `field ask-${kind}${wide ? " wide" : ""}` }, ...(kind === "flag" ? [input, said] : [said, input]), note);
}

function valuesOf(form, fields) {
  const read = {
    flag: (name) => form.elements[name].checked,
    number: (name) => (form.elements[name].value === "" ? "" : Number(form.elements[name].value)),
    shares: (name) =>
      Object.fromEntries([...form.querySelectorAll(`[name=${name}]`)].map((each) => [each.dataset.name, Number(each.value)])),
  };
  return Object.fromEntries(
    fields.map(({ name, kind }) => [name, (read[kind] ?? (() => form.elements[name].value))(name)]),
  );
}

function fill(form, example) {
  for (const [name, value] of Object.entries(example)) form.elements[name].value = value;
}

/** The panel of a task of a model. */
function taskPanel(model, name) {
  const task = TASKS[name];
  const fields = task.fields(model);
  const examples = task.examples(model);
  const route = task.route ?? `v1/${name}`;
  const bodyOf = (values) => ({ model: model.name, ...task.body(values, model) });
  const result = element("section", { class: "result", "aria-label": "Result", tabindex: -1 });
  const status = element("p", { role: "status", class: "quiet" });
  const samples = [["curl", element("code")], ["Python", element("code")], ["bertkit", element("code")]];
  let again = false;
  const run = element("button", { type: "submit", class: "run" }, "Run");

  function refresh() {
    const values = valuesOf(form, fields);
    const said = [curl(route, bodyOf(values), key !== null), task.python(model.source, values, model), task.command(model.source, values, model)];
    samples.forEach(([, code], at) => (code.textContent = said[at]));
  }
  async function submit(event) {
    event?.preventDefault();
    if (!form.reportValidity()) return;
    again = result.ariaBusy === "true"; // what was changed meanwhile is asked afterwards
    if (again) return;
    const values = valuesOf(form, fields);
    result.ariaBusy = "true";
    status.textContent = "Running …";
    try {
      const answer = await ask(route, bodyOf(values));
      status.textContent = said(answer);
      result.replaceChildren(...notices(answer), ...task.show(answer.found.results, values, model, answer.found));
    } catch (error) {
      status.textContent = "";
      const advice = error.kind === "too_long" && values.overflow !== undefined ? "Shorten it, or choose “cut the end” above." : "";
      result.replaceChildren(refusal(error, advice));
    } finally {
      result.ariaBusy = "false";
      if (again) submit();
    }
  }
  const form = element(
    "form",
    { class: "ask", novalidate: false, submit, input: refresh },
    element("p", {}, task.about(model)),
    examples.length > 1
      ? element("div", { class: "row", role: "group", "aria-label": "Examples" }, examples.map((example, at) =>
          element("button", { type: "button", click: () => { fill(form, example); refresh(); } }, `Example ${at + 1}`)))
      : null,
    element("div", { class: "fields" }, fields.map((field) => fieldOf(field, newId()))),
    element("div", { class: "row" }, run, element("span", { class: "quiet" }, "Ctrl+Enter runs it from a text, too."), status),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  });
  // A threshold that is moved under an answer is applied at once.
  form.addEventListener("change", (event) => {
    if (event.target.type === "range" && result.children.length) submit();
  });
  fill(form, examples[0]);
  refresh();
  const same = element("section", { class: "same", "aria-label": "The same call elsewhere" }, element("h3", {}, "The same call"), samples.map(sampleBlock));
  return element("div", {}, form, result, same);
}

function sampleBlock([title, code]) {
  const copy = element("button", { type: "button", "aria-label": `Copy the ${title} call` }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "Selected";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return element("div", { class: "sample" }, element("div", { class: "row" }, element("h4", {}, title), copy), element("pre", { tabindex: 0, "aria-label": `${title} call` }, code));
}

function said({ found, milliseconds }) {
  const tokens = found.usage?.tokens ?? found.usage?.total_tokens;
  return `Done in ${milliseconds.toFixed(0)} ms${tokens === undefined ? "" : `, ${plural(tokens, "token")}`}`;
}

function notices({ found, truncated }) {
  const count = truncated || (found.truncated ?? []).filter(Boolean).length;
  if (!count) return [];
  return [element("p", { class: "notice", role: "alert" }, `Truncated: the end of ${plural(count, "text")} was not read, because the model reads no more.`)];
}

function refusal(error, advice) {
  if (!(error instanceof Refused)) {
    console.error(error);
    return element("p", { class: "refusal", role: "alert" }, `This page cannot show the answer: ${error.message}`);
  }
  const name = error.status ? `${error.status} ${error.kind}` : error.kind;
  return element("p", { class: "refusal", role: "alert" }, element("b", {}, `${name}: `), `${error.message.replace(/\.$/, "")}. ${advice}`);
}

// Models ------------------------------------------------------------------------------------------

function factsOf(model) {
  const facts = [model.model_class, model.family, plural(model.max_length, "token"), model.engine, model.precision];
  const scores = Object.entries(model.dev_scores ?? {}).map(([name, score]) => `${name} ${score.toFixed(3)}`);
  return element("p", { class: "quiet facts" }, [...facts, ...scores].filter(Boolean).join(" · "));
}

/** The panel of a model. */
function modelPanel(model) {
  const panel = element("section");
  show(panel, model);
  return panel;
}

const OF_HEADS = new Set(["classify", "tag", "redact", "answer", "explain"]);

/** Its facts, its tasks, and what it does not do; or that it is not ready. */
function show(panel, model) {
  const title = element("h2", {}, model.name);
  if (model.state !== "ready") return panel.replaceChildren(title, ...notReady(panel, model));
  const isRun = model.tasks[0] === "analyze"; // each of its heads has a tab of its own
  const known = Object.keys(TASKS).filter((name) => model.tasks.includes(name) && !(isRun && OF_HEADS.has(name)));
  const list = element("div", { role: "tablist", "aria-label": `Tasks of ${model.name}`, class: "tasks" });
  const place = element("div", { role: "tabpanel" });
  const lacks = Object.entries(model.lacks).map(([name, reason]) =>
    element("p", { class: "quiet" }, `This model has no tab for ${name}, because ${reason}.`),
  );
  tabs(list, known.map((name) => [name, TASKS[name].title]), (name) => taskPanel(model, name), place);
  panel.replaceChildren(title, factsOf(model), list, place, ...lacks);
}

function notReady(panel, model) {
  const reasons = { failed: `It could not be loaded: ${model.error}`, loading: "It is being loaded.", unloaded: "It is not loaded." };
  const look = async () => {
    const { found } = await ask("v1/info");
    const shown = document.querySelectorAll("#models [role=tab]").length;
    if (found.models.length !== shown) return start(); // a run has told its heads
    show(panel, found.models.find((each) => each.name === model.name));
  };
  const load = async () => {
    // Any request loads it; the answer is that it is not ready yet.
    await ask("v1/tokenize", { model: model.name, input: "x" }).catch(() => null);
    await look();
  };
  if (model.state === "loading") setTimeout(() => look().catch(() => null), WAIT);
  const button = { unloaded: ["Load it", load], failed: ["Look again", look] }[model.state];
  const said = element("p", { role: "status" }, reasons[model.state]);
  return button ? [said, element("button", { type: "button", click: button[1] }, button[0])] : [said];
}

async function start() {
  try {
    const { found } = await ask("v1/info");
    keyForm.hidden = true;
    const { models } = found;
    server.textContent = `bertkit ${found.version}, ${plural(models.length, "model")}`;
    const panel = document.getElementById("model");
    panel.setAttribute("role", "tabpanel");
    const open = (name) => modelPanel(models.find((model) => model.name === name));
    tabs(document.getElementById("models"), models.map((model) => [model.name, model.name]), open, panel);
  } catch (error) {
    const needsKey = error.status === 401;
    if (!(error instanceof Refused)) console.error(error);
    keyForm.hidden = !needsKey;
    server.textContent = needsKey && key === null ? "This server needs a key." : error.message;
    if (needsKey) document.getElementById("secret").focus();
  }
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  key = document.getElementById("secret").value;
  start();
});
start();
