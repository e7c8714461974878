// Elements, numbers, and slices of texts by code points, which is what offsets of the server count.

/** An element. Attributes by name; a function is a listener, `true` an attribute without a value, null is left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

/** The same in SVG. */
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

let lastNumber = 0;
/** A name that no other element of the page has. */
export const newId = () => `e${++lastNumber}`;

export const share = (value) => value.toFixed(value !== 0 && Math.abs(value) < 0.01 ? 4 : 3);
export const signed = (value) => (value < 0 ? "−" : "+") + share(Math.abs(value));
export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
export const slice = (text, start, end) => [...text].slice(start, end).join("");
export const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
export const shortened = (text, most) => ([...text].length > most ? `${slice(text, 0, most - 1)}…` : text);

/** One of a list of buttons is reached by Tab, the others by arrow keys, Home and End. `reached` is called for it. */
export function rove(buttons, reached = () => {}) {
  buttons.forEach((button, at) => {
    button.tabIndex = at ? -1 : 0;
    button.addEventListener("keydown", (event) => {
      const last = buttons.length - 1;
      const next = {
        ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const found = buttons[Math.min(last, Math.max(0, next))];
      found.focus();
      reached(found);
    });
    button.addEventListener("focus", () => buttons.forEach((each) => (each.tabIndex = each === button ? 0 : -1)));
  });
}

/** A list of tabs whose panel is made when it is first shown. `open` returns the panel of a name. */
export function tabs(list, names, open, panel) {
  const panels = new Map();
  panel.id ||= newId();
  const said = { type: "button", role: "tab", "aria-controls": panel.id };
  const buttons = names.map(([name, title]) =>
    element("button", { ...said, id: newId(), "data-name": name, click: () => show(name) }, title),
  );
  function show(name) {
    if (!panels.has(name)) panels.set(name, open(name));
    for (const button of buttons) {
      const chosen = button.dataset.name === name;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
      if (chosen) panel.setAttribute("aria-labelledby", button.id);
    }
    panel.replaceChildren(panels.get(name));
  }
  list.replaceChildren(...buttons);
  rove(buttons, (button) => show(button.dataset.name));
  if (names.length) show(names[0][0]);
}
