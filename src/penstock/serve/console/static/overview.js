// Overview: how the stream goes now.

import { get } from "./api.js";
import { between, count, h, moment, ms, number, since, span, whole } from "./dom.js";
import { bars, card, code, empty, grid, legend, pill, stack, tile } from "./parts.js";

const KINDS = ["committed", "aborted", "late", "rejected", "duplicate"];
const SHOWN = 60;
const LISTED = 15;

export async function overview() {
  const told = await get("/v1/batches", { limit: SHOWN });
  return h("div", {}, ...(told.batches.length ? content(told) : [nothing()]));
}

// Every retained batch, a page at a time.
export async function batches({ place }) {
  const before = place.query.get("before");
  const { batches: several } = await get("/v1/batches", { limit: SHOWN, before });
  if (!several.length) return h("div", {}, h("h1", {}, "Batches"), before ? empty("No older batch is retained. ", h("a", { href: "#/batches" }, "To the newest")) : nothing());
  return h("div", {}, h("h1", {}, "Batches"), card(null, table(several), h("div", { class: "row" },
    before ? h("a", { href: "#/batches" }, "To the newest") : null,
    several.length === SHOWN ? h("a", { href: `#/batches?before=${several.at(-1).version}` }, "Older ones") : h("span", { class: "quiet" }, "No older one is retained."),
  )));
}

const nothing = () =>
  empty(
    h("p", {}, h("b", {}, "No batch has run yet.")),
    h("p", {}, "This page fills with the first one: ", code("db.run({...})"), ", a query started by ", code("app.start(...)"), ", or a call. Records that were loaded are under ", h("a", { href: "#/tables" }, "Tables"), "."),
  );

function content({ batches, together }) {
  const last = batches[0];
  return [tiles(last, together), figures(batches, together, last), card("Last batches", table(batches.slice(0, LISTED)), h("p", {}, h("a", { href: "#/batches" }, "All that are retained")))];
}

function tiles(last, together) {
  const over = `over the last ${count(together.batches, "batch", "batches")}${together.seconds ? `, ${together.seconds.toFixed(1)} s` : ""}`;
  const lag = last.highest === null || last.clock === null ? "none" : between(last.highest, last.clock);
  const aborted = Object.values(together.aborted).reduce((sum, one) => sum + one, 0);
  const share = (value) => (together.events ? `${number(Math.round((1000 * value) / together.events) / 10)} %` : "");
  return h("div", { class: "tiles" },
    tile(together.events_per_s === null ? "–" : whole(together.events_per_s), "events", "/s", over),
    tile(whole(together.committed), "committed", share(together.committed), over),
    tile(whole(aborted), "aborted", share(aborted), over),
    tile(whole(together.late), "late", "", `came behind the watermark; ${over}`),
    tile(whole(together.rejected), "rejected", "", `rows that were no events; ${over}`),
    tile(last.held === null ? "–" : whole(last.held), "held", "", "events that wait for their time"),
    tile(lag, "watermark lag, event time", "", `from the clock, ${moment(last.clock ?? "none")}, to the highest ts that has arrived, ${moment(last.highest ?? "none")}${last.watermark === null ? "" : `; the delay is ${span(last.watermark)}`}`),
    tile(last.ms === null ? "–" : ms(last.ms), "last batch took", "", "wall time, all stages"),
  );
}

function figures(batches, together, last) {
  const drawn = batches.slice().reverse().map((one) => {
    const aborted = Object.values(one.aborted).reduce((sum, n) => sum + n, 0);
    const parts = KINDS.map((kind) => ({ value: kind === "aborted" ? aborted : one[kind], kind: `${kind}-fill` }));
    return { href: `#/batches/${one.version}`, title: `version ${one.version}: ${count(one.events, "event")}, ${whole(one.committed)} committed, ${whole(aborted)} aborted`, parts };
  });
  return h("div", { class: "cards" },
    card("Events of each batch", bars(drawn, "events"), legend(KINDS.filter((kind) => drawn.some((one) => one.parts[KINDS.indexOf(kind)].value)).map((kind) => ({ name: kind, kind: `${kind}-fill` })))),
    card("Where the time of a batch goes", together.ms_by_stage ? stages(together.ms_by_stage) : unknown(), last.policy ? h("p", {}, h("b", {}, last.policy), `: ${last.why}.`) : null),
    card("Why events abort", reasons(together)),
  );
}

export function stages(given) {
  const parts = Object.entries(given).map(([name, value], place) => ({ name, value, says: ms(value), kind: `s${place % 7}` }));
  return stack(parts, "time by stage");
}

export const unknown = () => h("p", { class: "quiet" }, "The writer has left no report of these batches: an older Penstock wrote them, or they are no more among the last 512.");

function reasons(together) {
  const found = Object.entries(together.aborted);
  if (!found.length) return h("p", { class: "quiet" }, "None of these events has aborted.");
  return grid([{ name: "reason", of: ([reason]) => reason }, { name: "events", num: true, of: ([, n]) => whole(n) }, { name: "share", num: true, of: ([, n]) => `${((100 * n) / together.events).toFixed(1)} %` }], found.slice(0, 8));
}

export function table(batches) {
  const columns = [
    { name: "version", num: true, of: (one) => h("span", {}, whole(one.version)) },
    { name: "committed_at", says: "committed at", unit: "wall clock", of: (one) => since(one.committed_at) },
    { name: "clock", says: "clock", unit: "event time", narrow: false, of: (one) => (one.clock === null ? null : moment(one.clock)) },
    { name: "events", num: true, of: (one) => whole(one.events) },
    { name: "committed", num: true, of: (one) => whole(one.committed) },
    { name: "aborted", num: true, of: (one) => whole(Object.values(one.aborted).reduce((sum, n) => sum + n, 0)) },
    { name: "late", num: true, narrow: false, of: (one) => whole(one.late) },
    { name: "held", num: true, narrow: false, of: (one) => (one.held === null ? null : whole(one.held)) },
    { name: "changes", says: "records changed", num: true, narrow: false, of: (one) => whole(one.changes) },
    { name: "ms", says: "took", num: true, of: (one) => (one.ms === null ? null : ms(one.ms)) },
    { name: "policy", narrow: false, of: (one) => h("span", { title: one.why ?? "" }, one.policy ?? "–") },
    { name: "cause", narrow: false, of: (one) => pill(one.cause) },
  ];
  return grid(columns, batches, (one) => `#/batches/${one.version}`);
}
