// The labeling page: a client of /label/. Loaded after pieces.js; all text is shown by textContent and never executed.
"use strict";

let key = ""; // the API key, if the server needs one
let status = null; // progress, labels, curve
let now = null; // the sentence: sentence, words, labels (fixed, or null), same, answer
let at = 0; // first and last selected word
let to = 0;
let clicks = 0; // spent on this sentence
let asked = 0; // number of the last question, so that late answers are dropped
let busy = 0; // number of actions that are not done; they run one after another, so that no key is lost
let line = Promise.resolve();
const past = []; // states before each change, over all sentences
const future = [];

async function send(name, fields = {}) {
  const headers = { "content-type": "application/json", ...(key && { "x-api-key": key }) };
  let response;
  try {
    response = await fetch(`/label/${name}`, { method: "POST", headers, body: JSON.stringify(fields) });
  } catch {
    throw { what: "The server does not respond, so nothing more is saved.", expected: "trelliswork label to be running; try again then", got: "no connection" };
  }
  const answer = await response.json();
  if (!response.ok) throw { ...answer.error, status: response.status };
  return answer;
}
const who = () => $("who").value.trim();
const spansTask = () => status.task === "spans";
const threshold = () => Number($("threshold").value) || 0.9;
const kindOf = (label) => (label == null ? null : spansTask() ? (label === "O" ? null : label.slice(2)) : label);
const color = (kind) => `e${Math.max(0, status.labels.indexOf(kind)) % 6}`;

function attempt(work) {
  return (...given) => {
    busy += 1;
    line = line.then(async () => {
      try {
        await work(...given);
        $("error").replaceChildren();
      } catch (error) {
        if (error.status === 401) askKey();
        else $("error").replaceChildren(errorBox(error.what ? error : { what: String(error) }));
      } finally {
        busy -= 1;
      }
    });
    return line;
  };
}

// ---- changes --------------------------------------------------------------------------------------------------

const copy = () => ({ sentence: now.sentence, labels: [...now.labels], same: [...now.same], clicks });
function remember() {
  past.push(copy());
  future.length = 0;
}

async function decode() {
  const mine = ++asked;
  const answer = await send("decode", { sentence: now.sentence, labels: now.labels });
  if (mine === asked) { now.answer = answer; draw(); }
}

// The span of the answer around a word; the word alone in the task of tags.
function around(t) {
  const span = spansTask() && now.answer.spans.find((one) => one.start <= t && t < one.stop);
  return span ? [span.start, span.stop - 1] : [t, t];
}

// A span that loses some of its words to another one keeps no half: what remains of it is open again.
function open(first, last) {
  const label = (t) => now.labels[t] || "O";
  if (!spansTask()) return;
  let a = first;
  let b = last + 1;
  if (label(a).startsWith("I-")) while (a > 0 && label(a).startsWith("I-")) a -= 1;
  while (b < now.words.length && label(b).startsWith("I-")) b += 1;
  for (let t = a; t < b; t += 1) { now.labels[t] = null; now.same[t] = false; }
}

function setLabel(kind) {
  if (!now) return;
  let [first, last] = [Math.min(at, to), Math.max(at, to)];
  if (first === last) [first, last] = around(first);
  remember();
  clicks += 1;
  open(first, last);
  for (let t = first; t <= last; t += 1) {
    now.labels[t] = kind === null ? (spansTask() ? "O" : null) : spansTask() ? `${t === first ? "B" : "I"}-${kind}` : kind;
    now.same[t] = false;
  }
  at = to = last;
  return decode();
}

function setOne(label) { // an alternative of the selected word
  const kind = kindOf(label);
  if (!spansTask() || kind === null) return setLabel(kind);
  if (at !== to || !label.startsWith("I-")) return setLabel(kind);
  at = at > 0 && kindOf(now.answer.labels[at - 1]) === kind ? around(at - 1)[0] : at; // the span grows by this word
  return setLabel(kind);
}

function acceptSure() {
  const sure = threshold();
  remember();
  clicks += 1;
  const { labels, p, spans } = now.answer;
  const whole = new Map();
  for (const span of spans) for (let t = span.start; t < span.stop; t += 1) whole.set(t, span.p);
  labels.forEach((label, t) => {
    if (now.labels[t] === null && (whole.get(t) ?? p[t] ?? 0) >= sure) now.labels[t] = label;
  });
  return decode();
}

// New figures of the server; labels that were typed here and are not used yet stay.
function merge(fresh) {
  const own = (status?.labels || []).filter((label) => !fresh.labels.includes(label));
  status = { ...fresh, labels: [...fresh.labels, ...own] };
}

async function save(state) {
  const labels = state === "done" ? now.answer.labels : now.labels.map((label, t) => (now.same[t] ? null : label));
  if (state === "done" && labels.includes(null)) throw { what: "Some words have no label yet. Label them, or save only what you fixed." };
  remember();
  const sentence = now.sentence;
  try {
    merge(await send("save", { sentence, labels, state, who: who(), clicks: clicks + 1 }));
  } catch (error) {
    past.pop();
    throw error;
  }
  $("state").dataset.saved = `Sentence ${sentence + 1} is saved.`;
  await next();
}

async function show(found, labels) {
  now = found.sentence === null ? null : found;
  clicks = 0;
  if (now && labels) {
    Object.assign(now, { labels: [...labels.labels], same: [...labels.same] });
    clicks = labels.clicks;
    now.answer = await send("decode", { sentence: now.sentence, labels: now.labels });
  }
  at = to = now ? firstUnsure() : 0;
  asked += 1;
  draw();
  refresh();
}
const firstUnsure = () => Math.max(0, now.labels.findIndex((label, t) => label === null && (now.answer.p[t] ?? 0) < threshold()));
const next = async () => show(await send("next", { who: who() }));
const go = async (sentence, token) => {
  if (now) remember();
  await show(await send("sentence", { sentence }));
  if (token != null) { at = to = token; draw(); }
};

async function travel(from, onto) {
  if (!from.length) return;
  if (now) onto.push(copy());
  const state = from.pop();
  if (now && state.sentence === now.sentence) {
    Object.assign(now, { labels: [...state.labels], same: [...state.same] });
    clicks = state.clicks;
    await decode();
  } else await show(await send("sentence", { sentence: state.sentence }), state);
}

// ---- drawing --------------------------------------------------------------------------------------------------

function draw() {
  $("work").hidden = !now;
  $("finished").hidden = Boolean(now);
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  if (!now) return;
  const { words, labels, same, answer } = now;
  const [low, high] = [Math.min(at, to), Math.max(at, to)];
  const starts = new Map(answer.spans.map((span) => [span.start, span]));
  $("sentence").className = status.task;
  $("sentence").replaceChildren(...words.map((word, t) => {
    const label = answer.labels[t];
    const kind = kindOf(label);
    const first = !spansTask() || !(label || "").startsWith("I-");
    const last = !spansTask() || !(answer.labels[t + 1] || "").startsWith("I-");
    const fixed = labels[t] !== null;
    const unsure = !fixed && answer.p[t] !== null && answer.p[t] < threshold();
    const classes = ["word", kind && "in", kind && color(kind), first && "first", last && "last", fixed && "fixed", unsure && "unsure",
      same[t] && "same", t >= low && t <= high && "selected"].filter(Boolean).join(" ");
    const p = spansTask() ? starts.get(t)?.p : answer.p[t];
    const sure = fixed ? (same[t] ? " =" : "") : p == null ? "" : ` ${percent(p)}`;
    const text = spansTask() ? (starts.has(t) ? kind + sure : unsure ? percent(answer.p[t]) : "") : (label || "?") + sure;
    const options = answer.options[t].map(([name, q]) => `${name} ${percent(q)}`).join("\n");
    return el("span", { class: classes, "data-t": t, title: options }, el("b", { text: word }), text ? el("small", { text }) : null);
  }));
  const shown = (answer.options[high] || []).filter(() => low === high);
  $("options").replaceChildren(...(shown.length ? [el("span", { text: words[high] })] : []), ...shown.map(([label, p]) =>
    el("button", { type: "button", text: `${label} ${percent(p)}`, "aria-label": `${label} for ${words[high]}`, onclick: attempt(() => setOne(label)) })));
  const keep = status.labels.map((label, k) => el("button", { type: "button", class: color(label), "data-label": label, onclick: attempt(() => setLabel(label)) },
    label, k < 9 ? el("kbd", { text: k + 1 }) : null));
  $("names").replaceChildren(...status.labels.map((label) => el("option", { value: label })));
  $("palette").replaceChildren(...keep, el("button", { type: "button", "data-label": "", onclick: attempt(() => setLabel(null)) },
    spansTask() ? "none" : "clear", el("kbd", { text: "0" })));
  const told = status.trouble ? `The model or the output waits: ${status.trouble}` : { done: "This sentence was labeled.", part: "This sentence was labeled in part.", skip: "This sentence was skipped." }[now.state];
  $("state").textContent = [$("state").dataset.saved, told || (status.model ? "" : "There is no model yet: it appears after a few sentences.")].filter(Boolean).join(" ");
  drawStatus();
}

function drawStatus() {
  const n = status.done + status.part;
  $("count").textContent = `${n} of ${status.sentences} labeled${status.skip ? `, ${status.skip} skipped` : ""}`;
  $("bar").style.width = `${(100 * n) / status.sentences}%`;
  const points = status.curve.filter((point) => point.value != null);
  const last = points.at(-1);
  const what = spansTask() ? "F1 of spans" : "Accuracy of labels";
  $("estimate").textContent = last
    ? `${what} ${(100 * last.value).toFixed(0)} % (95 % interval ${(100 * last.low).toFixed(0)} to ${(100 * last.high).toFixed(0)}), from ${last.held} held-out sentences drawn at random.`
    : "Known when a sentence drawn at random, one in five, has been labeled and the model is there.";
  $("curve").replaceChildren(...(points.length > 1 ? [chart(points)] : []));
  $("looks").hidden = !status.doubts.length;
  $("doubts").replaceChildren(...status.doubts.slice(0, 20).map((one) => el("li", {}, el("button", { type: "button", onclick: attempt(() => go(one.sentence, one.token)) },
    `${one.word}: ${one.label}`, el("small", { text: `model: ${one.model} ${percent(one.p)}, sentence ${one.sentence + 1}` })))));
}

function chart(points) {
  const [W, H, L, B] = [320, 130, 30, 20];
  const most = points.at(-1).answers;
  const least = points[0].answers;
  const x = (point) => L + ((W - L - 6) * (point.answers - least)) / Math.max(1, most - least);
  const y = (value) => 6 + (H - B - 6) * (1 - value);
  const path = (name, list) => list.map((point) => `${x(point).toFixed(1)},${y(point[name]).toFixed(1)}`);
  const band = [...path("high", points), ...path("low", [...points].reverse())].join(" ");
  const axis = [0, 0.5, 1].map((value) => [svg("line", { class: "axis", x1: L, x2: W - 6, y1: y(value), y2: y(value) }),
    svg("text", { x: L - 5, y: y(value) + 4, "text-anchor": "end" }, document.createTextNode(`${100 * value}`))]).flat();
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Estimated quality by number of labeled sentences" }, axis,
    svg("polygon", { class: "band", points: band }), svg("polyline", { class: "line", points: path("value", points).join(" ") }),
    svg("text", { x: L, y: H - 4 }, document.createTextNode(`${least}`)),
    svg("text", { x: W - 6, y: H - 4, "text-anchor": "end" }, document.createTextNode(`${most} sentences`)));
}

async function refresh() {
  try {
    const { sentences } = await send("list", { query: $("query").value });
    $("list").replaceChildren(...sentences.map((one) => el("li", {}, el("button", { type: "button", onclick: attempt(() => go(one.sentence)) },
      one.text, el("small", { text: [one.sentence + 1, one.state, one.kinds, one.who].filter(Boolean).join(" · ") })))));
  } catch { /* the next question says what is wrong */ }
}

// ---- keys and pointer -----------------------------------------------------------------------------------------

const actions = {
  save: attempt(() => save("done")), part: attempt(() => save("part")), skip: attempt(() => save("skip")), accept: attempt(acceptSure),
  undo: attempt(() => travel(past, future)), redo: attempt(() => travel(future, past)),
};

function move(step, extend) {
  to = Math.max(0, Math.min(now.words.length - 1, to + step));
  if (!extend) at = to;
  draw();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input") || (event.target.matches("button, summary") && [" ", "Enter"].includes(event.key));
  if (typing || !status || event.altKey) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((event.ctrlKey || event.metaKey) && !"zy".includes(name)) return;
  const wanted = name === "z" ? (event.shiftKey ? "redo" : "undo") : { y: "redo", ...(now && { a: "accept", s: "skip", Enter: event.shiftKey ? "part" : "save" }) }[name];
  if (wanted) actions[wanted]();
  else if (!now) return;
  else if (name === "/") $("new").focus();
  else if (name === "ArrowLeft") move(-1, event.shiftKey);
  else if (name === "ArrowRight") move(1, event.shiftKey);
  else if (["0", "Delete", "Backspace"].includes(name)) attempt(() => setLabel(null))();
  else if (/^[1-9]$/.test(name) && status.labels[name - 1]) attempt(() => setLabel(status.labels[name - 1]))();
  else return;
  event.preventDefault();
});

let dragging = false;
const wordAt = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".word");
$("sentence").addEventListener("pointerdown", (event) => {
  const word = wordAt(event);
  if (!word) return;
  dragging = true;
  to = Number(word.dataset.t);
  if (!event.shiftKey) at = to;
  document.activeElement?.blur?.();
  draw();
});
document.addEventListener("pointermove", (event) => {
  const word = dragging && wordAt(event);
  if (word && Number(word.dataset.t) !== to) { to = Number(word.dataset.t); draw(); }
});
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { dragging = false; });
for (const [name, run] of Object.entries(actions)) $(name).addEventListener("click", (event) => { run(); event.currentTarget.blur(); });
$("threshold").addEventListener("change", () => now && draw());
$("query").addEventListener("input", refresh);
$("who").addEventListener("change", () => localStorage.setItem("who", who()));
$("new").addEventListener("keydown", (event) => {
  const name = $("new").value.trim();
  if (event.key !== "Enter" || !name) return;
  if (/\s/.test(name)) { $("error").replaceChildren(errorBox({ what: "A label has no spaces." })); return; }
  if (!status.labels.includes(name)) status.labels.push(name);
  $("new").value = "";
  $("new").blur();
  attempt(() => setLabel(name))();
});
for (const button of document.querySelectorAll("[data-kind]")) button.addEventListener("click", attempt(async () => {
  const response = await fetch(`/label/export/${button.dataset.kind}`, { headers: key ? { "x-api-key": key } : {} });
  if (!response.ok) throw (await response.json()).error;
  const link = el("a", { href: URL.createObjectURL(await response.blob()), download: `labels.${button.dataset.kind}` });
  link.click();
  URL.revokeObjectURL(link.href);
}));

function askKey() {
  const input = el("input", { type: "password", "aria-label": "API key", autocomplete: "off" });
  $("error").replaceChildren(el("form", { class: "fields", onsubmit: (event) => { event.preventDefault(); key = input.value.trim(); start(); } },
    key ? "This key is wrong." : "The server needs its API key.", input, el("button", { class: "main", type: "submit", text: "Open" })));
  input.focus();
}

const start = attempt(async () => {
  $("who").value = localStorage.getItem("who") || `annotator-${Math.random().toString(36).slice(2, 6)}`;
  localStorage.setItem("who", who());
  merge(await send("status"));
  await next();
});
setInterval(async () => { // the model learns in the background
  if (!status || busy) return;
  try {
    const fresh = await send("status");
    if (busy) return;
    const changed = fresh.version !== status.version;
    merge(fresh);
    if (changed && now) await decode();
    else drawStatus();
  } catch { /* the next question says what is wrong */ }
}, 2000);
start();
