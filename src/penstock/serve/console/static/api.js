// Asking /v1. A page is a view of what it gives, and no more.

export class Refused extends Error {
  constructor(status, told) {
    super(told.says ?? `the server answered ${status}`);
    this.status = status;
    this.kind = told.error ?? "";
  }
}

export class Unreachable extends Error {}

// Integers beyond 2^53 stay what they are, as texts: JSON.parse would round them.
const BIG = /([:[,]\s*)(-?\d{16,})(?=\s*[,}\]])/g;

function parsed(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  // Only outside of strings: these are kept whole by splitting there.
  return JSON.parse(text.replace(/"(?:[^"\\]|\\.)*"|[^"]+/g, (part) => (part[0] === '"' ? part : part.replace(BIG, '$1"$2"'))));
}

async function ask(path, options) {
  let answer, text;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
    text = await answer.text();
  } catch {
    throw new Unreachable("the server does not answer");
  }
  let told;
  try {
    told = parsed(text);
  } catch {
    told = { says: `the server answered ${answer.status}, and not in JSON` };
  }
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
}

export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return ask(text ? `${path}?${text}` : path);
}

export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

export async function status() {
  const answer = await fetch("/v1/status", { credentials: "same-origin" }).catch(() => {
    throw new Unreachable("the server does not answer");
  });
  return answer.json(); // also where it stands still, which is 503
}

// A key as a path has it: parts encoded, joined by commas.
export const keyOf = (table, record) => table.key.map((name) => encodeURIComponent(String(record[name]))).join(",");
