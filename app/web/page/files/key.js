// The API key: kept for this tab only, and sent as a header.

import { find, say } from "./dom.js";

const NAME = "basket-key";
// Whether the form was opened by hand, where the server answers without a key, too.
let byHand = false;

export const key = () => sessionStorage.getItem(NAME) ?? "";

export function withKey(headers = {}) {
  return key() ? { ...headers, Authorization: `Bearer ${key()}` } : headers;
}

export function ask(path, options = {}) {
  return fetch(path, { ...options, headers: withKey(options.headers) });
}

// Call `given` when a key was entered, and `forgotten` when it was forgotten.
export function installKeyForm(given, forgotten) {
  const form = find("key-form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const entered = find("key").value.trim();
    find("key").value = "";
    // A header takes no other characters.
    if (!/^[\x21-\x7e]+$/.test(entered)) {
      say("key-problem", "A key has no spaces and no letters outside ASCII.");
      return;
    }
    sessionStorage.setItem(NAME, entered);
    byHand = false;
    given();
  });
  find("give")?.addEventListener("click", () => {
    byHand = true;
    showKeyForm();
  });
  find("forget").addEventListener("click", () => {
    sessionStorage.removeItem(NAME);
    forgotten();
  });
}

export function showKeyForm() {
  say("key-problem", key() ? "This server does not know that key." : "");
  sessionStorage.removeItem(NAME);
  find("forget").hidden = true;
  if (find("key-form").hidden) {
    find("key-form").hidden = false;
    find("key").focus();
  }
}

export function hideKeyForm() {
  find("key-form").hidden = !byHand;
  find("forget").hidden = !key();
}
