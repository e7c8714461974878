"use strict";
/** An element with properties, or attributes where it has no property of that name, and children. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, given] of Object.entries(properties)) {
    if (name in made) made[name] = given;
    else made.setAttribute(name, given);
  }
  made.append(...children);
  return made;
}
