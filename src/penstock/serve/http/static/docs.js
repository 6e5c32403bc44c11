"use strict";
// Shows /openapi.json, and lets each route be tried. All text goes in as text, never as HTML.

function make(tag, attributes, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

function field(param) {
  const input = make("input", { name: param.name, "data-in": param.in, autocomplete: "off" });
  if (param.required) input.required = true;
  return make("label", {}, make("code", {}, param.name), input, make("small", {}, param.description || ""));
}

function url(path, form) {
  let at = path;
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("input")) {
    if (input.dataset.in === "path") {
      at = at.replace(`{${input.name}}`, input.value.split(",").map(encodeURIComponent).join(","));
    } else if (input.value !== "") query.set(input.name, input.value);
  }
  return query.size ? `${at}?${query}` : at;
}

async function ask(method, path, form, out) {
  const options = { method, headers: {} };
  const body = form.querySelector("textarea");
  if (body) {
    options.body = body.value;
    options.headers["Content-Type"] = "application/json";
  }
  const at = url(path, form);
  out.textContent = `${method} ${at} …`;
  const stop = new AbortController();
  // A stream does not end: its first seconds are shown.
  const timer = setTimeout(() => stop.abort(), 10000);
  try {
    const answer = await fetch(at, { ...options, signal: stop.signal });
    const head = `${method} ${at}\n${answer.status} ${answer.statusText}\n\n`;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let part = await reader.read(); !part.done && text.length < 200000; part = await reader.read()) {
      text += part.value;
      out.textContent = head + text;
    }
    try { out.textContent = head + JSON.stringify(JSON.parse(text), null, 2); } catch { /* it is not JSON */ }
  } catch (error) {
    out.textContent += `\n${error.message}`;
  } finally {
    clearTimeout(timer);
  }
}

function show(path, method, operation) {
  const out = make("pre", {}, "");
  const form = make("form", {}, ...operation.parameters.map(field));
  const body = operation.requestBody && operation.requestBody.content["application/json"].schema;
  if (body) {
    const area = make("textarea", { name: "body", "aria-label": "body" });
    area.value = JSON.stringify(body.example || {}, null, 2);
    form.append(area);
  }
  form.append(make("button", {}, "Ask"), out);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(method.toUpperCase(), path, form, out);
  });
  const token = operation["x-token"] === "none" ? "no token" : `${operation["x-token"]} token`;
  const head = make("summary", {}, make("span", { class: "method" }, method.toUpperCase()), make("code", {}, path),
    make("small", {}, `${operation.summary} (${token})`));
  return make("details", {}, head, form);
}

async function main() {
  const place = document.getElementById("routes");
  const answer = await fetch("/openapi.json");
  if (!answer.ok) {
    place.textContent = `/openapi.json: ${answer.status}`;
    return;
  }
  const told = await answer.json();
  document.getElementById("title").textContent = told.info.title;
  document.getElementById("about").textContent = told.info.description;
  place.textContent = "";
  for (const [path, methods] of Object.entries(told.paths)) {
    for (const [method, operation] of Object.entries(methods)) place.append(show(path, method, operation));
  }
}

main();
