// The client of the service: typed text becomes requests, answers become what views show. Loaded after pieces.js.
"use strict";

let model = null; // facts about the model of the page
let key = ""; // the API key of the service, if it needs one

async function send(path, fields) {
  const headers = { ...(key && { "x-api-key": key }), ...(fields && { "content-type": "application/json" }) };
  let response;
  try {
    response = await fetch(path, fields ? { method: "POST", headers, body: JSON.stringify(fields) } : { headers });
  } catch {
    throw { what: "The server does not respond.", expected: "trelliswork explore to be running", got: "no connection" };
  }
  const answer = await response.json();
  if (!response.ok) throw { ...answer.error, status: response.status };
  return answer;
}
const ask = async (ability, fields) => (await send(`/v1/${encodeURIComponent(model.name)}/${ability}`, fields)).answers;

// ---- typed text -----------------------------------------------------------------------------------------------

function hint() {
  const { kind, columns } = model.form;
  const names = ["word", "tag", ...Array(Math.max(0, columns - 2)).fill("column")].join("/");
  return { words: model.raw ? "Any text." : "Words and punctuation marks separated by spaces.",
    columns: `Words separated by spaces, each with its columns: ${names}.`,
    attributes: "Tokens separated by spaces, each a list of attributes: one|two|three.",
    numbers: "Integers separated by spaces: this model reads numbers." }[kind];
}

function example() {
  const { kind, columns } = model.form;
  const typed = (token) => (!Array.isArray(token) ? token : kind === "attributes" ? token.join("|") : token.slice(0, columns).join("/"));
  return model.example.map(typed).join(" ");
}

const wordsOf = (line) => (model.form.lower ? line.toLowerCase() : line).split(/\s+/).filter(Boolean);
const isBlank = (word) => word === "_" || word === "___";

function token(word, t) {
  const { kind, columns } = model.form;
  const wrong = (expected) => ({ what: `word ${t + 1} of the sentence`, expected, got: word });
  if (kind === "attributes") return word.split("|");
  if (kind === "numbers") {
    if (!/^\d{1,9}$/.test(word)) throw wrong("an integer: the model reads numbers");
    return Number(word);
  }
  if (kind === "words") return word;
  const parts = word.split("/");
  const last = parts.splice(Math.max(0, parts.length - columns + 1));
  const all = [parts.join("/"), ...last];
  if (all.length !== columns || !all.every(Boolean)) throw wrong(`${columns} columns joined by /, such as ${["dog", "NN", ...Array(columns - 2).fill("x")].join("/")}`);
  return all;
}

// Answers to typed lines, with the words of each; with `blanks` a word _ is missing.
async function askTyped(ability, lines, fields = {}, blanks = false) {
  if (!lines.some((line) => line.trim())) throw { what: "The text", expected: "at least one word", got: "nothing" };
  const typed = lines.map(wordsOf);
  if (model.raw) {
    const text = blanks ? lines.map((line) => line.replace(/(^|\s)_(?=\s|$)/g, "$1___")) : lines;
    return ask(ability, { text, ...fields });
  }
  const sentences = typed.map((words) => words.map((word, t) => (blanks && isBlank(word) ? null : token(word, t))));
  const answers = await ask(ability, { sentences, ...fields });
  const shown = (own, n) => own.map((word, t) => (Array.isArray(own[t]) ? own[t][0] : typed[n][t]));
  return answers.map((answer, n) => ({ words: model.form.kind === "columns" ? shown(sentences[n], n) : typed[n], ...answer }));
}

// ---- answers --------------------------------------------------------------------------------------------------

const MOST_LABELS = 24; // rows of a trellis
const WORTH = 0.01; // labels that are less probable everywhere are left out

// Labels of a sentence and those without evidence as layers with the same rows; labels in the evidence are rows too.
function layersOf(now, before, entries) {
  const one = Array.isArray(now.labels);
  return model.layers.map(({ name, labels }) => {
    const of = (answer) => (one ? { path: answer.labels, rows: answer.marginals } : { path: answer.labels[name], rows: answer.marginals[name] });
    const views = (before ? [now, before] : [now]).map(of);
    const highest = new Map(labels.map((label) => [label, Math.max(...views.flatMap((v) => v.rows.map((row) => row[label] ?? 0)))]));
    const named = entries.filter((entry) => one || entry.layer === name).flatMap((entry) => entry.forbid ?? [entry.force]);
    const must = new Set([...named, ...views.flatMap((v) => v.path)]);
    const worth = [...labels].sort((a, b) => must.has(b) - must.has(a) || highest.get(b) - highest.get(a)).slice(0, Math.max(MOST_LABELS, must.size));
    const kept = new Set(worth.filter((label) => must.has(label) || highest.get(label) >= WORTH));
    const shown = labels.filter((label) => kept.has(label));
    const [mine, old] = views.map((v) => ({ path: v.path, marginals: v.rows.map((row) => shown.map((label) => row[label] ?? 0)) }));
    const found = one ? now.spans : now.spans?.[name];
    const spans = found?.map(({ type, tokens: [start, stop], probability: p }) => ({ type, start, stop, p }));
    return { name, labels: shown, ...mine, before: old ?? null, ...(spans && { spans }) };
  });
}

function labelsAnswer(now, before, entries) {
  const best = (now.labelings ?? []).map(({ labels, probability: p }) => ({ labels, p }));
  const entropy = [before?.entropy, now.entropy].filter((h) => h != null);
  return { ...now, entropy, best, layers: layersOf(now, before, entries) };
}

function arcsAnswer(now, before) {
  const arcsOf = (answer) => answer.heads.map((head, t) => ({ head, label: answer.labels[t], p: answer.probabilities[t] }));
  const heads = now.marginals.map((row) => Object.entries(row).map(([head, p]) => [Number(head), p]));
  const best = now.trees.map((tree) => ({ arcs: tree.heads.map((head, t) => [head, tree.labels[t]]), p: tree.probability }));
  return { ...now, arcs: arcsOf(now), heads, best, subtrees: now.subtree_probabilities, before: before && { arcs: arcsOf(before) } };
}

const treesAnswer = (now) => ({ ...now, best: now.trees.map(({ tree, probability: p }) => ({ tree, p })) });

// Evidence as the service takes it: for each token the values that are left.
function allowed(entries, n, valuesOf) {
  const rows = Array(n).fill(null);
  for (const { token: t, force, forbid } of entries) rows[t] = force != null ? [force] : valuesOf(t).filter((value) => !forbid.includes(value));
  return rows;
}
