// A request as text for a shell, for Python with requests, and for tritonclient.

import { key } from "./key.js";

// A body up to this many characters stands in the command; a longer one is a file.
const SHORT = 1500;
const TYPES = {
  bool: "BOOL", string: "BYTES", float16: "FP16", float32: "FP32", float64: "FP64",
  int8: "INT8", int16: "INT16", int32: "INT32", int64: "INT64",
  uint8: "UINT8", uint16: "UINT16", uint32: "UINT32", uint64: "UINT64",
};

const base = () => new URL(".", location.href).href;
// A server at the root of its host, as tritonclient names it.
const host = () => base().replace(/^https?:\/\//, "").replace(/\/$/, "");
const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function parsed(text) {
  try { return JSON.parse(text); } catch { return undefined; }
}

function inPython(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(inPython).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const items = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${inPython(each)}`);
  return `{${items.join(", ")}}`;
}

const isShort = ({ text }) => text.length <= SHORT && parsed(text) !== undefined;

export function curlText(request) {
  const auth = key() ? '-H "Authorization: Bearer $BASKET_KEY" ' : "";
  const flat = JSON.stringify(parsed(request.text));
  const data = request.kind === "json"
    ? `-d ${isShort(request) ? inShell(flat) : "@body.json"}` : "-F file=@picture.png";
  return `curl ${auth}${data} ${inShell(base() + request.path)}`;
}

function pythonText(request) {
  const isInline = request.kind === "json" && isShort(request);
  const standard = [key() ? "import os" : "", isInline ? "" : "from pathlib import Path"].filter(Boolean);
  const lines = [...standard, ...(standard.length ? [""] : []), "import requests", ""];
  let body = 'files={"file": Path("picture.png").read_bytes()}';
  if (request.kind === "json") {
    body = isInline ? `json=${inPython(parsed(request.text))}` : 'data=Path("body.json").read_bytes()';
  }
  lines.push("response = requests.post(", `    ${JSON.stringify(base() + request.path)},`, `    ${body},`);
  if (key()) lines.push('    headers={"Authorization": f"Bearer {os.environ[\'BASKET_KEY\']}"},');
  lines.push("    timeout=30,", ")", "print(response.status_code, response.json())");
  return lines.join("\n");
}

// The values of one input: over all rows of the body, or of the whole tensor; else undefined.
function column(request, input) {
  const body = request.kind === "json" && isShort(request) ? parsed(request.text) : {};
  if (body?.inputs !== undefined) return body.inputs?.[input.name] ?? body.inputs;
  if (!Array.isArray(body?.instances)) return undefined;
  return body.instances.map((row) => row?.[input.name] ?? row);
}

// The shape of one row in a batch of its own, or of the whole tensor of a model without rows.
function shapeOf({ shape }, { example }) {
  const sizes = (shape ?? []).map((size) => size ?? 1);
  return example?.inputs === undefined ? [1, ...sizes] : sizes;
}

function tritonText(request) {
  const { inputs, outputs } = request.version;
  const lines = ["import numpy as np", "import tritonclient.http as triton", ""];
  if (key()) lines.splice(0, 0, "import os", "");
  lines.push(`client = triton.InferenceServerClient(${JSON.stringify(host())})`, "inputs = []");
  for (const input of inputs) {
    const dtype = input.dtype === "string" ? "object" : input.dtype;
    const values = column(request, input);
    const array = values === undefined
      ? `np.zeros([${shapeOf(input, request.version).join(", ")}], ${JSON.stringify(dtype)})`
      : `np.array(${inPython(values)}, ${JSON.stringify(dtype)})`;
    const name = JSON.stringify(input.name);
    // V2 takes no pictures, and a long body is a file.
    if (values === undefined) lines.push("# Put your values in place of these zeros.");
    lines.push(`array = ${array}`);
    lines.push(`inputs.append(triton.InferInput(${name}, array.shape, "${TYPES[input.dtype] ?? input.dtype}"))`);
    lines.push("inputs[-1].set_data_from_numpy(array)");
  }
  const version = request.number ? `, model_version="${request.number}"` : "";
  const auth = key() ? ', headers={"Authorization": f"Bearer {os.environ[\'BASKET_KEY\']}"}' : "";
  lines.push(`result = client.infer(${JSON.stringify(request.name)}, inputs${version}${auth})`);
  for (const output of outputs) lines.push(`print(result.as_numpy(${JSON.stringify(output.name)}))`);
  return lines.join("\n");
}

// Return [title, text] of each.
export function snippets(request) {
  const found = [["curl", curlText(request)], ["Python, requests", pythonText(request)]];
  if (request.version.v2 && request.version.inputs?.length) found.push(["Python, tritonclient", tritonText(request)]);
  return found;
}
