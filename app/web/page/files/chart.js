// A chart over the last five minutes as SVG: lines, or areas on top of one another.

const SVG = "http://www.w3.org/2000/svg";
const SPAN_S = 300;
const HEIGHT = 180;
const [LEFT, RIGHT, TOP, BOTTOM] = [48, 12, 22, 22];
// A longer pause between two samples breaks a line.
const GAP_S = 2.5;
// A limit is drawn where the values reach this share of it; else it would flatten them.
const NEAR = 0.25;
const tenth = (pixels) => Math.round(10 * pixels) / 10;

function shape(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// A number in three digits, with separators from 1,000 on.
export function short(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  if (size && size < 0.1) return value.toLocaleString("en", { maximumSignificantDigits: 2 });
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

// Round numbers from 0 up to at least `max`, four to six of them.
export function ticks(max) {
  const rough = (max || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power >= rough) * power;
  const count = Math.ceil(max / step - 1e-9) || 4;
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

export class Chart {
  // `#width` in pixels is observed: to read the element's makes the browser lay out the page.
  #options; #title; #svg; #legend; #tip; #times = []; #series = []; #at = null; #top = 1; #width = 200;

  // `options`: title, unit, kind ("lines" or "areas"), least (the least end of the y
  // axis) and empty (said without values).
  constructor(host, options) {
    this.#options = { kind: "lines", least: 0, empty: "No values yet", ...options };
    this.#title = document.createElement("h3");
    this.#svg = shape("svg", { role: "img", tabindex: 0, height: HEIGHT });
    this.#legend = document.createElement("ul");
    this.#legend.className = "legend";
    this.#tip = document.createElement("p");
    Object.assign(this.#tip, { className: "tip", role: "status", hidden: true });
    host.classList.add("chart");
    host.append(this.#title, this.#svg, this.#tip, this.#legend);
    this.#svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.#svg.addEventListener("pointerleave", () => this.#leave());
    this.#svg.addEventListener("blur", () => this.#leave());
    this.#svg.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(([{ contentRect }]) => {
      this.#width = Math.max(contentRect.width, 200);
      this.#draw();
    }).observe(this.#svg);
  }

  // Show samples: `times` in Unix seconds, ascending; `series` of {label, values, hue}, a
  // value for each time or null. One that is a `limit` is dashed, and in no stack.
  show(times, series, title = this.#options.title) {
    this.#times = times;
    this.#series = series;
    this.#title.textContent = title;
    this.#draw();
  }

  get #end() { return this.#times.at(-1) ?? 0; }
  #x(time) {
    const share = 1 - (this.#end - time) / SPAN_S;
    return tenth(LEFT + Math.max(share, 0) * (this.#width - LEFT - RIGHT));
  }

  #y(value) { return tenth(HEIGHT - BOTTOM - (value / this.#top) * (HEIGHT - TOP - BOTTOM)); }

  #draw() {
    const curves = this.#series.filter((each) => !each.limit);
    const stacked = this.#options.kind === "areas";
    const tops = this.#times.map((_, at) => {
      const values = curves.map((each) => each.values[at] ?? 0);
      return stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
    });
    const most = Math.max(this.#options.least, ...tops);
    const limits = this.#series.filter(
      (each) => each.limit && most && Math.max(0, ...each.values) * NEAR <= most);
    const steps = ticks(Math.max(most, ...limits.flatMap((each) => each.values)));
    this.#top = steps.at(-1);
    const base = this.#times.map(() => 0);
    const paths = [...curves, ...limits].map((each) => {
      const d = stacked && !each.limit ? this.#area(each, base) : this.#line(each);
      const kind = each.limit ? "limit" : stacked ? "area" : "line";
      return shape("path", { d, class: `${kind} hue${each.hue}` });
    });
    const middle = { x: (LEFT + this.#width) / 2, y: HEIGHT / 2, class: "empty" };
    const empty = curves.some((each) => each.values.some((value) => value != null))
      ? [] : [shape("text", middle, this.#options.empty)];
    this.#svg.replaceChildren(...this.#axes(steps), ...paths, ...empty);
    this.#describe();
    this.#mark();
  }

  #axes(steps) {
    const found = [shape("text", { x: 2, y: 11, class: "unit" }, this.#options.unit)];
    for (const value of steps) {
      const y = this.#y(value);
      found.push(shape("line", { x1: LEFT, x2: this.#width - RIGHT, y1: y, y2: y }));
      found.push(shape("text", { x: LEFT - 6, y: y + 4, class: "tick-y" }, short(value)));
    }
    for (let minutes = 5; minutes >= 0; minutes -= 1) {
      const x = this.#x(this.#end - 60 * minutes);
      const text = minutes ? `−${minutes}${minutes === 5 ? " min" : ""}` : "now";
      const place = { x, y: HEIGHT - 6, class: minutes ? "tick-x" : "tick-x last" };
      found.push(shape("text", place, text));
    }
    return found;
  }

  #line({ values }) {
    let d = "", before = null;
    values.forEach((value, at) => {
      if (value == null) { before = null; return; }
      const time = this.#times[at], place = `${this.#x(time)} ${this.#y(value)}`;
      const joined = before !== null && time - before <= GAP_S;
      // A line of no length is drawn as a dot, by its round ends.
      d += joined ? `L${place}` : `M${place}L${place}`;
      before = time;
    });
    return d;
  }

  // Each sample covers its second, so that a lone one is seen. `base` grows by it.
  #area({ values }, base) {
    let d = "";
    values.forEach((value, at) => {
      if (!value) return;
      const [from, to] = [this.#times[at] - 1, this.#times[at]];
      const start = at && to - this.#times[at - 1] <= GAP_S ? this.#times[at - 1] : from;
      const [left, right] = [this.#x(start), this.#x(to)];
      const [low, high] = [this.#y(base[at]), this.#y(base[at] + value)];
      d += `M${left} ${low}V${high}H${right}V${low}Z`;
      base[at] += value;
    });
    return d;
  }

  // The legend has the newest values; the label says the same without eyes.
  #describe() {
    const said = this.#series.map(({ label, values, hue, limit }) => {
      const text = `${label} ${short(values.at(-1))}`;
      const item = document.createElement("li");
      item.className = `${limit ? "limit " : ""}hue${hue}`;
      item.textContent = text;
      return [text, item];
    });
    this.#legend.replaceChildren(...said.map(([, item]) => item));
    const now = said.map(([text]) => text).join(", ") || this.#options.empty;
    const name = `${this.#title.textContent}, ${this.#options.unit}`;
    this.#svg.setAttribute("aria-label", `${name}, now: ${now}. Arrow keys read earlier seconds.`);
  }

  #point(x) {
    const share = (x - LEFT) / (this.#width - LEFT - RIGHT);
    const time = this.#end - (1 - share) * SPAN_S;
    const distance = (each) => Math.abs(each - time);
    this.#at = this.#times.reduce((a, b) => (distance(b) < distance(a) ? b : a), this.#end);
    this.#mark();
  }

  #key(event) {
    const last = this.#times.length - 1;
    const at = this.#at === null ? last + 1 : this.#times.indexOf(this.#at);
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.#leave();
    if (next === undefined || last < 0) return;
    event.preventDefault();
    this.#at = this.#times[Math.min(Math.max(next, 0), last)];
    this.#mark();
  }

  #leave() { this.#at = null; this.#mark(); }

  // Mark the second that is pointed at, and say its values.
  #mark() {
    this.#svg.querySelector(".mark")?.remove();
    const at = this.#at === null ? -1 : this.#times.indexOf(this.#at);
    this.#tip.hidden = at < 0;
    if (at < 0) return;
    const x = this.#x(this.#at);
    const ends = { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "mark" };
    this.#svg.append(shape("line", ends));
    const values = this.#series.map(({ label, values }) => `${label} ${short(values[at])}`);
    const time = new Date(this.#at * 1000).toLocaleTimeString("en-GB");
    this.#tip.textContent = `${time}: ${values.join(", ")} (${this.#options.unit})`;
  }
}
