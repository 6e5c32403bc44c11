// Record: what it is now, and every retained version of it.

import { get, post } from "./api.js";
import { count, h, moment, shown, since } from "./dom.js";
import { card, empty, grid, pill } from "./parts.js";

// Versions that are shown at first; there may be as many as are retained.
const SHOWN = 30;
// Of a batch of so few events, each is named: one of them has made the change.
const NAMED = 12;

export async function record({ place }) {
  const [name, key] = [decodeURIComponent(place.parts[0]), place.parts[1]];
  const path = `/v1/tables/${encodeURIComponent(name)}`;
  const parts = key.split(",").map(decodeURIComponent);
  const { table } = await get(path);
  const [now, { history, left_out: left }, { batches }] = await Promise.all([
    one(table, parts),
    get(`${path}/records/${key}/history`),
    get("/v1/batches", { limit: 500 }),
  ]);
  const all = place.query.has("all");
  return h("div", {},
    h("h1", {}, h("a", { href: `#/tables/${encodeURIComponent(name)}` }, name), ` ${parts.join(", ")}`),
    h("div", { class: "cards" },
      card("Now", now ? values(table, now) : gone(history, parts)),
      card("Its versions", await timeline(table, history.slice().reverse(), new Map(batches.map((batch) => [batch.version, batch])), all), more(history, all, place, left)),
    ),
  );
}

// By the route that does not mind if there is none.
async function one(table, parts) {
  const key = parts.length > 1 ? parts.map((part, place) => typed(table, place, part)) : typed(table, 0, parts[0]);
  return (await post("/v1/get", { get: { [table.name]: [key] } })).records[table.name][0];
}

function typed(table, place, part) {
  const { type } = table.columns.find((column) => column.name === table.key[place]);
  if (type === "int" && /^-?\d+$/.test(part)) return JSON.rawJSON ? JSON.rawJSON(part) : Number(part);
  return type === "bool" ? part === "true" : part;
}

const values = (table, record) =>
  grid([{ name: "column", of: (column) => h("span", {}, column.name, column.key ? h("small", { class: "quiet" }, " key") : "") }, { name: "value", of: (column) => (record[column.name] === null ? null : shown(record[column.name])) }, { name: "type", of: (column) => h("span", { class: "quiet" }, column.type) }], table.columns);

const gone = (history, parts) =>
  history.length
    ? h("p", {}, "There is no such record now: its last change was ", pill(history.at(-1).change), ".")
    : h("p", {}, `There is no record ${parts.join(", ")}, and there was none as far as versions are retained. A transaction that inserts it, or a load, makes it.`);

async function timeline(table, changes, batches, all) {
  if (!changes.length) return empty("No version of it is retained. Each batch that writes it adds one.");
  const shownOnes = all ? changes : changes.slice(0, SHOWN);
  const events = await named(shownOnes, batches);
  return h("ol", { class: "timeline" }, ...shownOnes.map((change, place) => step(table, change, changes[place + 1], batches.get(change.version), events.get(change.version))));
}

// The events of batches that have few of them.
async function named(changes, batches) {
  const few = changes.filter((one) => one.change !== "loaded" && (batches.get(one.version)?.events ?? Infinity) <= NAMED).slice(0, 10);
  const told = await Promise.all(few.map((one) => get(`/v1/batches/${one.version}`, { limit: NAMED }).catch(() => null)));
  return new Map(few.map((one, place) => [one.version, told[place]?.outcomes.rows ?? []]));
}

function step(table, change, before, batch, events) {
  const kind = change.change;
  const by = kind === "kept" ? "as the oldest retained version has it" : kind === "loaded" ? "by a load" : batch ? h("span", {}, "by ", h("a", { href: `#/batches/${change.version}` }, `batch ${change.version}`), ` of ${count(batch.events, "event")}`) : h("span", {}, "by batch ", String(change.version));
  const when = batch && kind !== "loaded" && kind !== "kept" ? h("div", { class: "quiet" }, "committed ", since(batch.committed_at), batch.clock === null ? "" : `, event time ${moment(batch.clock)}`) : null;
  return h("li", { class: kind },
    h("div", {}, h("b", {}, `version ${change.version} `), pill(kind), " ", h("span", { class: "quiet" }, by)),
    when,
    kind === "deleted" ? null : diff(table, change, before?.change === "deleted" ? null : before),
    events?.length ? h("div", { class: "quiet" }, events.length === 1 ? "by the event " : "by one of the events ", ...events.flatMap((row, at) => [at ? ", " : "", event(row, change.version)])) : null,
  );
}

const event = (row, version) =>
  h("a", { href: row.id === null || row.id === undefined ? `#/batches/${version}` : `#/events/${encodeURIComponent(String(row.id))}` }, row.id ?? `${row.transaction} at ${moment(row.ts)}`);

function diff(table, change, before) {
  const changed = table.columns.filter((column) => !column.key && (!before || shown(before[column.name]) !== shown(change[column.name])));
  if (!changed.length) return h("div", { class: "quiet" }, "written with the values that it had");
  const lines = changed.flatMap((column) => [
    h("dt", {}, column.name),
    h("dd", {}, before ? h("del", {}, shown(before[column.name])) : "", before ? " → " : "", h("ins", {}, shown(change[column.name]))),
  ]);
  return h("dl", { class: "diff" }, ...lines);
}

function more(history, all, place, left) {
  const hidden = history.length - SHOWN;
  return [
    !all && hidden > 0 ? h("p", {}, h("a", { href: `#${place.path}?all` }, `${count(hidden, "older version")} more`)) : null,
    left ? h("p", { class: "quiet" }, `${count(left, "older change")} left out; the route's limit is 10,000.`) : null,
  ];
}
