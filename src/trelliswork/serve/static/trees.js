// Views of trees: dependency arcs and constituents.
"use strict";

const headName = (answer, head) => (head === 0 ? "root" : `${answer.words[head - 1]} (${head})`);

function parseView() {
  const about = (answer, entry) => `head of ${answer.words[entry.token]} `
    + (entry.force != null ? `= ${headName(answer, entry.force)}` : `≠ ${entry.forbid.map((h) => headName(answer, h)).join(", ")}`);
  const encode = (entries, n) => allowed(entries, n, (t) => [...Array(n + 1).keys()].filter((head) => head !== t + 1));
  return evidenceView("parse", "Parse", { k: 5 }, encode, arcsAnswer, (answer, evidence) => {
    const token = answer.words.findIndex((_, t) => evidence.open === String(t));
    let choice = null;
    if (token >= 0) {
      const known = new Map(answer.heads[token]);
      const options = [...answer.words.keys(), answer.words.length].filter((head) => head !== token + 1)
        .map((head) => [head, headName(answer, head), known.get(head)]).sort((a, b) => (b[2] ?? -1) - (a[2] ?? -1));
      const title = `Head of ${answer.words[token]}`;
      choice = picker(evidence, String(token), { token }, title, options);
    }
    const remark = (answer.kind === "exact" ? "" : "Probabilities are estimates by belief propagation. ")
      + "Dotted arcs are likely alternatives. Choose a word to force or forbid its head.";
    const scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Tree" }, arcs(answer, evidence));
    return { parts: [el("section", {}, el("h2", { text: "Arcs with their probabilities" }), scroll, choice, el("p", { class: "note", text: remark })),
      subtrees(answer), bestTrees(answer)] };
  }, about);
}

function press(node, act) {
  node.addEventListener("click", act);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  });
  return node;
}

// Heights of arcs: one above the highest arc inside.
function levels(spans) {
  const placed = new Map();
  for (const [a, b, key] of [...spans].sort((x, y) => (x[1] - x[0]) - (y[1] - y[0]))) {
    const inside = [...placed.values()].filter((other) => other.a >= a && other.b <= b).map((other) => other.level);
    placed.set(key, { a, b, level: 1 + Math.max(0, ...inside) });
  }
  return placed;
}

function arcs(answer, evidence) {
  const widths = answer.words.map((word, t) => Math.max(62, 8.4 * word.length + 18, 7 * (answer.tags[t] || "").length + 18));
  const xs = [];
  let width = 10;
  for (const w of widths) { xs.push(width + w / 2); width += w + 6; }
  const heights = levels(answer.arcs.map((arc, t) => [arc.head, t + 1, t]).filter(([h]) => h > 0)
    .map(([h, d, t]) => [Math.min(h, d), Math.max(h, d), t]));
  const top = Math.max(1, ...[...heights.values()].map((one) => one.level));
  const ground = 40 + 36 * top;
  const shapes = [];
  const curve = (from, to, height) => `M${from},${ground} C${from},${ground - height} ${to},${ground - height} ${to},${ground - 5}`;
  answer.heads.forEach((row, t) => row.forEach(([head, p]) => {
    if (head > 0 && p >= 0.05 && head !== answer.arcs[t].head) {
      const reach = 24 + 34 * Math.min(top, Math.abs(head - t - 1));
      shapes.push(svg("path", { class: "other", d: curve(xs[head - 1], xs[t], reach), opacity: 0.35 + p },
        svg("title", { text: `${answer.words[t]} ← ${answer.words[head - 1]} ${number(p)}` })));
    }
  }));
  const texts = [];
  answer.arcs.forEach((arc, t) => {
    const old = answer.before?.arcs[t];
    const mark = old && old.head !== arc.head ? " changed" : "";
    const to = xs[t] + (arc.head === 0 ? 0 : arc.head < t + 1 ? -5 : 5);
    const level = heights.get(t)?.level || 0;
    const from = arc.head === 0 ? to : xs[arc.head - 1] + (arc.head < t + 1 ? 5 : -5);
    const height = (24 + 36 * level) * 1.25;
    const d = arc.head === 0 ? `M${to},14 V${ground - 5}` : curve(from, to, height);
    shapes.push(svg("path", { class: `arc${mark}`, d, opacity: 0.3 + 0.7 * arc.p },
      svg("title", { text: `${answer.words[t]} ← ${headName(answer, arc.head)} ${number(arc.p)}` })));
    shapes.push(svg("path", { class: `tip${mark && " changed-fill"}`, d: `M${to - 4},${ground - 9} h8 l-4,8 z` }));
    const y = arc.head === 0 ? 12 : ground - height * 0.75 - 4;
    texts.push(svg("text", { class: `small halo${mark && " changed-fill"}`, x: (from + to) / 2, y, text: `${arc.label || ""} ${percent(arc.p)}`.trim() }));
  });
  const words = answer.words.map((word, t) => {
    const id = `node-${t}`;
    const known = evidence.places.has(String(t)) ? "known" : "";
    return press(svg("g", { role: "button", tabindex: "0", id, "aria-pressed": String(evidence.open === String(t)), "aria-label": `Head of ${word}` },
      svg("rect", { x: xs[t] - widths[t] / 2, y: ground + 2, width: widths[t], height: 42 }),
      svg("text", { class: known, x: xs[t], y: ground + 20, text: word }),
      svg("text", { class: "small", x: xs[t], y: ground + 37, text: answer.tags[t] || "" })), () => evidence.select(String(t), `#${id}`));
  });
  return svg("svg", { class: "tree", width: width + 4, height: ground + 50, role: "group", "aria-label": "Dependency tree" }, shapes, texts, words);
}

function subtrees(answer) {
  const inner = (answer.subtrees || []).map((p, t) => [t, p]).filter(([t]) => answer.arcs.some((arc) => arc.head === t + 1));
  if (!inner.length) return null;
  return el("section", {}, el("h2", { text: "Sub-trees below each word" }), el("table", { class: "list narrow", id: "subtrees" },
    el("thead", {}, el("tr", {}, el("th", { text: "word" }), el("th"), el("th", { class: "number", text: "p" }))),
    el("tbody", {}, inner.map(([t, p]) => el("tr", {}, el("td", { text: answer.words[t] }), el("td", { class: "bars" }, bar(p)), el("td", { class: "number", text: number(p) }))))));
}

function bestTrees(answer) {
  const first = answer.best[0]?.arcs || [];
  const rows = answer.best.map((one, n) => {
    const changes = one.arcs.map(([head], t) => [head, t]).filter(([head, t]) => head !== first[t][0])
      .map(([head, t]) => `${answer.words[t]} ← ${headName(answer, head)}`);
    return el("tr", {}, el("td", { class: "number", text: number(one.p) }), el("td", { class: "bars" }, bar(one.p)),
      el("td", { text: n ? changes.join(", ") || "the same arcs" : "the most probable tree" }));
  });
  return el("section", {}, el("h2", { text: "Most probable trees" }), el("div", { class: "scroll" },
    el("table", { class: "list k", id: "best" }, el("thead", {}, el("tr", {}, el("th", { class: "number", text: "p" }), el("th"),
      el("th", { text: "differences from the first" }))), el("tbody", {}, rows))));
}

const spanText = (answer, span) => answer.words.slice(span.first, span.last + 1).join(" ");

function grammarView() {
  const about = (answer, entry) => `${entry.force ? "" : "no "}[${spanText(answer, entry)}]`;
  const encode = (entries) => entries.map(({ first, last, force }) => [first, last, force]);
  return evidenceView("parse", "Parse", { k: 5 }, encode, treesAnswer, (answer, evidence) => {
    const list = el("table", { class: "list narrow" }, el("thead", {}, el("tr", {}, el("th", { text: "span" }), el("th"), el("th", { class: "number", text: "p" }), el("th"))),
      el("tbody", { id: "spans" }, answer.spans.slice(0, 12).map((span) => {
        const key = `${span.first}:${span.last}`;
        const now = evidence.places.get(key)?.force;
        const choose = (force) => evidence.set(key, now === force ? null : { first: span.first, last: span.last, force });
        return el("tr", {}, el("td", { text: spanText(answer, span) }), el("td", { class: "bars" }, bar(span.p)), el("td", { class: "number", text: number(span.p) }),
          el("td", { class: "number" }, model.evidence ? ["Force", "Forbid"].map((name) => el("button", { type: "button", text: name,
            "aria-pressed": String(now === (name === "Force")), "aria-label": `${name} ${spanText(answer, span)}`, onclick: () => choose(name === "Force") })) : []));
      })));
    const scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Tree" }, constituents(answer));
    const parts = [el("section", {}, el("h2", { text: "Tree with most expected correct spans" }), scroll)];
    if (answer.spans.length) parts.push(el("section", {}, el("h2", { text: "Probable spans" }), list));
    if (answer.best.length) {
      parts.push(el("section", {}, el("h2", { text: "Most probable trees" }), el("div", { class: "scroll" }, el("table", { class: "list k", id: "best" },
        el("tbody", {}, answer.best.map((one) => el("tr", {}, el("td", { class: "number", text: number(one.p) }), el("td", { class: "bars" }, bar(one.p)),
          el("td", { text: brackets(one.tree, answer.words) }))))))));
    }
    return { parts };
  }, about);
}

const brackets = (node, words) => node.children
  ? `(${node.symbol} ${node.children.map((child) => brackets(child, words)).join(" ")})` : `(${node.symbol} ${words[node.first]})`;

function constituents(answer) {
  const widths = answer.words.map((word) => Math.max(56, 8.4 * word.length + 16));
  const xs = [];
  let width = 8;
  for (const w of widths) { xs.push(width + w / 2); width += w + 4; }
  const depth = (node) => (node.children ? 1 + Math.max(...node.children.map(depth)) : 0);
  const height = 34 + 44 * depth(answer.tree);
  const lines = [];
  const nodes = [];
  const place = (node) => {
    const y = height - 44 * depth(node);
    if (!node.children) {
      lines.push(svg("line", { class: "arc", x1: xs[node.first], x2: xs[node.first], y1: y, y2: y + 16, opacity: 0.4 }));
      nodes.push(svg("text", { class: "small halo", x: xs[node.first], y: y + 4, text: node.symbol }), svg("text", { x: xs[node.first], y: y + 34, text: answer.words[node.first] }));
      return [xs[node.first], y];
    }
    const below = node.children.map(place);
    const x = (below[0][0] + below[1][0]) / 2;
    for (const [cx, cy] of below) lines.push(svg("line", { class: "arc", x1: x, y1: y, x2: cx, y2: cy - 8, opacity: 0.25 + 0.75 * (node.p ?? 1) }));
    nodes.push(svg("g", { class: "node" }, svg("rect", { x: x - 34, y: y - 12, width: 68, height: 22, rx: 6 }),
      svg("text", { class: "small", x, y: y + 3, text: node.p == null ? node.symbol : `${node.symbol} ${number(node.p)}` })));
    return [x, y];
  };
  place(answer.tree);
  return svg("svg", { class: "tree", width: width + 4, height: height + 48, role: "img", "aria-label": brackets(answer.tree, answer.words) }, lines, nodes);
}
