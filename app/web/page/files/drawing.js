// A place to draw a digit: white on black, as the pictures of digits are.

const STEP = 14;

export class Drawing {
  #canvas; #pen; #done; #at = null; #isEmpty = true; #keys = [140, 140];

  // `done` is called after each stroke.
  constructor(canvas, done) {
    this.#canvas = canvas;
    this.#pen = canvas.getContext("2d");
    this.#done = done;
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => this.#end());
    }
    canvas.addEventListener("keydown", (event) => this.#key(event));
    this.fit([8, 8]);
  }

  // Take a pen that is about one and a half pixels of the model's picture wide.
  fit([height, width]) {
    this.#pen.lineWidth = Math.max(10, (1.4 * this.#canvas.width) / Math.max(height, width));
    this.clear();
  }

  clear() {
    this.#pen.fillStyle = "#000";
    this.#pen.fillRect(0, 0, this.#canvas.width, this.#canvas.height);
    Object.assign(this.#pen, { strokeStyle: "#fff", lineCap: "round", lineJoin: "round" });
    this.#isEmpty = true;
    this.#keys = [140, 140];
    this.#describe();
  }

  // Return the drawing as a PNG; null if nothing is drawn.
  png() {
    if (this.#isEmpty) return null;
    return new Promise((done) => { this.#canvas.toBlob(done, "image/png"); });
  }

  #describe() {
    const text = this.#isEmpty ? "Drawing: empty" : "Drawing of a digit";
    this.#canvas.setAttribute("aria-label", text);
  }

  #place(event) {
    // The canvas may be shown smaller than it is.
    const scale = this.#canvas.width / this.#canvas.clientWidth;
    return [event.offsetX * scale, event.offsetY * scale];
  }

  #line(from, to) {
    this.#pen.beginPath();
    this.#pen.moveTo(...from);
    this.#pen.lineTo(...to);
    this.#pen.stroke();
    this.#isEmpty = false;
    this.#describe();
  }

  #begin(event) {
    this.#canvas.setPointerCapture(event.pointerId);
    this.#at = this.#place(event);
    this.#line(this.#at, this.#at);
  }

  #move(event) {
    if (!this.#at) return;
    const to = this.#place(event);
    this.#line(this.#at, to);
    this.#at = to;
  }

  #end() {
    if (!this.#at) return;
    this.#at = null;
    this.#done();
  }

  #key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = this.#keys;
    const bounded = (value) => Math.min(Math.max(value, 0), this.#canvas.width);
    this.#keys = from.map((value, axis) => bounded(value + STEP * step[axis]));
    if (!event.shiftKey) this.#line(from, this.#keys);
  }
}
