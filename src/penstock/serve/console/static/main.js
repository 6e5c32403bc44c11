// The shell: which page the address names, and what is live.
//
//   #/                          Overview            #/events/ID         Event
//   #/tables/Account?where=…    Tables              #/batches/7         Batch
//   #/tables/Account/records/K  Record              #/sql?q=…           SQL

import { Refused, status, Unreachable } from "./api.js";
import { ago, h } from "./dom.js";
import { pill, refused } from "./parts.js";
import * as overview from "./overview.js";

const LOOK_MS = 1000;

// Pages are read when they are first opened. `live`: whether a new version makes the page anew.
const PAGES = [
  [/^\/$/, async () => overview.overview, "#/"],
  [/^\/tables(?:\/([^/]+))?$/, async () => (await import("./tables.js")).tables, "#/tables"],
  [/^\/tables\/([^/]+)\/records\/([^/]*)$/, async () => (await import("./record.js")).record, "#/tables"],
  [/^\/events(?:\/(.*))?$/, async () => (await import("./event.js")).event, "#/events"],
  [/^\/batches$/, async () => overview.batches, "#/"],
  [/^\/batches\/(\d+)$/, async () => (await import("./batch.js")).batch, "#/"],
  [/^\/sql$/, async () => (await import("./sql.js")).sql, "#/sql"],
];

const main = document.getElementById("main");
let opened = null; // {hash, page, make}
let version = null;
let making = false;
let again = false;

function placed() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split(/\?(.*)/s);
  for (const [pattern, load, at] of PAGES) {
    const found = pattern.exec(path);
    if (found) return { load, at, parts: found.slice(1), query: new URLSearchParams(query), path };
  }
  return null;
}

async function open() {
  const place = placed();
  const hash = location.hash;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.getAttribute("href") === place?.at) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!place) {
    main.replaceChildren(h("div", { class: "empty" }, "There is no such page."));
    return;
  }
  opened = { hash, place, page: null };
  await make();
  scrollTo(0, 0);
}

// Makes the page that is open: a page is a function of its address, and gives its element. One that keeps something that
// is typed into gives an `update` of its own.
async function make() {
  if (making) {
    again = true;
    return;
  }
  making = true;
  const now = opened;
  try {
    if (now.page?.update) await now.page.update(version);
    else {
      const page = await (await now.place.load())({ place: now.place, version });
      if (opened === now) {
        const made = page instanceof Node ? { node: page } : page;
        if (made.update) now.page = made;
        main.replaceChildren(made.node);
        main.dataset.page = now.hash || "#/";
      }
    }
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    if (error.status === 401) location.reload();
    if (opened === now && error instanceof Refused) main.replaceChildren(refused(error));
  } finally {
    making = false;
    if (again || opened !== now) {
      again = false;
      await make();
    }
  }
}

export const remake = () => make();

// -- what is live -------------------------------------------------------------------------------------------------------

const live = document.getElementById("live");
const banner = document.getElementById("banner");

function warn(text, bad = false) {
  banner.hidden = !text;
  banner.classList.toggle("bad", bad);
  if (banner.textContent !== (text ?? "")) banner.textContent = text ?? "";
}

async function look() {
  let told;
  try {
    told = await status();
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    live.replaceChildren(pill("no server", "gone"));
    warn("The server does not answer: it has ended, or cannot be reached. What is shown is what it said last.", true);
    return;
  }
  for (const one of document.querySelectorAll("time[datetime]")) one.textContent = ago(one.dateTime);
  document.getElementById("app").textContent = told.app;
  if (document.title !== `${told.app} · Penstock`) document.title = `${told.app} · Penstock`;
  live.replaceChildren(
    h("span", { title: told.committed_at ? `committed ${told.committed_at}` : "" }, `version ${told.version}`, told.committed_at ? ` · ${ago(told.committed_at)}` : ""),
    told.error ? pill("standing still", "gone") : writer(told.writer),
  );
  if (told.error) warn(`${told.says}.`, true);
  else if (told.writer.is_there === false) warn(gone(told));
  else warn(null);
  if (told.version !== version) {
    const first = version === null;
    version = told.version;
    if (!first && opened) await make();
  }
}

const writer = (told) =>
  told.is_there === true ? pill("live", "live") : told.is_there === false ? pill("writer gone", "gone") : pill("writer unknown", "stale");

function gone({ writer: told, committed_at: at }) {
  const who = told.pid === null ? "Nobody writes to this state" : `The writer, pid ${told.pid}${told.host ? ` on ${told.host}` : ""}, is gone`;
  return `${who}: nothing new comes until it is opened again.${at ? ` The last commit was ${ago(at)}.` : ""} What is shown here stays as it was committed.`;
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

addEventListener("hashchange", open);
open();
watch();
