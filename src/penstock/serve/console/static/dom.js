// Elements, and values as people read them. Text is always text: nothing here takes HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(name, given = {}, ...inside) {
  return fill(document.createElement(name), given, inside);
}

export function svg(name, given = {}, ...inside) {
  return fill(document.createElementNS(SVG, name), given, inside);
}

function fill(element, given, inside) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && (name === "value" || name === "checked" || name === "disabled")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

const NUMBER = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 6 });
const ROUND = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export const number = (value) => NUMBER.format(value);
export const whole = (value) => ROUND.format(value);

export function ms(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 10 ? `${value.toFixed(1)} ms` : value >= 0.1 ? `${value.toFixed(2)} ms` : `${(value * 1000).toFixed(0)} µs`;
}

export function bytes(value) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
}

// What a server says, as a sentence of its own.
export const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

export const count = (value, what, several = `${what}s`) => `${whole(value)} ${value === 1 ? what : several}`;

const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

// A moment of event time, or of a column: as it is, in UTC.
export function moment(value) {
  if (typeof value === "number") return number(value);
  return MOMENT.test(value) ? `${value.slice(0, 10)} ${value.slice(11, -1)} UTC` : String(value);
}

// How long ago something was, by the wall clock.
export function ago(value, now = Date.now()) {
  const seconds = (now - Date.parse(value)) / 1000;
  if (seconds < 1) return "just now";
  if (seconds < 120) return `${Math.floor(seconds)} s ago`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
}

const SPAN = /^(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/;

// The same, told anew as it grows older (main.js).
export const since = (value) => h("time", { datetime: value, title: moment(value) }, ago(value));

// A span of event time: a number in the unit of ts, or ISO 8601.
export function span(value) {
  const found = typeof value === "string" ? SPAN.exec(value) : null;
  if (!found) return typeof value === "number" ? number(value) : String(value);
  const parts = [[2, "d"], [3, "h"], [4, "min"], [5, "s"]].filter(([at]) => found[at]).map(([at, unit]) => `${found[at]} ${unit}`);
  return found[1] + (parts.join(" ") || "0 s");
}

// The time between two event times, the later one first.
export function between(later, earlier) {
  if (typeof later === "number" && typeof earlier === "number") return number(later - earlier);
  const apart = Date.parse(later) - Date.parse(earlier);
  return Number.isNaN(apart) ? "unknown" : apart === 0 ? "0 s" : ms(apart);
}

export function shown(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "number") return Number.isSafeInteger(value) || !Number.isInteger(value) ? number(value) : String(value);
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "string" && MOMENT.test(value) ? moment(value) : String(value);
}
