// SQL: one query over one version, where the server was started with --sql.

import { get, post, Refused } from "./api.js";
import { count, h, shown } from "./dom.js";
import { card, code, empty, grid, refused } from "./parts.js";

export async function sql({ place }) {
  if (!(await get("/v1/versions")).sql) {
    return h("div", {}, h("h1", {}, "SQL"), empty(h("p", {}, h("b", {}, "This server takes no SQL.")), h("p", {}, "Start it with ", code("penstock serve STATE --sql"), ": queries that only read, over one version. Filters under ", h("a", { href: "#/tables" }, "Tables"), " work without.")));
  }
  const text = h("textarea", { name: "sql", value: place.query.get("q") ?? "", placeholder: "select * from …", spellcheck: "false", autocapitalize: "off", "aria-label": "SQL", class: "mono" });
  const found = h("div", {});
  const run = async () => {
    if (!text.value.trim()) return;
    history.replaceState(null, "", `#/sql?${new URLSearchParams({ q: text.value })}`);
    found.replaceChildren(h("p", { class: "quiet" }, "Running …"));
    try {
      found.replaceChildren(answer(await post("/v1/sql", { sql: text.value })));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      found.replaceChildren(refused(error));
    }
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
  };
  text.addEventListener("keydown", keys);
  const node = h("div", {}, h("h1", {}, "SQL"), card(null, h("form", { onsubmit: (event) => { event.preventDefault(); run(); } }, h("p", {}, text), h("div", { class: "row" }, h("button", { class: "main" }, "Run"), h("span", { class: "quiet" }, "One query that reads, over the newest version. Ctrl-Enter runs it."))), found));
  if (text.value) run();
  return { node, update: async () => {} };
}

function answer(told) {
  if (!told.rows.length) return empty("The query gives no row.");
  const names = told.columns?.map((one) => one.name ?? one) ?? Object.keys(told.rows[0]);
  const columns = names.map((name) => ({ name, num: typeof told.rows[0][name] === "number", of: (row) => (row[name] === null ? null : shown(row[name])) }));
  return h("div", {}, grid(columns, told.rows), h("p", { class: "quiet" }, `${count(told.rows.length, "row")} of version ${told.version}${told.more || told.truncated ? ", and there are more" : ""}`));
}
