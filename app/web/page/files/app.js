// The page: asks the server for its state each second, and hands it to the parts.

import { Charts, hasRequests } from "./charts.js";
import { find, say } from "./dom.js";
import { ask, hideKeyForm, installKeyForm, key, showKeyForm } from "./key.js";
import { showModels, showServer, stateInWords } from "./see.js";
import { Trial } from "./try.js";

const KEPT = 300;
const EACH_MS = 1000;
// Where the server does not answer: after one failure, two, and more.
const RETRY_MS = [1000, 2000, 5000];
const GIVE_UP_MS = 10_000;
// Replies without a sample in a row, after which the server must have been restarted.
const SILENT = 5;

const charts = new Charts();
const trial = new Trial();
let samples = [], silent = 0, failures = 0, timer = 0, isAsking = false;

function next(milliseconds) {
  clearTimeout(timer);
  // Nobody looks at a hidden page; `visibilitychange` goes on.
  if (!document.hidden) timer = setTimeout(update, milliseconds);
}

async function update() {
  if (isAsking) return;
  isAsking = true;
  try {
    await look();
  } finally {
    isAsking = false;
  }
}

async function look() {
  const since = samples.length ? `?since=${samples.at(-1).n}` : "";
  let reply, state;
  try {
    reply = await ask(`page/state${since}`, { signal: AbortSignal.timeout(GIVE_UP_MS) });
    state = await reply.json();
  } catch {
    return away("The server does not answer");
  }
  if (reply.status === 401) return stranger();
  if (!reply.ok) return away(`The server answers ${reply.status}: ${state.error}`);
  failures = 0;
  say("away", "");
  show(state);
  return next(EACH_MS);
}

function away(text) {
  const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
  failures += 1;
  say("away", `${text}. This page keeps trying.`);
  say("server", "No answer");
  next(wait);
}

function stranger() {
  samples = [];
  find("all").hidden = true;
  find("give").hidden = true;
  find("rights").textContent = "";
  say("away", "");
  say("server", "Wants a key");
  showKeyForm();
}

function keep(given) {
  silent = given.length ? 0 : silent + 1;
  if (silent >= SILENT) [samples, silent] = [[], 0];
  samples = [...samples, ...given].slice(-KEPT);
}

function show(state) {
  keep(state.samples);
  find("all").hidden = false;
  hideKeyForm();
  // Without API keys, but with admin keys, a key is needed only to see and do more.
  find("give").hidden = state.sees_all || Boolean(key());
  const isAdmin = state.rights === "admin";
  find("rights").textContent = isAdmin ? "Admin key" : key() ? "No admin key" : "";
  say("server", stateInWords(state.models));
  showModels(state);
  showServer(state);
  trial.show(state);
  say("no-requests", hasRequests(samples) ? "" : `No requests yet${trial.hint()}`);
  charts.show(state, samples);
}

installKeyForm(update, () => {
  samples = [];
  find("all").hidden = true;
  clearTimeout(timer);
  update();
});
document.addEventListener("visibilitychange", () => next(0));
update();
