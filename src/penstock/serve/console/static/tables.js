// Tables: any table at any retained version, filtered, a page at a time; a record by its key.

import { get, keyOf, Refused } from "./api.js";
import { count, h, shown, whole } from "./dom.js";
import { card, code, empty, grid, pill, refused } from "./parts.js";

const LIMIT = 50;
const DRAG_MS = 250;

export async function tables({ place }) {
  const name = place.parts[0] && decodeURIComponent(place.parts[0]);
  const version = place.query.get("version");
  const known = await get("/v1/tables", { version });
  if (!known.tables.length) {
    return h("div", {}, h("h1", {}, "Tables"), empty("This app declares no table. ", code("@app.table"), " makes one."));
  }
  const table = known.tables.find((one) => one.name === name) ?? (name ? null : known.tables[0]);
  if (!table) return h("div", {}, tabs(known.tables, null, version), empty(`There is no table ${name} in version ${known.version}.`));
  return new Browser(table, known.tables, place.query).made();
}

const tabs = (several, chosen, version) =>
  h("div", { class: "tabs" }, ...several.map((one) => h("a", { href: `#/tables/${encodeURIComponent(one.name)}${version ? `?version=${version}` : ""}`, "aria-current": one === chosen ? "page" : null }, one.name)));

class Browser {
  constructor(table, several, query) {
    this.table = table;
    this.several = several;
    this.where = query.get("where") ?? "";
    this.version = query.get("version");
    this.pages = []; // tokens of the pages before this one
    this.page = null;
    this.found = h("div", {});
    this.slider = h("div", { class: "row" });
  }

  async made() {
    const { table } = this;
    const where = h("input", { type: "search", value: this.where, name: "where", placeholder: example(table), "aria-label": "Filter", autocapitalize: "off", spellcheck: "false" });
    const key = h("input", { type: "search", name: "key", placeholder: `${table.key.join(", ")} of one record`, "aria-label": "Key", autocapitalize: "off", spellcheck: "false" });
    const node = h("div", {},
      h("h1", {}, table.name),
      tabs(this.several, table, this.version),
      card(null,
        h("form", { class: "row", onsubmit: (event) => this.filter(event, where.value) }, h("div", { class: "grow" }, where), h("button", {}, "Filter")),
        h("form", { class: "row", onsubmit: (event) => this.find(event, key.value) }, h("div", { class: "grow" }, key), h("button", {}, "Find key")),
        this.slider,
        this.found,
      ),
      card("Columns", columns(table)),
    );
    await this.slide();
    await this.read();
    return { node, update: () => this.update() };
  }

  // A version is looked at as long as it is the newest, or is held by the address.
  async update() {
    await this.slide();
    if (!this.version && !this.pages.length) await this.read();
  }

  address(version = this.version, where = this.where) {
    const query = new URLSearchParams();
    if (where) query.set("where", where);
    if (version) query.set("version", version);
    const text = query.toString();
    return `#/tables/${encodeURIComponent(this.table.name)}${text ? `?${text}` : ""}`;
  }

  filter(event, where) {
    event.preventDefault();
    location.hash = this.address(this.version, where.trim());
  }

  find(event, text) {
    event.preventDefault();
    const key = text.trim();
    if (!key) return;
    const parts = this.table.key.length > 1 ? key.split(",").map((part) => part.trim()) : [key];
    location.hash = `#/tables/${encodeURIComponent(this.table.name)}/records/${parts.map(encodeURIComponent).join(",")}`;
  }

  async slide() {
    const { version: newest, oldest } = await get("/v1/versions");
    if (this.slider.contains(document.activeElement)) return; // it is being moved
    const at = Number(this.version ?? newest);
    const said = h("output", {}, this.version ? `version ${at} of ${newest}` : `version ${newest}`);
    const range = h("input", { type: "range", min: oldest, max: newest, "aria-label": "Version" });
    range.value = at;
    let due = null;
    range.addEventListener("input", () => {
      said.textContent = `version ${range.value} of ${newest}`;
      clearTimeout(due);
      due = setTimeout(() => (location.hash = this.address(Number(range.value) === newest ? null : range.value)), DRAG_MS);
    });
    this.slider.replaceChildren(
      h("label", { class: "field" }, "Version"), range, said,
      this.version ? h("a", { href: this.address(null) }, "to the newest") : pill("live", "live"),
    );
  }

  async read() {
    let told;
    try {
      told = await get(`/v1/tables/${encodeURIComponent(this.table.name)}/records`, { where: this.where, version: this.page ? null : this.version, limit: LIMIT, page: this.page });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.found.replaceChildren(refused(error), this.where ? grammar() : "");
      return;
    }
    this.found.replaceChildren(...this.records(told));
  }

  records(told) {
    const { table, where } = this;
    if (!told.records.length) {
      return [empty(where ? ["No record is as the filter says. ", grammar()] : ["No record yet. ", code(`db.load("${table.name}", rows)`), " fills a table, and so do transactions that insert."])];
    }
    const made = table.columns.map((one) => ({ name: one.name, unit: one.type + (one.key ? ", key" : ""), num: /^(int|float|decimal)/.test(one.type), of: (record) => (record[one.name] === null ? null : shown(record[one.name])) }));
    const first = this.pages.length * LIMIT;
    return [
      grid(made, told.records, (record) => this.record(record)),
      h("div", { class: "row" },
        h("span", { class: "quiet" }, `${told.next || first ? `Records ${whole(first + 1)} to ${whole(first + told.records.length)}` : count(told.records.length, "record")}, of version ${told.version}, by key`),
        this.pages.length ? h("button", { onclick: () => this.turn(this.pages.pop()) }, "Before") : null,
        told.next ? h("button", { onclick: () => { this.pages.push(this.page); this.turn(told.next); } }, "Next") : null,
      ),
    ];
  }

  record = (record) => `#/tables/${encodeURIComponent(this.table.name)}/records/${keyOf(this.table, record)}`;

  turn(page) {
    this.page = page;
    return this.read();
  }
}

const columns = (table) =>
  grid([{ name: "name" }, { name: "type" }, { name: "key", of: (one) => (one.key ? "key" : "") }, { name: "nullable", says: "may be null", of: (one) => (one.nullable ? "yes" : "no") }], table.columns);

const grammar = () => h("span", { class: "quiet" }, "A filter compares columns: ", code("balance >= 10 and not branch in ('Rome', 'Oslo')"), "; ", code("is null"), " finds what has no value.");

function example(table) {
  const one = table.columns.find((column) => !column.key) ?? table.columns[0];
  return `Filter: ${one.name} ${/^(int|float|decimal)/.test(one.type) ? ">= 10" : one.type === "str" ? "= 'a'" : "is not null"}`;
}
