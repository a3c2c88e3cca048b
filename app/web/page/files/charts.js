// The charts of the page: which series each has, from samples of the server.

import { Chart } from "./chart.js";
import { element, find, replaceIfChanged } from "./dom.js";

const ALL = "";
// The name in samples for requests that ended before their model was known.
const UNKNOWN = "";
const STAGES = [["decode", 4], ["queue", 1], ["infer", 3], ["encode", 2]];
const HUES = 8;

const sum = (values) => values.reduce((total, value) => total + value, 0);

// Kinds of statuses: answered, refused and late, the client's error, the model's error.
function statusHue(status) {
  if (status.startsWith("2")) return 4;
  if (status.startsWith("4")) return 1;
  return status === "503" || status === "504" ? 2 : 0;
}

// What is read of a sample for the models chosen.
const parts = (sample, names) =>
  names.map((name) => sample.models[name]).filter((each) => each !== undefined);

function keysOf(samples, pick) {
  return [...new Set(samples.flatMap((sample) => pick(sample).flatMap(Object.keys)))].sort();
}

function bySum(samples, keys, pick, hue) {
  return keys.map((key, index) => ({
    label: key,
    hue: hue(key, index),
    values: samples.map((sample) => sum(pick(sample).map((each) => each[key] ?? 0))),
  }));
}

// A line for each model, where a sum over models means nothing.
function each(samples, names, field, scale = 1) {
  const seen = names.filter((name) => samples.some((sample) => sample.models[name]?.[field] != null));
  return (seen.length ? seen : names.slice(0, 1)).slice(0, HUES).map((name, hue) => ({
    label: name,
    hue,
    values: samples.map((sample) => {
      const value = sample.models[name]?.[field];
      return value == null ? null : value * scale;
    }),
  }));
}

function one(samples, name, field, label, hue, more = {}) {
  return { ...each(samples, [name], field)[0], label, hue, ...more };
}

const KINDS = [
  {
    options: { title: "Requests by status", unit: "requests/s", kind: "areas", empty: "No requests" },
    series: (samples, names, _, isAll) => {
      const counted = isAll ? [...names, UNKNOWN] : names;
      const pick = (sample) => parts(sample, counted).map((each) => each.status);
      return bySum(samples, keysOf(samples, pick), pick, statusHue);
    },
  },
  {
    options: { title: "Response time", unit: "ms", empty: "No requests" },
    all: "Response time, p95",
    series: (samples, names) => (names.length > 1
      ? each(samples, names, "p95_ms")
      : names.flatMap((name) => [["p50", 3], ["p95", 1], ["p99", 0]].map(
        ([label, hue]) => one(samples, name, `${label}_ms`, label, hue)))),
  },
  {
    options: { title: "Where the time goes", unit: "ms", kind: "areas", empty: "No requests" },
    series: (samples, names) => STAGES.map(([stage, hue]) => ({
      label: stage,
      hue,
      values: samples.map((sample) => stageMean(parts(sample, names), stage)),
    })),
  },
  {
    options: { title: "Rows per batch", unit: "rows", empty: "No batches" },
    series: (samples, names) => (names.length > 1
      ? each(samples, names, "batch_rows")
      : names.flatMap((name) => [
        one(samples, name, "batch_rows", "mean", 3),
        one(samples, name, "ceiling_rows", "ceiling", 0, { limit: true }),
      ])),
  },
  {
    options: { title: "Rows waiting", unit: "rows" },
    series: (samples, names, models) => {
      const bound = sum(models.filter((model) => names.includes(model.name))
        .map((model) => model.max_queue_rows ?? 0));
      const waiting = (sample) => sum(parts(sample, names).map((each) => each.queue_rows ?? 0));
      return [
        { label: "waiting", hue: 3, values: samples.map(waiting) },
        { label: "bound", hue: 0, limit: true, values: samples.map(() => bound) },
      ];
    },
  },
  {
    options: { title: "Engine busy", unit: "% of the time", least: 100 },
    series: (samples, names) => each(samples, names, "busy", 100),
  },
  {
    options: { title: "Refused, all models", unit: "requests/s", kind: "areas", empty: "Nothing refused" },
    series: (samples) => {
      const pick = (sample) => [sample.rejected ?? {}];
      return bySum(samples, keysOf(samples, pick), pick, (_, index) => index % HUES);
    },
  },
  {
    options: { title: "Memory of all processes", unit: "MiB" },
    series: (samples) => [{
      label: "memory", hue: 3, values: samples.map((sample) => sample.memory_mib ?? null),
    }],
  },
  {
    options: { title: "Memory of GPUs", unit: "MiB" },
    isShown: (samples) => samples.some((sample) => sample.gpus.length),
    series: gpuMemory,
  },
];

// The memory in use of each GPU, by all programs, and of the largest one all.
function gpuMemory(samples) {
  const known = new Map(samples.flatMap((sample) => sample.gpus).map((gpu) => [gpu.number, gpu]));
  const used = [...known.values()].map(({ number, name }, index) => ({
    label: `${number}: ${name}`,
    hue: (index + 3) % HUES,
    values: samples.map((sample) => sample.gpus.find((gpu) => gpu.number === number)?.used_mib ?? null),
  }));
  const most = Math.max(0, ...[...known.values()].map((gpu) => gpu.memory_mib));
  return [...used, { label: "all", hue: 0, limit: true, values: samples.map(() => most) }];
}

// The mean over all answered requests of the models, or null without one. Those that
// were refused or failed are in no stage.
function stageMean(found, stage) {
  let [total, count] = [0, 0];
  for (const { stages_ms: stages, status } of found) {
    const good = Object.keys(status).filter((each) => each.startsWith("2"));
    const answered = sum(good.map((each) => status[each]));
    if (stages?.[stage] == null || !answered) continue;
    total += stages[stage] * answered;
    count += answered;
  }
  return count ? total / count : null;
}

export class Charts {
  #charts; #hosts; #state = null; #samples = [];

  constructor() {
    this.#hosts = KINDS.map(() => element("figure"));
    find("charts").append(...this.#hosts);
    this.#charts = KINDS.map(({ options }, index) => new Chart(this.#hosts[index], options));
    find("chart-model").addEventListener("change", () => this.#draw());
  }

  // Show samples, oldest first; `state` is the server's newest.
  show(state, samples) {
    this.#state = state;
    this.#samples = samples;
    const names = state.models.map((model) => model.name);
    const select = find("chart-model");
    const before = select.value;
    const isNew = replaceIfChanged(select, names, () => [
      ...(names.length === 1 ? [] : [element("option", { value: ALL }, "all")]),
      ...names.map((name) => element("option", { value: name }, name)),
    ]);
    if (isNew && (before === ALL || names.includes(before)) && names.length > 1) {
      select.value = before;
    }
    this.#draw();
  }

  #draw() {
    const models = this.#state.models;
    const chosen = find("chart-model").value;
    const names = models.map((model) => model.name)
      .filter((name) => chosen === ALL || name === chosen);
    const isAll = names.length === models.length;
    const times = this.#samples.map((sample) => sample.t);
    this.#charts.forEach((chart, index) => {
      const { all, isShown, options, series } = KINDS[index];
      this.#hosts[index].hidden = isShown !== undefined && !isShown(this.#samples);
      const title = names.length > 1 && all ? all : options.title;
      chart.show(times, series(this.#samples, names, models, isAll), title);
    });
  }
}

// Whether any request was answered or refused in the samples.
export const hasRequests = (samples) => samples.some((sample) =>
  Object.values(sample.models).some((model) => sum(Object.values(model.status)) > 0));
