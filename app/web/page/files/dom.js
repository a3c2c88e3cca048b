// Builds elements. Text is always text, never HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== ""));
  return made;
}

export const find = (id) => document.getElementById(id);

// Write text only if it differs, so that screen readers announce changes alone.
export function say(id, text) {
  const place = find(id);
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}

// Run `build` and replace the children of `place` only if `value` differs from the last
// call's, so that focus and selected text stay where they are.
export function replaceIfChanged(place, value, build) {
  const text = JSON.stringify(value);
  if (place.shown === text) return false;
  place.shown = text;
  place.replaceChildren(...build());
  return true;
}

// Ask once more. Resolves to whether the user has agreed; Escape and Cancel say no.
export function confirmed(title, text, agree) {
  const dialog = find("confirm");
  say("confirm-title", title);
  say("confirm-text", text);
  say("confirm-yes", agree);
  find("confirm-yes").onclick = () => dialog.close("yes");
  find("confirm-no").onclick = () => dialog.close("");
  dialog.returnValue = "";
  return new Promise((resolve) => {
    const answer = () => resolve(dialog.returnValue === "yes");
    dialog.addEventListener("close", answer, { once: true });
    dialog.showModal();
  });
}
