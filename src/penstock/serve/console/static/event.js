// Event: one event, found by its id or by its place in a batch: what became of it, and all that came of it.

import { get, Refused } from "./api.js";
import { count, h, moment, sentence, shown, since, whole } from "./dom.js";
import { card, code, empty, pill, refused } from "./parts.js";

const KNOWN = new Set(["place", "transaction", "ts", "id", "step", "status", "reason", "version"]);

export async function event({ place }) {
  const wanted = place.parts[0];
  const id = h("input", { type: "search", name: "id", placeholder: "An event's id", value: wanted && !place.query.has("row") ? decodeURIComponent(wanted) : "", "aria-label": "Event id", autocapitalize: "off", spellcheck: "false" });
  const search = h("form", { class: "row", onsubmit: (submitted) => { submitted.preventDefault(); if (id.value.trim()) location.hash = `#/events/${encodeURIComponent(id.value.trim())}`; } }, h("div", { class: "grow" }, id), h("button", {}, "Find event"));
  const node = h("div", {}, h("h1", {}, "Events"), card(null, search));
  if (!wanted) {
    node.append(empty(h("p", {}, "An event's page tells what became of it, what it caused, and what changed. Give its id; or open a ", h("a", { href: "#/batches" }, "batch"), ", which lists its events."), h("p", {}, "Events have an id where their class says so: ", code("id: str = ps.id()"), ".")));
    return { node, update: async () => {} };
  }
  // As the address of a batch's page has it: #/events/7?row=3.
  const row = place.query.get("row");
  try {
    const [found] = row === null ? (await get("/v1/find", { id: decodeURIComponent(wanted) })).events : [{ version: wanted, place: row }];
    if (!found) {
      node.append(empty(h("p", {}, h("b", {}, "No retained version has an event with this id.")), h("p", {}, "It has not arrived yet, waits for its time, or came in a version that is not retained any more: ", code("retain="), " keeps more.")));
      return { node, update: async () => {} };
    }
    const told = await get(`/v1/batches/${found.version}/events/${found.place}`);
    node.append(...parts(told));
    const again = h("div", {}, h("p", { class: "quiet" }, "Running its batch again …"));
    node.append(again);
    ranAgain(told, again, node);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    node.append(refused(error));
  }
  return { node, update: async () => {} };
}

function parts({ outcome, batch, emitted }) {
  const returned = Object.entries(outcome).filter(([name, value]) => !KNOWN.has(name) && value !== null);
  return [
    card(null,
      h("div", { class: "spread" }, h("h2", {}, `${outcome.transaction ?? "Row"} ${outcome.id ?? ""}`), pill(outcome.status)),
      h("dl", { class: "diff" },
        ...line("outcome", outcome.status === "aborted" ? `aborted: ${outcome.reason}` : outcome.reason ? `${outcome.status}: ${outcome.reason}` : outcome.status),
        ...line("event time", outcome.ts === null || outcome.ts === undefined ? "none" : moment(outcome.ts)),
        ...line("batch", h("span", {}, h("a", { href: `#/batches/${batch.version}` }, `version ${batch.version}`), `, event ${whole(outcome.place + 1)} of ${count(batch.events, "event")}`)),
        ...line("committed", h("span", {}, since(batch.committed_at), " by the wall clock")),
        ...(outcome.status === "duplicate" ? line("first ran in", h("a", { href: `#/batches/${outcome.version}` }, `version ${outcome.version}`)) : []),
        ...returned.flatMap(([name, value]) => line(`returned ${name}`, shown(value))),
      ),
    ),
    emitted.length ? card("Went out", h("ul", { class: "tree" }, ...emitted.map((out) => h("li", {}, h("b", {}, out.event), ` ${fields(out.fields)}`, h("span", { class: "quiet" }, ` by step ${out.step}`))))) : null,
  ].filter(Boolean);
}

const line = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
const fields = (values) => Object.entries(values).map(([name, value]) => `${name} = ${shown(value)}`).join(", ");

// What it read and wrote takes a while: the batch runs again.
async function ranAgain(told, into, node) {
  const { batch, outcome } = told;
  let steps = null;
  let why = null;
  try {
    const answer = await get(`/v1/batches/${batch.version}/events/${outcome.place}/again`);
    steps = answer.again;
    why = answer.says ? sentence(answer.says) : null;
  } catch (error) {
    why = sentence(error.message);
  }
  if (steps?.length) into.replaceChildren(card(steps.length > 1 ? "What it caused, read and wrote" : "What it read and wrote", tree(steps, told.round)));
  else into.replaceChildren(...[told.round.length > 1 ? card("What it caused, in order", flat(told)) : null, card("What it read and wrote", h("p", { class: "quiet" }, why)), changed(told)].filter(Boolean));
  node.dataset.again = "done";
}

function tree(steps, round) {
  const made = steps.map((step, place) => h("li", {}, head(step, round[place]), ...step.records.map(record), ...step.scans.map((table) => h("div", { class: "quiet" }, `looks through all of ${table}`))));
  const root = h("ul", { class: "tree" });
  steps.forEach((step, place) => {
    if (step.parent === null || step.parent === place) return root.append(made[place]);
    const above = made[step.parent];
    let below = above.querySelector(":scope > ul");
    if (!below) above.append((below = h("ul", {})));
    below.append(made[place]);
  });
  return root;
}

const head = (step, row) =>
  h("div", {}, h("b", {}, step.event), ` ${fields(step.fields)} `, pill(step.status ?? "committed"), step.reason ? h("span", { class: "quiet" }, ` ${step.reason}`) : null, row ? returned(row) : null);

function returned(row) {
  const given = Object.entries(row).filter(([name, value]) => !KNOWN.has(name) && value !== null);
  return given.length ? h("span", { class: "quiet" }, ` returned ${given.map(([name, value]) => `${name} = ${shown(value)}`).join(", ")}`) : null;
}

function record(one) {
  const name = h("a", { href: `#/tables/${encodeURIComponent(one.table)}/records/${one.key.map((part) => encodeURIComponent(String(part))).join(",")}` }, `${one.table} ${one.key.join(", ")}`);
  if (!one.writes) return h("div", {}, h("span", { class: "quiet" }, "reads "), name, `: ${one.before === null ? "there is none" : fields(one.before)}`);
  const names = Object.keys(one.after ?? one.before ?? {});
  const lines = names.filter((column) => !one.before || !one.after || shown(one.before[column]) !== shown(one.after[column])).flatMap((column) => [
    h("dt", {}, column),
    h("dd", {}, one.before ? h("del", {}, shown(one.before[column])) : "", one.before && one.after ? " → " : "", one.after ? h("ins", {}, shown(one.after[column])) : ""),
  ]);
  const what = one.after === null ? (one.before === null ? "makes and deletes " : "deletes ") : one.before === null ? "makes " : one.reads ? "reads and writes " : "writes ";
  return h("div", {}, h("span", { class: "quiet" }, what), name, lines.length ? h("dl", { class: "diff" }, ...lines) : h("span", { class: "quiet" }, " with the values that it had"));
}

const flat = ({ round, steps }) =>
  h("div", {}, h("ol", { class: "timeline" }, ...round.map((row) => h("li", { class: row.status }, h("b", {}, row.transaction ?? ""), " ", pill(row.status), row.reason ? h("span", { class: "quiet" }, ` ${row.reason}`) : null, returned(row)))), steps > round.length ? h("p", { class: "quiet" }, `and ${count(steps - round.length, "step")} more`) : null);

export function changed({ changed: tables, batch }) {
  if (tables === null) return null;
  const found = Object.entries(tables);
  if (!found.length) return card("What its version changed", h("p", { class: "quiet" }, `Version ${batch.version} changed no record.`));
  return card(`What its version changed: ${count(batch.changes, "record")}, by ${count(batch.events, "event")}`, ...found.map(([name, one]) => changes(name, one)));
}

export const changes = (name, { count: all, records }) =>
  h("details", { open: records.length <= 10 }, h("summary", {}, h("b", {}, name), ` ${count(all, "record")}${records.length < all ? `, the first ${records.length} of them` : ""}`),
    h("ul", { class: "tree" }, ...records.map((one) => {
      const { change, ...columns } = one;
      return h("li", {}, pill(change), ` ${fields(columns)}`);
    })));
