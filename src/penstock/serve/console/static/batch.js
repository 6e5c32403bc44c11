// Batch: one version: counts, time by stage, outcomes, changes; and with the app its graph, plan and source.

import { get, Refused } from "./api.js";
import { bytes, count, h, moment, ms, number, sentence, shown, since, whole } from "./dom.js";
import { changes } from "./event.js";
import { drawn } from "./graph.js";
import { stages, unknown } from "./overview.js";
import { bars, card, code, empty, grid, pill, refused, tile } from "./parts.js";

const LIMIT = 50;
const STATUSES = ["committed", "aborted", "late", "rejected", "duplicate"];

export async function batch({ place, version: newest }) {
  const version = Number(place.parts[0]);
  const status = place.query.get("status");
  const offset = Number(place.query.get("offset") ?? 0);
  const told = await get(`/v1/batches/${version}`, { limit: LIMIT, status, offset });
  const graph = h("div", {}, h("p", { class: "quiet" }, "Running it again …"));
  const source = h("div", {});
  const node = h("div", {},
    h("div", { class: "spread" }, h("h1", {}, `Batch ${whole(version)}`), h("div", { class: "row" }, version > 1 ? h("a", { href: `#/batches/${version - 1}` }, "← before") : null, version < (newest ?? told.version) ? h("a", { href: `#/batches/${version + 1}` }, "next →") : null)),
    tiles(told.batch),
    h("div", { class: "cards" },
      card("Where its time went", told.batch.ms_by_stage ? stages(told.batch.ms_by_stage) : unknown(), told.batch.policy ? h("p", {}, h("b", {}, told.batch.policy), `: ${told.batch.why}.`) : null),
      card("About it", about(told)),
    ),
    card("Outcomes", outcomes(told, place, status, offset)),
    card("What it changed", changed(told)),
    card("Who waits for whom", graph),
    card("Its transactions", source),
  );
  ranAgain(version, graph, node);
  transactions(source);
  return { node, update: async () => {} };
}

const tiles = (one) =>
  h("div", { class: "tiles" },
    tile(whole(one.events), "events"),
    tile(whole(one.committed), "committed"),
    tile(whole(Object.values(one.aborted).reduce((sum, n) => sum + n, 0)), "aborted"),
    tile(whole(one.late), "late"),
    tile(whole(one.rejected), "rejected"),
    one.duplicate ? tile(whole(one.duplicate), "duplicate") : null,
    tile(one.held === null ? "–" : whole(one.held), "held behind it"),
    tile(whole(one.changes), "records changed"),
    tile(one.ms === null ? "–" : ms(one.ms), "took, wall time"),
  );

function about({ batch: one, emitted }) {
  const lines = [
    ["committed", since(one.committed_at)],
    ["wall clock", moment(one.committed_at)],
    ["clock behind it", one.clock === null ? "none" : `${moment(one.clock)}, event time`],
    ["highest ts", one.highest === null ? "none" : `${moment(one.highest)}, event time`],
    ["made by", pill(one.cause)],
    one.id === null ? null : ["batch id", number(one.id)],
    one.query ? ["query", one.query] : null,
    ["log", `${one.log}, ${bytes(one.bytes)}`],
    ...Object.entries(one.aborted).map(([reason, n]) => ["aborted", `${reason}: ${whole(n)}`]),
    ...Object.entries(emitted).map(([name, n]) => ["emitted", `${name}: ${whole(n)}`]),
  ].filter(Boolean);
  return h("dl", { class: "diff" }, ...lines.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function outcomes({ outcomes: found, batch: one }, place, status, offset) {
  const at = (given) => {
    const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value)).toString();
    return `#${place.path}${query ? `?${query}` : ""}`;
  };
  const chosen = h("div", { class: "tabs" }, h("a", { href: at({}), "aria-current": status ? null : "page" }, "all"), ...STATUSES.filter((name) => name === status || (name === "aborted" ? Object.keys(one.aborted).length : one[name])).map((name) => h("a", { href: at({ status: name }), "aria-current": name === status ? "page" : null }, name)));
  if (!found.rows.length) return [chosen, empty(one.events ? "None of its events ended so." : "This version ran no event: the clock, or the schema, was changed.")];
  const first = found.rows[0];
  const fields = Object.keys(first).filter((name) => !["place", "transaction", "ts", "id", "step", "status", "reason", "version"].includes(name));
  const columns = [
    { name: "row", num: true, of: (row) => h("span", {}, whole(row.place)) },
    "id" in first ? { name: "id" } : null,
    { name: "transaction" },
    { name: "ts", unit: "event time", of: (row) => (row.ts === null ? null : moment(row.ts)) },
    "step" in first ? { name: "step", num: true } : null,
    { name: "status", of: (row) => h("span", {}, pill(row.status), row.reason ? ` ${row.reason}` : "") },
    ...fields.map((name) => ({ name, says: `returned ${name}`, narrow: false, of: (row) => (row[name] === null ? null : shown(row[name])) })),
  ].filter(Boolean);
  const more = offset + found.rows.length < found.of;
  return [
    chosen,
    grid(columns, found.rows, (row) => `#/events/${one.version}?row=${row.place}`),
    h("div", { class: "row" }, h("span", { class: "quiet" }, `${whole(offset + 1)} to ${whole(offset + found.rows.length)} of ${count(found.of, "outcome")}`),
      offset ? h("a", { href: at({ status, offset: Math.max(offset - LIMIT, 0) || "" }) }, "Before") : null,
      more ? h("a", { href: at({ status, offset: offset + LIMIT }) }, "Next") : null),
  ];
}

function changed({ changes: tables }) {
  if (tables === null) return h("p", { class: "quiet" }, "It was logged as its input, so its changes are known only by running it again; its events are what is kept.");
  const found = Object.entries(tables);
  return found.length ? found.map(([name, one]) => changes(name, one)) : h("p", { class: "quiet" }, "It changed no record.");
}

async function ranAgain(version, into, node) {
  try {
    const told = await get(`/v1/batches/${version}/graph`);
    into.replaceChildren(...(told.says ? [h("p", { class: "quiet" }, sentence(told.says))] : picture(told, version)));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    into.replaceChildren(h("p", { class: "quiet" }, sentence(error.message)));
  } finally {
    node.dataset.again = "done";
  }
}

function picture(told, version) {
  const of = told.whole ? count(told.rounds, "round") : `the first ${count(told.rounds, "round")}`;
  const made = [h("p", {}, `${of[0].toUpperCase()}${of.slice(1)} in ${count(told.strata.length, "stratum", "strata")}: those of one could run at once, and each waits for one of the stratum before it.`)];
  if (told.nodes.length) {
    const nodes = told.nodes.map((node) => ({ ...node, href: `#/events/${version}?row=${node.place}` }));
    made.push(h("div", { class: "graph" }, drawn({ nodes, edges: told.edges })));
  } else if (told.strata.length) {
    made.push(bars(folded(told.strata).map((one) => ({ title: one.title, parts: [{ value: one.value, kind: "s0" }] })), "rounds in a stratum, the first ones left"));
  }
  if (told.hottest.length) {
    const record = (one) => `#/tables/${encodeURIComponent(one.table)}/records/${one.key.map((part) => encodeURIComponent(String(part))).join(",")}`;
    made.push(h("h2", {}, "Hottest records"), grid([{ name: "record", of: (one) => `${one.table} ${one.key.join(", ")}` }, { name: "reads", says: "read by", unit: "rounds", num: true }, { name: "writes", says: "written by", unit: "rounds", num: true }], told.hottest, record));
  }
  return made;
}

// Many strata as few bars.
function folded(strata) {
  const wide = Math.ceil(strata.length / 80);
  const made = [];
  for (let at = 0; at < strata.length; at += wide) {
    const some = strata.slice(at, at + wide);
    const value = some.reduce((sum, n) => sum + n, 0) / some.length;
    made.push({ value, title: some.length > 1 ? `strata ${at} to ${at + some.length - 1}: ${number(Math.round(value))} rounds each` : `stratum ${at}: ${count(value, "round")}` });
  }
  return made;
}

async function transactions(into) {
  const { explain, source } = await get("/v1/app").catch((error) => ({ explain: null, error }));
  if (explain) {
    into.replaceChildren(h("details", {}, h("summary", {}, "The plan of each transaction"), h("pre", {}, explain)), h("details", {}, h("summary", {}, "The source that is compiled"), h("pre", {}, source)));
  } else {
    into.replaceChildren(h("p", { class: "quiet" }, "This server does not know them. Start it with ", code("--explain MODULE:APP"), ", which shows their plans and the source that is compiled, and changes nothing."));
  }
}
