// Parts of all views: elements, forms, and evidence. All input and all answers are shown by textContent and never executed.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function number(p) {
  if (p == null) return "–";
  if (p !== 0 && Math.abs(p) < 0.001) return p.toExponential(1);
  return p.toFixed(3);
}
const percent = (p) => (p >= 0.995 ? "1" : p.toFixed(2).replace(/^0/, ""));

function bar(p) {
  const inside = el("i");
  inside.style.width = `${100 * Math.max(0, Math.min(1, p || 0))}%`;
  inside.hidden = !p;
  return el("span", { class: "bar" }, inside);
}

function errorBox(error) {
  const details = error.expected ? el("small", { text: `Expected ${error.expected}, got: ${error.got}.` }) : null;
  return el("div", { class: "error", role: "alert" }, el("span", { text: error.what || String(error) }), details);
}
const notes = (answer) => (answer.notes || []).map((text) => el("p", { class: "note", text }));

// A form with a text field and a place for the answer; `run` returns the elements to show.
function view(ability, label, hint, rows, value, fields, run) {
  const result = el("div", { class: "result", "aria-live": "polite" });
  const text = rows ? el("textarea", { rows, name: "text", "aria-label": "Text", spellcheck: "false" }) : null;
  if (text) text.value = value;
  const button = el("button", { class: "main", type: "submit", text: label });
  const inputs = fields.map(([name, about, type, start, extra]) =>
    el("label", { class: "field" }, about, el("input", { name, type, value: start, ...extra })));
  const form = el("form", { class: "ask", novalidate: true },
    text || el("div", { class: "fields" }, inputs), button, text ? inputs : [], el("p", { class: "hint", text: hint }));
  let latest = 0;
  async function submit() {
    const mine = ++latest;
    button.setAttribute("aria-busy", "true");
    result.setAttribute("aria-busy", "true");
    let shown;
    try {
      const values = Object.fromEntries([...form.elements].filter((e) => e.name).map((e) => [e.name, e.value]));
      shown = await run(values, api);
    } catch (error) {
      shown = [errorBox(error)];
    }
    if (mine !== latest) return; // a newer request is running
    button.removeAttribute("aria-busy");
    result.removeAttribute("aria-busy");
    result.replaceChildren(...[shown].flat().filter(Boolean));
    api.drawn();
  }
  const api = { submit, form, text, result, drawn: () => {} };
  form.addEventListener("submit", (event) => { event.preventDefault(); api.fresh?.(); submit(); });
  text?.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && rows < 3) { event.preventDefault(); form.requestSubmit(); }
  });
  return Object.assign(api, { root: el("div", { id: `panel-${ability}`, role: "tabpanel" }, form, result) });
}

// ---- evidence -------------------------------------------------------------------------------------------------

// Evidence by place: the entries that are sent. `redo` sends the request again.
class Evidence {
  constructor(redo) { this.places = new Map(); this.redo = redo; this.open = null; }
  get entries() { return [...this.places.values()]; }
  clear() { this.places.clear(); this.open = null; }
  set(key, entry) {
    if (entry) this.places.set(key, entry);
    else this.places.delete(key);
    this.redo();
  }
  force(key, base, value) {
    this.set(key, this.places.get(key)?.force === value ? null : { ...base, force: value });
  }
  forbid(key, base, value) {
    const before = this.places.get(key)?.forbid || [];
    const forbid = before.includes(value) ? before.filter((other) => other !== value) : [...before, value];
    this.set(key, forbid.length ? { ...base, forbid } : null);
  }
  bar(answer, describe) {
    if (!this.places.size) return null;
    const chips = [...this.places].map(([key, entry]) =>
      el("button", { class: "chip", type: "button", title: "Remove", text: describe(entry), onclick: () => this.set(key, null) }));
    const about = answer.evidence;
    const how = about && { exact: "", estimate: " (an estimate)", lower: " (within the beam)" }[about.kind];
    const summary = about && about.p > 0
      ? el("p", {}, "Probability of this evidence: ", el("strong", { id: "evidence-p", text: number(about.p) }), `${how}.`)
      : el("p", {}, "Probability of this evidence: ", el("strong", { id: "evidence-p", text: "0" }), ". The model had ruled it out; it is used nevertheless.");
    return el("div", { class: "given", id: "given" }, chips, summary,
      el("button", { type: "button", id: "reset", text: "Reset", onclick: () => { this.clear(); this.redo(); } }));
  }
}

// List of values for one place: options are [value, name, p].
function picker(evidence, key, base, title, options) {
  const entry = evidence.places.get(key);
  const list = el("ul", { id: "options" });
  const choice = (word, name, pressed, act) => {
    const about = `${word} ${name}`;
    return el("button", { type: "button", text: word, "aria-pressed": String(pressed), "aria-label": about, onclick: () => {
      evidence.focus = `#picker button[aria-label="${CSS.escape(about)}"]`;
      act();
    } });
  };
  const show = (typed) => list.replaceChildren(...options
    .filter(([, name]) => name.toLowerCase().includes(typed.toLowerCase())).slice(0, 200)
    .map(([value, name, p]) => el("li", {},
      el("span", { text: name, title: name }), bar(p), el("span", { class: "number", text: p == null ? "< .01" : number(p) }),
      choice("Force", name, entry?.force === value, () => evidence.force(key, base, value)),
      choice("Forbid", name, !!entry?.forbid?.includes(value), () => evidence.forbid(key, base, value)))));
  show("");
  const search = options.length > 14
    ? el("input", { type: "search", placeholder: "Search …", "aria-label": "Search", oninput: (e) => show(e.target.value) }) : null;
  const box = el("section", { class: "picker", id: "picker", "aria-label": title },
    el("header", {}, el("h2", { text: title }),
      el("button", { type: "button", class: "link", text: "Close", onclick: () => close() })), search, list);
  const close = () => { evidence.open = null; evidence.repaint(); };
  box.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  return box;
}

// What the fields of rules hold, as the service takes it: for several layers an object.
function rulesOf(values) {
  const given = Object.entries(values).filter(([name, typed]) => name.startsWith("rules") && typed.trim());
  if (!given.length) return {};
  const named = Object.fromEntries(given.map(([name, typed]) => [name.slice("rules:".length), typed]));
  return { rules: "" in named ? named[""] : named };
}

function rulesHold(answer) {
  const p = answer.rules_probability;
  if (p == null) return null;
  return el("p", { class: "given", id: "rules-hold" }, "Probability that the rules hold: ",
    el("strong", { id: "rules-p", text: number(p) }), { upper: " (at most)", estimate: " (an estimate)" }[answer.kind] ?? "",
    ". All that follows is given that they do.");
}

// A view whose request can be repeated with evidence. `encode(entries, n)` returns the field for a sentence of n words,
// `shape(now, before, entries)` the answer for `paint(answer, evidence)`, which returns the parts to show. `inputs` are
// more fields of the form: those of rules.
function evidenceView(name, label, fields, encode, shape, paint, describe, inputs = []) {
  let base = null; // the typed text and the answer without evidence
  let last = null;
  const panel = view(name, label, hint(), 2, example(), inputs, async (values) => {
    const { entries } = evidence;
    const rules = rulesOf(values);
    const asked = JSON.stringify([values.text, rules]);
    const query = async (more) => (await askTyped("posterior", [values.text], { ...fields, ...rules, ...more }))[0];
    if (!entries.length || base?.asked !== asked) base = { asked, answer: await query({}) };
    const now = entries.length ? await query({ evidence: encode(entries, base.answer.words.length) }) : base.answer;
    last = shape(now, entries.length ? base.answer : null, entries);
    return parts();
  });
  const parts = () => {
    const painted = paint(last, evidence);
    panel.drawn = painted.drawn || (() => {});
    return [evidence.bar(last, (entry) => describe(last, entry)), ...painted.parts, ...notes(last)];
  };
  const evidence = new Evidence(() => panel.submit().then(focus));
  const focus = () => evidence.focus && panel.result.querySelector(evidence.focus)?.focus();
  evidence.repaint = () => {
    panel.result.replaceChildren(...parts().filter(Boolean));
    panel.drawn();
    focus();
    if (evidence.open != null) $("picker")?.scrollIntoView({ block: "nearest" });
  };
  evidence.select = (key, selector) => {
    evidence.focus = selector;
    evidence.open = evidence.open === key ? null : key;
    evidence.repaint();
  };
  panel.fresh = () => { evidence.clear(); evidence.focus = null; };
  return panel;
}
