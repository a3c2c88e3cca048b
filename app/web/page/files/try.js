// The part of the page that sends requests: JSON, a picture, or a drawing.

import { showAnswer, showFailure } from "./answer.js";
import { Drawing } from "./drawing.js";
import { element, find, replaceIfChanged, say } from "./dom.js";
import { ask } from "./key.js";
import { curlText, snippets } from "./snippets.js";

// The largest sides of a picture that can be drawn by hand.
const DRAWN = 32;
// Characters of JSON that stand in one line.
const WIDE = 100;
// Characters of a command that people read in passing.
const LONGEST_HINT = 200;

// JSON with lists that fit into a line on one line each.
export function pretty(value, indent = "") {
  const flat = JSON.stringify(value);
  if (flat === undefined || flat.length + indent.length <= WIDE || typeof value !== "object") {
    return flat?.replaceAll(",", ", ") ?? "";
  }
  const inner = `${indent} `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const lines = Object.entries(value).map(([key, each]) =>
    inner + (Array.isArray(value) ? "" : `${JSON.stringify(key)}: `) + pretty(each, inner));
  return `${open}\n${lines.join(",\n")}\n${indent}${close}`;
}

export class Trial {
  #models = []; #default = null; #picture = null; #drawing; #asked = 0;

  constructor() {
    this.#drawing = new Drawing(find("drawing"), () => this.#send());
    find("try-model").addEventListener("change", () => this.#chooseModel());
    find("try-version").addEventListener("change", () => this.#update());
    find("try-kinds").addEventListener("change", () => this.#update());
    find("json").addEventListener("input", () => this.#update());
    find("example").addEventListener("click", () => this.#putExample());
    find("clear").addEventListener("click", () => this.#drawing.clear());
    find("picture").addEventListener("change", (event) => this.#take(event.target.files[0]));
    const drop = find("with-picture");
    drop.addEventListener("dragover", (event) => event.preventDefault());
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this.#take(event.dataTransfer.files[0]);
    });
    find("try-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  // Take over the models of the server; what was chosen and typed stays.
  show({ models, default_model: byDefault }) {
    this.#default = byDefault;
    const served = models
      .map((model) => ({ ...model, versions: model.versions.filter((each) => each.state === "AVAILABLE") }))
      .filter((model) => model.versions.length);
    this.#models = served;
    const select = find("try-model");
    const before = select.value;
    const isNew = replaceIfChanged(select, served, () =>
      served.map(({ name }) => element("option", { value: name }, name)));
    if (!isNew) return;
    const names = served.map((model) => model.name);
    const wanted = [before, byDefault].find((name) => names.includes(name));
    if (wanted !== undefined) select.value = wanted;
    if (before && before === select.value) this.#listVersions();
    else this.#chooseModel();
  }

  // How to send a first request, as the end of a sentence.
  hint() {
    if (!this.#model) return ".";
    const command = curlText(this.#request(this.#version.image ? "picture" : "json"));
    return `: try the model below${command.length <= LONGEST_HINT ? `, or ${command}` : "."}`;
  }

  get #model() { return this.#models.find(({ name }) => name === find("try-model").value); }

  get #version() {
    const versions = this.#model?.versions ?? [];
    // The newest is the first.
    return versions.find((each) => String(each.version) === find("try-version").value) ?? versions[0];
  }

  get #kind() { return document.querySelector("[name=kind]:checked").value; }

  #chooseModel() {
    this.#listVersions();
    const image = this.#version?.image;
    const kind = this.#canDraw ? "drawing" : image ? "picture" : "json";
    document.querySelector(`[name=kind][value=${kind}]`).checked = true;
    this.#drawing.fit(image?.size ?? [8, 8]);
    this.#putExample();
  }

  #listVersions() {
    const numbers = (this.#model?.versions ?? []).map((each) => each.version);
    replaceIfChanged(find("try-version"), [this.#model?.name, numbers], () => [
      element("option", { value: "" }, "as for any client"),
      ...numbers.map((number) => element("option", { value: number }, number)),
    ]);
    this.#update();
  }

  get #canDraw() {
    const image = this.#version?.image;
    return Boolean(image && image.mode === "L" && Math.max(...image.size) <= DRAWN);
  }

  #putExample() {
    const body = this.#version?.example;
    find("json").value = body ? pretty(body) : "";
    find("json").placeholder = body ? "" : '{"instances": [ … ]}: there is no example, '
      + "as a row is too large, or service.py has no EXAMPLE.";
    this.#update();
  }

  // Show the fields for what is sent, and the snippets.
  #update() {
    const version = this.#version;
    // A service.py may take pictures: only it knows.
    const takesPictures = Boolean(version?.image || version?.user_code);
    find("kind-picture").hidden = !takesPictures;
    find("kind-drawing").hidden = !this.#canDraw;
    if ((this.#kind === "picture" && !takesPictures) || (this.#kind === "drawing" && !this.#canDraw)) {
      document.querySelector("[name=kind][value=json]").checked = true;
    }
    for (const kind of ["json", "picture", "drawing"]) find(`with-${kind}`).hidden = kind !== this.#kind;
    find("send").disabled = !version;
    if (!version) return;
    if (!this.#asked) say("try-status", `Nothing sent yet. ${this.#firstStep}`);
    const texts = snippets(this.#request(this.#kind));
    replaceIfChanged(find("snippets"), texts, () => texts.map(snippetPart));
  }

  get #firstStep() {
    if (this.#kind === "drawing") return "Draw a digit.";
    if (this.#kind === "picture") return "Drop a picture, or pick one.";
    return this.#version.example ? "Send the example, or edit it first." : "Write a body, and send it.";
  }

  // What is sent, for fetch and for the snippets.
  #request(kind) {
    const { name } = this.#model;
    const number = find("try-version").value;
    const quoted = encodeURIComponent(name);
    const asPicture = kind !== "json";
    const top = asPicture && this.#version.image?.classes ? "&top=5" : "";
    const path = number ? `v1/models/${quoted}/versions/${number}:predict` : `predict?model=${quoted}${top}`;
    return { path, kind, name, number, version: this.#version, text: find("json").value };
  }

  #take(file) {
    if (!file) return;
    this.#picture = file;
    URL.revokeObjectURL(find("preview").src);
    find("preview").src = URL.createObjectURL(file);
    find("preview").hidden = false;
    this.#update();
    this.#send();
  }

  async #body(kind) {
    if (kind === "json") return [find("json").value, "application/json"];
    if (kind === "drawing") return [await this.#drawing.png(), "image/png"];
    return [this.#picture, this.#picture?.type || "application/octet-stream"];
  }

  async #send() {
    const request = this.#request(this.#kind);
    const [body, type] = await this.#body(request.kind);
    if (!body) {
      showFailure(request.kind === "json" ? "Write a body first." : "Pick a picture first.");
      return;
    }
    const number = this.#asked += 1;
    const before = performance.now();
    try {
      const reply = await ask(request.path, { method: "POST", headers: { "Content-Type": type }, body });
      const text = await reply.text();
      // An answer to an older request comes too late to be shown.
      if (number === this.#asked) showAnswer(reply, text, performance.now() - before);
    } catch {
      if (number === this.#asked) showFailure("The server does not answer.");
    }
  }
}

function snippetPart([title, text]) {
  const code = element("pre", { tabindex: "0", "aria-label": title }, text);
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Browsers copy for pages of https and of this machine only.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected: copy it with the keyboard";
    }
  };
  return element("details", {},
    element("summary", {}, title),
    element("button", { type: "button", "aria-label": `Copy ${title}`, click: copy }, "Copy"),
    code);
}
