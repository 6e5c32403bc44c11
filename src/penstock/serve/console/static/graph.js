// A batch's dependency graph: strata from left to right, an edge from each writer to who waits for it.

import { svg } from "./dom.js";

const WIDE = 150, TALL = 38, GAP = 64, ROW = 12;
// More of a stratum than this stand beside each other.
const HIGH = 8;

export function drawn({ nodes, edges }) {
  const columns = [];
  nodes.forEach((node, place) => (columns[node.stratum] ??= []).push(place));
  const at = [];
  let left = 2;
  columns.forEach((column, stratum) => {
    // A node comes near those that it waits for.
    const want = (place) => {
      const above = edges.filter((edge) => edge.to === place).map((edge) => at[edge.from]?.y ?? 0);
      return above.length ? above.reduce((sum, y) => sum + y, 0) / above.length : 0;
    };
    if (stratum) column.sort((a, b) => want(a) - want(b));
    column.forEach((place, n) => (at[place] = { x: left + Math.floor(n / HIGH) * (WIDE + ROW), y: (n % HIGH) * (TALL + ROW) + 2 }));
    left += Math.ceil(column.length / HIGH) * (WIDE + ROW) - ROW + GAP;
  });
  const width = left - GAP + 2;
  const height = Math.min(Math.max(...columns.map((column) => column.length)), HIGH) * (TALL + ROW) - ROW + 4;
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "dependency graph" },
    ...edges.map((edge) => {
      const from = at[edge.from], to = at[edge.to];
      const x1 = from.x + WIDE, y1 = from.y + TALL / 2, x2 = to.x, y2 = to.y + TALL / 2, half = Math.max((x2 - x1) / 2, 20);
      return svg("path", { class: "edge", d: `M${x1} ${y1}C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}` }, svg("title", {}, `waits for ${edge.records.join(", ")}`));
    }),
    ...nodes.map((node, place) => svg("a", { href: node.href }, svg("g", { class: "node", transform: `translate(${at[place].x} ${at[place].y})` },
      svg("rect", { width: WIDE, height: TALL, rx: 6 }),
      svg("rect", { width: 4, height: TALL, rx: 2, class: `${node.status}-fill` }),
      svg("text", { x: 12, y: 16 }, cut(`${node.event} ${node.id ?? ""}`)),
      svg("text", { x: 12, y: 31, class: "quiet" }, `${node.status}${node.steps > 1 ? `, ${node.steps} steps` : ""}`),
      svg("title", {}, `${node.event} ${node.id ?? ""}: ${node.status}`)))),
  );
}

const cut = (text) => (text.length > 21 ? `${text.slice(0, 20)}…` : text);
