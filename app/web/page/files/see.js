// Models as cards, and processes, settings and errors as tables.

import { short } from "./chart.js";
import { confirmed, element, find, replaceIfChanged, say } from "./dom.js";
import { ask } from "./key.js";

const AVAILABLE = "AVAILABLE";

const isServed = (model) => model.versions.some((version) => version.state === AVAILABLE);

export function shapeText(shape) {
  if (shape == null) return "any shape";
  return `(${shape.map((size) => size ?? "any").join(", ")})`;
}

// The server's state in words: one sentence.
export function stateInWords(models) {
  if (!models.length) return "No models";
  const problems = models.flatMap((model) => {
    const broken = model.problems ?? [];
    if (isServed(model) || broken.length) return broken.map((text) => `${model.name}: ${text}`);
    const loading = model.versions.some((version) => version.state === "LOADING");
    return [`${model.name}: ${loading ? "is loading" : "is not served"}`];
  });
  const count = models.filter(isServed).length;
  const served = `${count} ${count === 1 ? "model" : "models"} ready`;
  return problems.length ? `${served}. ${problems.join(". ")}` : served;
}

export function showModels(state) {
  const shown = [state.models, state.default_model, state.rights];
  const none = "No models. Put one into the folder of models: NAME/1/model.keras. "
    + "It is served without a restart.";
  replaceIfChanged(find("models"), shown, () => (state.models.length
    ? state.models.map((model) => card(model, state)) : [element("p", {}, none)]));
}

function card(model, state) {
  const isDefault = model.name === state.default_model;
  const problems = (model.problems ?? []).map((text) => element("p", { class: "problem" }, text));
  const limits = `Batches of up to ${short(model.max_batch_size)} rows, up to `
    + `${short(model.max_queue_rows)} rows waiting`;
  return element("article", { class: "card", "aria-label": `Model ${model.name}` },
    element("h3", {}, model.name, isDefault ? element("span", { class: "badge" }, "default") : ""),
    problems,
    model.versions.map((version) => versionPart(version, model)),
    model.versions.length ? "" : element("p", {}, "No version is loaded."),
    model.max_batch_size ? element("p", { class: "small" }, limits) : "",
    state.rights === "admin" ? [decisions(model), traffic(model), buttons(model.name)] : "");
}

// What part of the requests goes to a label; undefined where nothing is split.
function share(model, label) {
  const weights = model.traffic ?? {};
  const sum = Object.values(weights).reduce((total, weight) => total + weight, 0);
  return label in weights ? short((100 * weights[label]) / sum) : undefined;
}

// What part of the requests a version of a rollout gets; undefined for others.
function rolloutShare(version, rollout) {
  if (!rollout?.candidate) return undefined;
  if (version === rollout.candidate) return rollout.percent;
  return version === rollout.serving ? 100 - rollout.percent : undefined;
}

function versionPart(version, model) {
  const labels = Object.entries(model.labels ?? {})
    .filter(([, number]) => number === version.version)
    .map(([label]) => [label, share(model, label)]);
  const tensors = (list) => (list ?? []).map(
    ({ name, dtype, shape }) => `${name} ${dtype} ${shapeText(shape)}`).join(", ");
  const part = rolloutShare(version.version, model.rollout);
  const state = version.state === AVAILABLE ? "ready" : version.state.toLowerCase();
  return element("div", { class: "version" },
    element("p", {},
      element("strong", {}, `Version ${version.version}`), " ",
      element("span", { class: `badge ${state}` }, version.error ? "failed" : state),
      labels.map(([label, part]) => element("span", { class: "badge" },
        part === undefined ? label : `${label}: ${part} % of the traffic`)),
      part === undefined ? ""
        : element("span", { class: "badge" }, `${short(part)} % of the traffic`),
      version.platform ? element("span", { class: "small" }, ` ${version.platform}`) : ""),
    // Most errors are among the model's problems already.
    version.error && !(model.problems ?? []).some((text) => text.includes(version.error))
      ? element("p", { class: "problem" }, version.error) : "",
    version.inputs?.length ? element("p", { class: "small" },
      `${tensors(version.inputs)} → ${tensors(version.outputs)}`) : "",
    version.batching ? element("p", { class: "small" }, version.batching) : "");
}

// A weight for each label, where there are labels.
function traffic(model) {
  const labels = Object.keys(model.labels ?? {});
  if (!labels.length) return "";
  const fields = labels.map((label) => [label, element("input", {
    type: "number", min: "0", step: "any", value: model.traffic?.[label] ?? 0,
  })]);
  const submit = (event) => {
    event.preventDefault();
    const given = fields.map(([label, field]) => [label, Number(field.value)]);
    const weights = Object.fromEntries(given.filter(([, weight]) => weight > 0));
    change(event.submitter, model.name, "traffic", weights, "traffic moved");
  };
  return element("form", { class: "traffic", "aria-label": `Traffic of ${model.name}`, submit },
    fields.map(([label, field]) => element("label", {}, `${label} `, field)),
    element("button", {}, "Move traffic"));
}

// Buttons that end a rollout, where one is under way.
function decisions(model) {
  const version = model.rollout?.candidate;
  if (!version) return "";
  const button = (verb, label, body, text, done) => element("button", {
    type: "button",
    "aria-label": `${label} version ${version} of ${model.name}`,
    click: async (event) => {
      const pressed = event.currentTarget;
      const title = `${label} version ${version} of ${model.name}?`;
      if (await confirmed(title, text, `${label} version ${version}`)) {
        await change(pressed, model.name, verb, { version, ...body }, done);
      }
    },
  }, `${label} version ${version}`);
  return element("p", {},
    button("promote", "Promote", { force: true },
      "It gets all requests at once, without the steps that are left.",
      `version ${version} takes over`), " ",
    button("send_back", "Send back", {},
      "It gets no more requests, until it is promoted or its files change.",
      `version ${version} is sent back`));
}

function buttons(name) {
  const click = async (event, verb) => {
    const button = event.currentTarget;
    const text = "Requests that wait are answered. Then its requests get 503, until it is loaded again.";
    const isSure = verb === "load" || await confirmed(`Unload ${name}?`, text, `Unload ${name}`);
    if (isSure) await change(button, name, verb, {}, `${verb}ed`);
  };
  const button = (verb, text) => element("button", {
    type: "button",
    "aria-label": `${text} ${name}`,
    click: (event) => click(event, verb),
  }, text);
  return element("p", {}, button("load", "Load"), " ", button("unload", "Unload"));
}

async function change(button, name, verb, body, done) {
  button.disabled = true;
  say("changed", `${name}: ${verb} …`);
  try {
    const path = `v2/repository/models/${encodeURIComponent(name)}/${verb}`;
    const headers = { "Content-Type": "application/json" };
    const reply = await ask(path, { method: "POST", headers, body: JSON.stringify(body) });
    const answer = await reply.json();
    say("changed", reply.ok ? `${name}: ${done}` : `${name}: ${answer.error}`);
  } catch {
    say("changed", `${name}: the server does not answer`);
  }
  button.disabled = false;
}

function table(id, heads, rows) {
  const caption = element("thead", {}, element("tr", {},
    heads.map((head) => element("th", { scope: "col" }, head))));
  replaceIfChanged(find(id), rows, () => [caption, element("tbody", {}, rows.map((row) =>
    element("tr", {}, row.map((cell) => element("td", {}, String(cell))))))]);
}

function age(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${short(seconds / 3600)} h`;
}

// What only those see who may see all.
export function showServer(state) {
  find("server-parts").hidden = !state.sees_all;
  if (!state.sees_all) return;
  say("restarts", `Restarts of workers and model processes: ${state.restarts ?? 0}`);
  const heads = ["Process", "Kind", "Age", "Memory, MiB", "of it not shared, MiB"];
  table("processes", heads, state.processes.map((each) => [
    each.pid, each.kind, age(each.age_s), short(each.memory_mib), short(each.own_mib)]));
  const errors = state.errors ?? [];
  find("no-errors").hidden = errors.length > 0;
  find("errors").parentElement.hidden = !errors.length;
  table("errors", ["Time", "Model", "Status", "Error", "Times"], errors.map((each) => [
    new Date(each.t * 1000).toLocaleString("sv"), each.model ?? "–", each.status, each.text,
    short(each.count)]));
  table("settings", ["Setting", "Value", "From", "Model"], (state.settings ?? []).map(
    (each) => [each.name, each.value === "" ? "–" : each.value, each.from, each.model ?? "all"]));
}
