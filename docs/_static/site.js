// A button that copies a block, and names for what the theme leaves without one.
"use strict";

function addCopyButtons() {
  for (const block of document.querySelectorAll("div[class*='highlight-']:not(.block-output div)")) {
    const text = block.querySelector("pre");
    if (!text || !navigator.clipboard) continue;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy-block", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
}

function nameControls() {
  for (const button of document.querySelectorAll(".search-button-field")) button.setAttribute("aria-label", "Search Ctrl + K");
  for (const button of document.querySelectorAll(".version-switcher__button")) button.removeAttribute("aria-label");
  for (const summary of document.querySelectorAll("details > summary:has(.toctree-toggle)")) {
    const link = summary.closest("li")?.querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this"}`);
  }
  for (const block of document.querySelectorAll(".highlight pre, .pst-scrollable-table-container, .bd-article p:has(> img)")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  }
}

addCopyButtons();
nameControls();
