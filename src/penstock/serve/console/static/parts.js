// What pages are made of: tiles, tables, pills, bars.

import { h, shown, svg, whole } from "./dom.js";

export const tile = (value, says, unit = "", title = "") =>
  h("div", { class: "tile", title }, h("b", {}, String(value), unit ? h("small", {}, ` ${unit}`) : null), h("span", {}, says));

export const pill = (text, kind = text) => h("span", { class: `pill ${kind}` }, text);

export const card = (title, ...inside) => h("section", { class: "card" }, title ? h("h2", {}, title) : null, ...inside);

export const empty = (...says) => h("div", { class: "empty" }, ...says);

export const code = (text) => h("code", {}, text);

export const refused = (error) => h("div", { class: "card error" }, h("b", {}, "That did not work"), h("p", {}, `${error.message}.`));

// columns: [{name, says, unit, of(row), num}]; href(row): where a row leads.
export function grid(columns, rows, href = null) {
  const head = columns.map((one) =>
    h("th", { class: [one.num ? "num" : "", one.narrow === false ? "hide-narrow" : ""].join(" ").trim(), scope: "col" }, one.says ?? one.name, one.unit ? h("small", {}, one.unit) : null),
  );
  const body = rows.map((row) => {
    const to = href?.(row);
    const cells = columns.map((one, place) => cell(one, row, place === 0 ? to : null));
    return h("tr", { "data-href": to, onclick: to ? (event) => follow(event, to) : null }, ...cells);
  });
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body)));
}

function cell(column, row, to) {
  const value = column.of ? column.of(row) : row[column.name];
  const kinds = [column.num ? "num" : "", value === null || value === undefined ? "null" : "", column.narrow === false ? "hide-narrow" : ""];
  const inside = value instanceof Node ? value : shown(value);
  return h("td", { class: kinds.join(" ").trim() }, to ? h("a", { href: to }, inside) : inside);
}

function follow(event, to) {
  if (event.target.closest("a, button, input") || String(getSelection())) return;
  location.hash = to;
}

// Several parts of a whole, side by side: [{name, value, says, kind}].
export function stack(parts, title) {
  const all = parts.reduce((sum, one) => sum + one.value, 0);
  if (!all) return null;
  let at = 0;
  const bars = parts.map((one) => {
    const width = (one.value / all) * 1000;
    const bar = svg("rect", { x: at, y: 0, width, height: 26, class: `bar ${one.kind}` }, svg("title", {}, `${one.name}: ${one.says}`));
    at += width;
    return bar;
  });
  return h("div", {}, svg("svg", { viewBox: "0 0 1000 26", width: "100%", height: "26", preserveAspectRatio: "none", role: "img", "aria-label": title }, ...bars), legend(parts));
}

export const legend = (parts) =>
  h("ul", { class: "legend" }, ...parts.map((one) => h("li", {}, svg("svg", { width: 10, height: 10 }, svg("rect", { width: 10, height: 10, rx: 2, class: one.kind })), `${one.name}${one.says ? ` ${one.says}` : ""}`)));

// One bar a batch, oldest left: [{title, href, parts: [{value, kind}]}].
export function bars(several, says) {
  const width = 400, height = 120, foot = 4;
  const most = Math.max(1, ...several.map((one) => one.parts.reduce((sum, part) => sum + part.value, 0)));
  const step = Math.min(width / several.length, 40);
  const drawn = several.map((one, place) => {
    let top = height - foot;
    const parts = one.parts.filter((part) => part.value).map((part) => {
      const tall = Math.max((part.value / most) * (height - foot - 14), 1);
      top -= tall;
      return svg("rect", { x: place * step + 1, y: top, width: Math.max(step - 2, 1), height: tall, class: part.kind });
    });
    return svg("a", { href: one.href, class: "bar" }, svg("title", {}, one.title), svg("rect", { x: place * step, y: 14, width: step, height: height - 14, fill: "transparent" }), ...parts);
  });
  const line = svg("line", { x1: 0, x2: width, y1: height - foot + 1, y2: height - foot + 1, class: "axis" });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": says }, svg("text", { x: 0, y: 10 }, `${whole(most)} ${says}`), line, ...drawn);
}
