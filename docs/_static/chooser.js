// Hides the answers of the first page that were not asked for. Without it the page shows all of them.
"use strict";

function choices(sections) {
  const names = new Map();
  for (const section of sections) {
    const [, have, ...labels] = section.id.split("-");
    const [thing, ...said] = section.querySelector("h3").firstChild.textContent.split(", ");
    if (!names.has(have)) names.set(have, { said: thing, labels: new Map() });
    labels.forEach((label, index) => names.get(have).labels.set(label, said[index]));
  }
  return names;
}

function group(title, name, options) {
  const set = document.createElement("fieldset");
  const legend = set.appendChild(document.createElement("legend"));
  legend.textContent = title;
  for (const [value, said] of options) {
    const label = set.appendChild(document.createElement("label"));
    const input = label.appendChild(document.createElement("input"));
    Object.assign(input, { type: "radio", name, value, checked: value === "" });
    label.append(" " + said);
  }
  return set;
}

function chooser() {
  const sections = [...document.querySelectorAll('section[id^="choose-"]')];
  if (!sections.length) return;
  const found = choices(sections);
  const labels = new Map([...found.values()].flatMap((each) => [...each.labels]));
  const machines = [...sections[0].querySelectorAll("li")].slice(2).map((item) => item.querySelector("strong").textContent);
  const form = document.createElement("form");
  form.className = "chooser";
  form.append(
    group("I have", "have", [["", "anything"], ...[...found].map(([name, each]) => [name, each.said.toLowerCase()])]),
    group("labelled", "labels", [["", "any"], ...labels]),
    group("on", "machine", [["", "any machine"], ...machines.map((each) => [each, each.replace(":", "")])]),
  );
  const said = form.appendChild(document.createElement("p"));
  said.setAttribute("role", "status");
  form.addEventListener("change", () => {
    const asked = new FormData(form);
    let number = 0;
    for (const section of sections) {
      const [, have, ...own] = section.id.split("-");
      const shown = (!asked.get("have") || asked.get("have") === have) && (!asked.get("labels") || own.includes(asked.get("labels")));
      section.hidden = !shown;
      number += shown ? 1 : 0;
      for (const item of [...section.querySelectorAll("li")].slice(2)) {
        const machine = item.querySelector("strong").textContent;
        item.hidden = Boolean(asked.get("machine")) && asked.get("machine") !== machine;
      }
    }
    said.textContent = number === 1 ? "One answer below." : `${number} answers below.`;
  });
  sections[0].before(form);
}

chooser();
