// The answer to a request that was tried, in words and bars.

import { short } from "./chart.js";
import { element, find, say } from "./dom.js";

const BARS = 10;
const SHOWN = 20_000;

// The parts of Server-Timing, in words.
const STAGES = { decode: "read in", queue: "waited", infer: "in the model", encode: "written in" };

const rows = (count) => `${count} ${count === "1" ? "row" : "rows"}`;

function facts(headers) {
  const found = [];
  const version = headers.get("X-Model-Version");
  if (version) found.push(`Version ${version} answered.`);
  const size = headers.get("X-Batch-Size");
  if (size) found.push(`It ran in a batch of ${rows(size)}.`);
  const times = [...(headers.get("Server-Timing") ?? "").matchAll(/(\w+);dur=([\d.]+)/g)]
    .filter(([, stage]) => stage in STAGES)
    .map(([, stage, time]) => `${STAGES[stage]} ${short(Number(time))} ms`);
  if (times.length) found.push(`In the server: ${times.join(", ")}.`);
  const retry = headers.get("Retry-After");
  if (retry) found.push(`Try again in ${retry} s.`);
  return found;
}

const isScores = (value) => Array.isArray(value) && value.length > 1
  && value.every((each) => typeof each === "number" && each >= 0 && each <= 1)
  && Math.abs(value.reduce((sum, each) => sum + each, 0) - 1) < 0.01;

// Return [label, score] of the first row's best classes, or nothing.
function best(value) {
  const row = Array.isArray(value) ? value[0] : value?.predictions?.[0] ?? value;
  const named = Array.isArray(value) && !Array.isArray(row) ? value : [value];
  if (named.every((each) => each?.class_name !== undefined)) {
    return named.map((each) => [each.class_name, each.score]);
  }
  const list = Array.isArray(row) && row[0]?.class_name !== undefined
    ? row.map((each) => [each.class_name, each.score]) : [];
  if (!isScores(row)) return list;
  return row.map((score, index) => [`class ${index}`, score])
    .sort(([, a], [, b]) => b - a).slice(0, BARS);
}

function bar([label, score]) {
  const text = `${label} ${(100 * score).toFixed(1)} %`;
  return element("li", {},
    element("span", {}, text),
    element("meter", { min: 0, max: 1, value: score, "aria-label": label }));
}

export function showFailure(text) {
  say("try-status", text);
  find("try-facts").replaceChildren();
  find("bars").replaceChildren();
  find("answer").hidden = true;
}

export function showAnswer(reply, text, milliseconds) {
  showFailure("");
  let value = null;
  try { value = JSON.parse(text); } catch { /* NaN and Infinity are no JSON: shown as text */ }
  const took = `${reply.status} after ${short(milliseconds)} ms`;
  say("try-status", reply.ok ? `Answered: ${took}` : `Refused: ${took}. ${value?.error ?? ""}`);
  find("try-facts").replaceChildren(...facts(reply.headers).map((fact) => element("li", {}, fact)));
  find("bars").replaceChildren(...(reply.ok ? best(value) : []).map(bar));
  find("answer").hidden = false;
  find("answer").textContent = text.length > SHOWN
    ? `${text.slice(0, SHOWN)} … and ${text.length - SHOWN} characters more` : text;
}
