// Both texts show the same words: whichever is pointed at or has the focus is marked in both, with its numbers above.
const { words } = JSON.parse(document.getElementById("data").textContent);
const value = document.getElementById("value");
const panels = [...document.querySelectorAll(".beside section")].map((panel) => [...panel.querySelectorAll("[data-word]")]);
const signed = (number) => (number > 0 ? "+" : "") + number.toFixed(3);

function show(number) {
  for (const each of document.querySelectorAll("[data-word]")) {
    each.classList.toggle("chosen", each.dataset.word === number);
  }
  const [text, gradients, occlusion] = words[number];
  value.textContent = `${text}: integrated gradients ${signed(gradients)}, occlusion ${signed(occlusion)}`;
}

for (const panel of panels) {
  panel.forEach((each, place) => {
    each.tabIndex = place ? -1 : 0;
    each.addEventListener("pointerenter", () => show(each.dataset.word));
    each.addEventListener("click", () => each.focus());
    each.addEventListener("focus", () => {
      for (const other of panel) other.tabIndex = other === each ? 0 : -1;
      show(each.dataset.word);
    });
    each.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: panel.length - 1 };
      const next = panel[steps[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
  });
}
