// The page of one model: views of labels and of text, and the tabs that show them. Loaded last.
"use strict";

// ---- taggers --------------------------------------------------------------------------------------------------

function tagView() {
  const many = (model.layers || []).length > 1;
  const withBest = !many && model.evidence;
  let unfolded = false; // the labels below spans
  const about = (answer, entry) => answer.words[entry.token]
    + (many ? ` (${entry.layer})` : "") + (entry.force != null ? ` = ${entry.force}` : ` ≠ ${entry.forbid.join(", ")}`);
  const encode = (entries, n) => {
    const of = (layer) => allowed(entries.filter((entry) => !many || entry.layer === layer.name), n, () => layer.labels);
    return many ? Object.fromEntries(model.layers.map((layer) => [layer.name, of(layer)])) : of(model.layers[0]);
  };
  return evidenceView("tag", "Tag", withBest ? { k: 5 } : {}, encode, labelsAnswer, (answer, evidence) => {
    const drawings = [];
    const draw = () => drawings.forEach((one) => one());
    const sections = answer.layers.map((layer, number) => {
      const box = trellis(answer, layer, number, evidence, many);
      drawings.push(box.draw);
      const title = el("h2", { text: many ? `Layer ${layer.name}` : layer.spans ? "Spans" : `p(${layer.name} | sentence)` });
      const labels = [box.root, openPicker(answer, layer, evidence, many)];
      if (!layer.spans) return el("section", {}, title, ...labels);
      const below = el("details", { open: unfolded || evidence.open != null, ontoggle: () => { unfolded = below.open; draw(); } },
        el("summary", { text: "Labels of all tokens" }), labels);
      return el("section", {}, title, entities(answer, layer), below);
    });
    const remarks = [];
    if (answer.entropy?.length) remarks.push(`Entropy ${answer.entropy.map((h) => `${h.toFixed(2)}`).join(" → ")} nats.`);
    if (answer.kind !== "exact") remarks.push("Probabilities are approximate.");
    if (model.evidence) remarks.push(`${answer.layers.some((layer) => layer.spans) ? "Open the labels and choose" : "Choose"} a word to force or forbid a label.`);
    return {
      parts: [rulesHold(answer), ...sections, el("p", { class: "note", text: remarks.join(" ") }), bestLabels(answer)],
      drawn: draw,
    };
  }, about, model.evidence ? model.layers.map((layer) => rulesField(layer, many)) : []);
}

function rulesField(layer, many) {
  const label = layer.labels.find((name) => /^[BIES]-/.test(name))?.slice(2) ?? layer.labels[0];
  const extra = { placeholder: `AtMostOnce(${JSON.stringify(label)})`, spellcheck: "false", autocomplete: "off" };
  return [`rules:${many ? layer.name : ""}`, many ? `Rules of ${layer.name}` : "Rules", "text", "", extra];
}

const placeOf = (token, layer, many) => `${many ? layer.name : ""}:${token}`;

function openPicker(answer, layer, evidence, many) {
  const token = answer.words.findIndex((_, t) => evidence.open === placeOf(t, layer, many));
  if (token < 0) return null;
  const all = model.layers.find((one) => one.name === layer.name).labels;
  const known = new Map(layer.labels.map((label, row) => [label, layer.marginals[token][row]]));
  const options = all.map((label) => [label, label, known.get(label)]).sort((a, b) => (b[2] ?? -1) - (a[2] ?? -1));
  const key = placeOf(token, layer, many);
  const base = many ? { token, layer: layer.name } : { token };
  return picker(evidence, key, base, answer.words[token], options);
}

function trellis(answer, layer, n, evidence, many) {
  const head = answer.words.map((word, t) => {
    const key = placeOf(t, layer, many);
    const label = layer.path[t];
    const p = layer.marginals[t][layer.labels.indexOf(label)];
    const changed = layer.before && layer.before.path[t] !== label;
    const id = `word-${n}-${t}`;
    const content = model.evidence
      ? el("button", { type: "button", class: `word${evidence.places.has(key) ? " known" : ""}`, id, text: word,
          "aria-pressed": String(evidence.open === key), onclick: () => evidence.select(key, `#${id}`) })
      : el("span", { text: word });
    return el("th", { scope: "col" }, content,
      el("span", { class: `best-label${changed ? " changed" : ""}`, text: label }, el("small", { text: number(p) })));
  });
  const cells = layer.labels.map(() => []);
  const rows = layer.labels.map((label, row) => el("tr", {}, el("th", { scope: "row", text: label }),
    answer.words.map((word, t) => {
      const p = layer.marginals[t][row];
      const heat = el("i");
      heat.style.opacity = String(Math.pow(p, 0.7));
      const was = layer.before ? ` (was ${number(layer.before.marginals[t][row])})` : "";
      const key = placeOf(t, layer, many);
      const out = evidence.places.get(key)?.forbid?.includes(label);
      const cell = el("td", { class: `${p > 0.45 ? "strong" : ""}${out ? " out" : ""}`, title: `${word} ${label} ${number(p)}${was}` },
        heat, el("b", { text: out ? "×" : p >= 0.01 ? percent(p) : "" }));
      if (model.evidence) cell.addEventListener("click", () => evidence.select(key, `#word-${n}-${t}`));
      cells[row].push(cell);
      return cell;
    })));
  const over = svg("svg", { "aria-hidden": "true" });
  const inside = el("div", { class: "trellis" },
    el("table", { "aria-label": `Probabilities of each ${layer.name}` },
      el("thead", {}, el("tr", {}, el("td", { hidden: true }), el("th"), head)), el("tbody", {}, rows)), over);
  const draw = () => {
    const origin = inside.getBoundingClientRect();
    const points = (path) => path.map((label, t) => {
      const box = cells[layer.labels.indexOf(label)][t].getBoundingClientRect();
      const y = layer.labels.length > 1 ? box.bottom - 1 : box.top + box.height / 2; // one row: through the cells
      return [box.left - origin.left + box.width / 2, y - origin.top];
    });
    const line = (path, kind) => svg("polyline", { class: kind, points: points(path).map((xy) => xy.join(",")).join(" ") });
    over.setAttribute("width", origin.width);
    over.setAttribute("height", origin.height);
    over.replaceChildren(...(layer.before ? [line(layer.before.path, "old")] : []), line(layer.path, "path"),
      ...points(layer.path).map(([cx, cy]) => svg("circle", { class: "stop", cx, cy, r: 3 })));
  };
  return { root: el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Trellis" }, inside), draw };
}

// The sentence as running text, its spans in the color of their type.
function entities(answer, layer) {
  const all = model.layers.find((one) => one.name === layer.name).labels;
  const types = [...new Set(all.filter((label) => label !== "O").map((label) => label.slice(2)))].sort();
  const parts = [];
  let done = 0;
  for (const { type, start, stop, p } of layer.spans) {
    parts.push(`${answer.words.slice(done, start).join(" ")} `, el("mark", { class: `e${types.indexOf(type) % 6}`, title: number(p) },
      answer.words.slice(start, stop).join(" "), el("small", { text: `${type} ${Math.round(100 * p)} %` })), " ");
    done = stop;
  }
  return el("p", { class: "entities" }, parts, answer.words.slice(done).join(" "));
}

function bestLabels(answer) {
  if (!answer.best.length) return null;
  const first = answer.best[0].labels;
  return el("section", {}, el("h2", { text: "Most probable labelings" }), el("div", { class: "scroll" },
    el("table", { class: "list k", id: "best" }, el("thead", {}, el("tr", {}, el("th", { class: "number", text: "p" }), el("th"),
      answer.words.map((word) => el("th", { text: word })))),
    el("tbody", {}, answer.best.map((one) => el("tr", {}, el("td", { class: "number", text: number(one.p) }),
      el("td", { class: "bars" }, bar(one.p)),
      one.labels.map((label, t) => el("td", {}, el(label === first[t] ? "span" : "mark", { text: label })))))))));
}

// ---- text -----------------------------------------------------------------------------------------------------

function wordTable(rows, heading, choose) {
  const top = Math.max(...rows.map((row) => row[1] || 0), 1e-9);
  return el("table", { class: "list narrow" }, el("thead", {}, el("tr", {}, el("th", { text: "word" }), el("th"), el("th", { class: "number", text: heading }))),
    el("tbody", {}, rows.map(([word, p]) => el("tr", {},
      el("td", {}, choose ? el("button", { type: "button", class: "link", text: word, onclick: () => choose(word) }) : el("span", { text: word })),
      el("td", { class: "bars" }, bar((p || 0) / top)), el("td", { class: "number", text: number(p) })))));
}
const words = () => example().split(" ").filter(Boolean);

function fillView() {
  const start = words();
  if (start.length > 1) start[1] = "_";
  return view("fill", "Fill", "A sentence with one or more blanks, written _. The words on both sides are used.", 2, start.join(" "), [], async (values, api) => {
    const [answer] = await askTyped("fill", [values.text], { n: 12 }, true);
    const missing = answer.words.flatMap((word, t) => (isBlank(word) ? [t] : []));
    const blanks = answer.blanks.map((row, n) => ({ token: missing[n], words: row }));
    return [...blanks.map((blank) => el("section", {},
      el("p", {}, `${answer.words.slice(0, blank.token).join(" ")} `, el("span", { class: "blank", text: blank.words[0].word }), ` ${answer.words.slice(blank.token + 1).join(" ")}`),
      wordTable(blank.words.map((w) => [w.word, w.p]), "p(word | all others)", (word) => {
        api.text.value = answer.words.map((old, t) => (t === blank.token ? word : old)).join(" ");
        api.text.focus();
      })))];
  });
}

function nextView() {
  return view("next", "Predict", "The start of a sentence. Choose a word to continue with it.", 2, words().slice(0, 3).join(" "), [], async (values, api) => {
    const [answer] = await askTyped("next", [values.text], { n: 12 });
    return [wordTable(answer.next.map((w) => [w.word, w.p]), "p(word | words before)", (word) => {
      api.text.value = `${values.text.trim()} ${word}`;
      api.submit();
    }), el("p", { class: "note", text: `The sentence ends here with probability ${number(answer.end)}.` })];
  });
}

function scoreView() {
  const { any_word: any, kind, end } = model.score;
  return view("score", "Score", `One sentence per line.${any ? " A blank _ is any word." : ""}`, 4, example(), [], async (values) => {
    const answers = await askTyped("score", values.text.split("\n").filter((line) => line.trim()), {}, any);
    const remark = { exact: "Exact.", lower: "Lower bounds of log p; perplexities are upper bounds.", estimate: "Estimates." }[kind];
    const perplexity = (s) => (s.log_prob == null ? Infinity : Math.exp(-s.log_prob / (s.words.length + end)));
    return [el("div", { class: "scroll" }, el("table", { class: "list", id: "scores" },
      el("thead", {}, el("tr", {}, el("th", { text: "sentence" }), el("th", { class: "number", text: "log p" }), el("th", { class: "number", text: "perplexity" }))),
      el("tbody", {}, answers.map((s) => el("tr", {}, el("td", { text: s.words.join(" ") }),
        el("td", { class: "number", text: s.log_prob == null ? "impossible" : s.log_prob.toFixed(2) }), el("td", { class: "number", text: perplexity(s) < 1e300 ? perplexity(s).toFixed(1) : "–" })))))),
    el("p", { class: "note", text: `${remark} Perplexity is per token.` })];
  });
}

function sampleView() {
  const whole = (text) => (/^\d+$/.test(text) ? Number(text) : text);
  const fields = [["n", "sentences", "number", 8, { min: 1, max: 50 }], ["seed", "seed", "number", 0, { min: 0 }], ["length", "maximum length", "number", 30, { min: 2, max: 200 }]];
  return view("sample", "Sample", "The same seed gives the same sentences.", 0, "", fields, async (values, api) => {
    const seed = whole(values.seed);
    const [answer] = await ask("sample", { n: whole(values.n), seed, max_length: whole(values.length) });
    const again = el("button", { type: "button", id: "again", text: "Another seed", onclick: () => {
      api.form.elements.seed.value = String(seed + 1);
      api.submit();
    } });
    return [el("ul", { class: "sentences" }, answer.samples.map((s) => el("li", {}, s.words.map((word, t) =>
      el("span", {}, word, s.states ? el("small", { text: s.states[t] }) : null))))), el("p", {}, again)];
  });
}

function neighborsView() {
  return view("neighbors", "Look up", "Words with similar vectors.", 0, "", [["word", "word", "text", model.word, {}]], async (values, api) => {
    const [answer] = await ask("neighbors", { sentences: [[values.word.trim()]], n: 12 });
    return [wordTable(answer.neighbors.map((w) => [w.word, w.cosine]), "cosine", (word) => {
      api.form.elements.word.value = word;
      api.submit();
    })];
  });
}

// ---- the page -------------------------------------------------------------------------------------------------

const NAMES = { tag: "Tag", parse: "Parse", fill: "Fill a blank", next: "Next word", score: "Score", sample: "Sample", neighbors: "Neighbors" };
const VIEWS = { tag: tagView, parse: () => (model.constituents ? grammarView() : parseView()), fill: fillView, next: nextView, score: scoreView, sample: sampleView, neighbors: neighborsView };

// Names of the tabs: the posterior comes first, unless it is that of the states of a language model.
function tabNames() {
  const has = (name) => model.abilities.includes(name);
  const others = ["fill", "next", "score", "sample", "neighbors"].filter(has);
  if (!has("posterior")) return others;
  if (has("parse")) return ["parse", ...others];
  return has("tag") ? ["tag", ...others] : [...others, "tag"];
}

function start() {
  document.title = `${model.name || model.title} · trelliswork explore`;
  $("title").textContent = model.name ? `${model.title}: ${model.name}` : model.title;
  $("about").replaceChildren(...model.about.map(([name, value]) => el("li", {}, el("span", { text: name }), value)));
  $("parameters").replaceChildren(...Object.entries(model.parameters).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
  const views = new Map();
  const tabs = tabNames().map((ability) => el("button", { type: "button", role: "tab", id: `tab-${ability}`, text: NAMES[ability], onclick: () => show(ability) }));
  const show = (ability) => {
    const first = !views.has(ability);
    if (first) views.set(ability, VIEWS[ability]());
    const now = views.get(ability);
    for (const tab of tabs) {
      const chosen = tab.id === `tab-${ability}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    $("main").replaceChildren(now.root);
    if (first && (now.text ? now.text.value : true)) now.submit();
    else now.drawn();
  };
  $("tabs").replaceChildren(...tabs);
  $("tabs").hidden = tabs.length < 2;
  $("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
  window.addEventListener("resize", () => views.forEach((one) => one.root.isConnected && one.drawn()));
  show(tabNames()[0]);
}

function askKey(again) {
  const input = el("input", { type: "password", "aria-label": "API key", autocomplete: "off" });
  const form = el("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); key = input.value.trim(); open(); } },
    input, el("button", { class: "main", type: "submit", text: "Open" }), el("p", { class: "hint", text: "The service needs its API key." }));
  $("main").replaceChildren(form, ...(again ? [errorBox({ what: "This key is wrong." })] : []));
  input.focus();
}

async function open() {
  try {
    const names = (await send("/v1/models")).models.map((one) => one.name);
    const chosen = decodeURIComponent(location.hash.slice(1));
    model = await send(`/v1/models/${encodeURIComponent(names.includes(chosen) ? chosen : names[0])}`);
    $("models").hidden = names.length < 2;
    $("models").replaceChildren(...names.map((name) => el("a", { href: `#${encodeURIComponent(name)}`, "aria-current": name === model.name ? "page" : null, text: name })));
    start();
  } catch (error) {
    if (error.status === 401) askKey(key);
    else $("main").replaceChildren(errorBox(error.what ? error : { what: String(error) }));
  }
}

window.addEventListener("hashchange", () => location.reload());
open();
