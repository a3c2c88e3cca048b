// The part of the page that sends requests: JSON, a picture, or a drawing.

import { showAnswer, showFailure } from "./answer.js";
import { Drawing } from "./drawing.js";
import { element, find, replaceIfChanged } from "./dom.js";
import { ask } from "./key.js";
import { curlText, snippets } from "./snippets.js";

// The largest sides of a picture that can be drawn by hand.
const DRAWN = 32;
// Values of a row that an example has at most, and of a list that is spread over lines.
const MOST_VALUES = 20_000;
const WIDE = 100;

const product = (sizes) => sizes.reduce((total, size) => total * size, 1);

function filled(shape, value) {
  const [size, ...inner] = shape;
  if (size === undefined) return value;
  return Array.from({ length: size ?? 1 }, () => filled(inner, value));
}

function exampleValue({ dtype, shape }) {
  const sizes = (shape ?? []).map((size) => size ?? 1);
  if (product(sizes) > MOST_VALUES) return undefined;
  if (dtype === "string") return filled(sizes, "text");
  return filled(sizes, dtype === "bool" ? false : 0);
}

// A row that fits the signature, or undefined for one too large to be edited.
function exampleRow({ example, inputs }) {
  if (example !== undefined) return example;
  const values = (inputs ?? []).map((input) => [input.name, exampleValue(input)]);
  if (values.some(([, value]) => value === undefined)) return undefined;
  return values.length === 1 ? values[0][1] : Object.fromEntries(values);
}

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

  // A request of the model that is chosen, for a shell.
  command() {
    return this.#model ? curlText(this.#request("json")) : "put a model into the folder of models.";
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
    const row = this.#version && exampleRow(this.#version);
    find("json").value = row === undefined ? "" : pretty({ instances: [row] });
    find("json").placeholder = row === undefined
      ? "A row of this model is too large for an example. Send a picture, or see below." : "";
    this.#update();
  }

  // Show the fields for what is sent, and the snippets.
  #update() {
    const version = this.#version;
    // A service.py may take pictures: only it knows.
    const takesPictures = Boolean(version?.image || (version && !version.v2) || version?.example !== undefined);
    find("kind-picture").hidden = !takesPictures;
    find("kind-drawing").hidden = !this.#canDraw;
    if ((this.#kind === "picture" && !takesPictures) || (this.#kind === "drawing" && !this.#canDraw)) {
      document.querySelector("[name=kind][value=json]").checked = true;
    }
    for (const kind of ["json", "picture", "drawing"]) find(`with-${kind}`).hidden = kind !== this.#kind;
    find("send").disabled = !version;
    if (!version) return;
    const texts = snippets(this.#request(this.#kind));
    replaceIfChanged(find("snippets"), texts, () => texts.map(snippetPart));
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
