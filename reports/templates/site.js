"use strict";
// Chooses and draws. Every figure is text that was written when the page was.
const packed = JSON.parse(document.getElementById("data").textContent);
// What repeats is written once: a number below zero is a place in `shared`.
const unpack = value => typeof value === "number" && value < 0 ? unpack(packed.shared[~value]) : Array.isArray(value) ? value.map(unpack)
  : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, unpack(inner)])) : value;
const data = unpack(packed.data);
const FIELDS = ["device", "norm", "variant", "dtype", "context", "shape", "run"];
const FIRST = ["device", "norm"];  // what stands beside the size; the rest is folded
const LABELS = { device: "device", beside: "beside it", norm: "norm", variant: "variant", dtype: "dtype", context: "context", shape: "measured sizes", run: "measured in" };
const NORMS = { rms: "RMSNorm", layer: "LayerNorm" };
const SIGNS = { faster: "▲", slower: "▼", same: "≈" };

const by = id => document.getElementById(id);
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--") || name === "left" || name === "width") element.style.setProperty(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined));
  return element;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

const read = row => Object.fromEntries(data.columns.map((name, place) => [name, row[place] ?? null]));
const points = data.runs.flatMap(run => run.groups.flatMap(group => group.cases.map(measured => ({
  device: run.device, norm: group.norm, variant: group.variant, dtype: group.dtype, context: group.context,
  shape: measured.shape, run: run.name, of: run, group, measured,
}))));
const published = (device, name) => data.published.find(run => run.device === device && run.name === name);
// A run in the usual context alone does not name it.
const severalContexts = run => run.groups.some(group => group.context !== run.groups[0].context);
const nameOf = device => data.devices.find(each => each.key === device).name;

let asked = {}, wanted = {};  // what the address names, and what is chosen
const lacking = point => FIELDS.filter(field => asked[field] && asked[field] !== point[field]);
// An address may name a run or a context alone: then the first case that has it is shown.
function readAddress() {
  asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  wanted = { ...asked };
  const first = points.find(point => !lacking(point).length);
  if (first && lacking(choose().point).length) for (const field of FIELDS) wanted[field] = first[field];
}
function unmet(point) {
  const names = lacking(point).map(field => `${field === "run" ? "run" : LABELS[field]} ${asked[field]}`);
  return names.length ? `No case here has all that the address asks for: left out is ${names.join(", ")}. This case is of run ${point.run}.` : "";
}
function pick(field, value) { asked = {}; wanted[field] = value; show(); }

function values(field, among) { return [...new Set(among.map(point => point[field]))]; }

// Shapes, the most elements first, as the pictures stand; of equal size the fewest columns first.
function bySize(among) {
  const shapes = new Map(among.map(point => [point.shape, point.measured]));
  const size = shape => shapes.get(shape).rows * shapes.get(shape).cols;
  return [...shapes.keys()].sort((a, b) => size(b) - size(a) || shapes.get(a).cols - shapes.get(b).cols);
}

// Each field offers what the fields before it leave; what was wanted stays wanted while it is not there.
function choose(device) {
  let left = points;
  const offered = {};
  for (const field of FIELDS) {
    offered[field] = values(field, left);
    const want = field === "device" && device ? device : wanted[field];
    const value = offered[field].includes(want) ? want : offered[field][0];
    if (field === "shape") offered.shape = bySize(left);
    left = left.filter(point => point[field] === value);
  }
  return { point: left[0], offered };
}

// The same case on another device, from the most important run that has it.
const besides = (point, device) => points.find(other => other.device === device
  && ["norm", "variant", "dtype", "context", "shape"].every(field => other[field] === point[field]));

// Rows and columns in any spelling: 4096x2048, 4096 × 2048, 4096 2048, 4,096 by 2,048.
function sizes(text) {
  const numbers = spelled => (spelled.match(/\d+/g) ?? []).map(Number);
  const joined = numbers(text.replace(/\b\d{1,3}(,\d{3})+\b/g, number => number.replaceAll(",", "")));
  return joined.length > 1 ? joined : numbers(text);
}
// Shows the case of that size on the chosen device and norm that has most of what else is chosen, or the nearest size.
function find(text) {
  const [rows, cols] = sizes(text);
  if (!rows || !cols) { by("unmet").textContent = "Write rows x columns, such as 4096x2048."; return; }
  const apart = ({ measured }) => Math.abs(Math.log(measured.rows / rows)) + Math.abs(Math.log(measured.cols / cols));
  const alike = point => FIELDS.filter(field => field !== "shape" && point[field] === current[field]).length;
  const [best] = points.filter(point => FIRST.every(field => point[field] === current[field]))
    .sort((a, b) => Boolean(apart(a)) - Boolean(apart(b)) || alike(b) - alike(a) || apart(a) - apart(b));
  const { beside } = wanted;
  asked = {};
  wanted = Object.fromEntries([...FIELDS.map(field => [field, best[field]]), ...(beside ? [["beside", beside]] : [])]);
  show();
  if (apart(best)) by("unmet").textContent = `${rows} x ${cols} was not measured here. The nearest size is shown: ${best.shape}.`;
}

const NAMES = { device: nameOf, norm: norm => NORMS[norm] };
function selector(field, options, value, names = text => text) {
  const select = el("select", { name: field, onchange: event => pick(field, event.target.value) },
    options.map(option => el("option", { value: option, selected: option === value }, names(option))));
  return el("label", {}, LABELS[field], select);
}

function controls(point, offered) {
  const focused = document.activeElement?.name, selectorOf = field => selector(field, offered[field], point[field], NAMES[field]);
  const folded = FIELDS.filter(field => !FIRST.includes(field) && (field !== "run" || offered.run.length > 1));
  const selectors = folded.map(selectorOf);
  if (data.devices.length > 1) {
    const others = data.devices.map(device => device.key).filter(device => device !== point.device);
    const value = others.includes(wanted.beside) ? wanted.beside : "";
    selectors.push(selector("beside", ["", ...others], value, device => device ? nameOf(device) : "nothing"));
  }
  by("first").replaceChildren(...FIRST.map(selectorOf));
  by("sizes").replaceChildren(...offered.shape.map(shape => el("option", { value: shape })));
  by("rest").lastChild.replaceChildren(...selectors);
  by("rest").firstChild.textContent = `more: ${folded.map(field => point[field]).join(", ")}`;
  if (focused) by("choose").elements[focused]?.focus();
}

const own = impl => ({ class: "c", "--own": data.colours[impl] ?? "#8c8c8c" });

function bar(us, low, high, longest, add) {
  const at = value => `${100 * Number(value) / longest}%`;
  return el("span", { class: "track", "aria-hidden": "true" },
    el("span", { class: "time", width: at(us) }),
    low && high ? el("span", { class: "whisker", left: at(low), width: `${100 * (Number(high) - Number(low)) / longest}%` }) : null,
    add ? el("span", { class: "add", left: at(add) }) : null);
}

// Right or wrong comes first, then the bits, then the time. What was wrong or ended stands below what has a time.
const PASSED = { ok: "yes", nondeterministic: "yes" };
const sameBits = row => row.status === "ok" ? "yes" : row.status !== "nondeterministic" ? "" : row.bits?.endsWith("new process") ? "not in a new process" : "no";
function withInterval(text) {
  const [value, interval] = (text ?? "").split(/ (?=\[)/);
  return [value, interval ? " " : null, interval ? el("span", { class: "interval" }, interval) : null];
}

function ranking(point) {
  const rows = point.measured.entries.map(read), timed = rows.filter(row => row.us), failed = rows.filter(row => !row.us && data.failed.includes(row.status));
  const add = point.measured.add_us, longest = 1.04 * Math.max(...timed.map(row => Number(row.us)), Number(add ?? 0));
  const line = (row, place) => el("tr", { class: row.standing + (place === 0 && row.standing === "ranked" ? " first" : "") },
    el("th", { scope: "row" }, row.impl,
      row.why?.startsWith("waits") ? el("span", { class: "badge" }, "waits for other kernels") : null,
      point.of.outside[row.impl] ? el("span", { class: "badge" }, "outside its purpose") : null,
      row.us && row.standing === "unranked" ? el("span", { class: "badge" }, "not ranked") : null),
    el("td", { class: PASSED[row.status] ? "" : "wrong" }, PASSED[row.status] ?? row.status),
    el("td", { class: row.status === "nondeterministic" ? "other-bits" : "" }, sameBits(row)),
    el("td", { class: "number" }, withInterval(row.us_low ? `${row.us} [${row.us_low}, ${row.us_high}]` : row.us)),
    el("td", { ...own(row.impl), class: "bar c" }, row.us ? bar(row.us, row.us_low, row.us_high, longest, add) : null),
    el("td", { class: "number" }, withInterval(row.speedup ?? (row.impl === point.of.baseline && row.standing === "ranked" ? "baseline" : ""))),
    el("td", { class: `verdict ${row.verdict ?? ""}`, "data-sign": SIGNS[row.verdict] ?? "" }, row.verdict ?? ""),
    el("td", { class: "number rate" }, row.gbps ?? ""),
    el("td", { class: "number rate" }, row.percent_of_add ?? ""));
  const heads = [["implementation", "text"], ["right", "text"], ["same bits", "text"], ["us [95 %]", "number"], ["", "bar"],
    ["speedup [95 %]", "number"], ["verdict", "text"], ["GB/s", "number rate"], ["% of add", "number rate"]];
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "ranking" }, el("table", { class: "ranking" },
    el("caption", {}, el("span", { class: "bar" }, add ? `Vertical line: an add of the same bytes, ${add} us. ` : ""), `Speedup: over ${point.of.baseline}.`),
    el("thead", {}, el("tr", {}, heads.map(([head, kind]) => el("th", { scope: "col", class: kind }, head)))),
    el("tbody", {}, [...timed, ...failed].map(line))));
}

function table(name, heads, rows, kinds = []) {
  const kind = place => kinds[place] ?? "text";
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, el("table", { class: "facts" },
    el("thead", {}, el("tr", {}, heads.map((head, place) => el("th", { scope: "col", class: kind(place) }, head)))),
    el("tbody", {}, rows.map(row => el("tr", {}, row.map((cell, place) => place === 0
      ? el("th", { scope: "row" }, cell) : el("td", { class: kind(place) }, cell)))))));
}

function others(point) {
  const why = row => [row.why, point.of.outside[row.impl]].filter(Boolean).join("; ");
  const rows = point.measured.entries.map(read).filter(row => !row.us || why(row));
  if (!rows.length) return null;
  return el("details", {}, el("summary", {}, `${rows.length} not ranked, refused or with a remark`),
    table("not ranked", ["implementation", "what", "why"], rows.map(row => [row.impl, row.us ? row.standing : row.status, why(row)])));
}

// Curves: GB/s against columns, a picture for sizes of equal elements or rows.
function bandwidth(point) {
  const cases = point.group.cases.filter(measured => measured.entries.some(row => read(row).gbps));
  if (!cases.length) return el("p", { class: "dim" }, "No bandwidth here: nothing ranks, or the time is that on the host.");
  const of = cases.map(measured => new Map(measured.entries.map(read).map(row => [row.impl, row.gbps])));
  const impls = [...new Set(of.flatMap(each => [...each.keys()]))].filter(impl => of.some(each => each.get(impl)));
  const heads = ["rows x columns", "add", ...impls];
  const rows = cases.map((measured, place) => [measured.shape, measured.add_gbps ?? "", ...impls.map(impl => of[place].get(impl) ?? "")]);
  return table("bandwidth in GB/s", heads, rows, heads.map((_, place) => place ? "number" : "text"));
}

function precision(point) {
  // What was checked does not depend on the context: it stands with the cold one.
  const cold = points.find(other => other.of === point.of && other.shape === point.shape && other.norm === point.norm
    && other.variant === point.variant && other.dtype === point.dtype) ?? point;
  const rows = cold.measured.entries.map(read).filter(row => row.rho);
  const { gradients } = cold.group;
  if (!rows.length) return el("p", { class: "dim" }, "Nothing was checked here.");
  return table("precision and determinism", ["implementation", ...gradients.map(name => `rho ${name}`), "class", "bits from run to run"],
    rows.map(row => [row.impl, ...row.rho.map(text => text ?? "-"), row.class ?? "-", row.bits ?? "-"]), ["text", ...gradients.map(() => "number")]);
}

function verified(point) {
  const measured = data.devices.find(device => device.key === point.device).verified.find(each => each.norm === point.norm);
  if (!measured) return null;
  return el("details", {}, el("summary", {}, `On every kind of inputs (${measured.cases} cases of ${measured.norm})`),
    table("on every kind of inputs", measured.heads, measured.rows, measured.heads.map((_, place) => place && /^\d/.test(measured.rows[0][place]) ? "number" : "text")));
}

// What holds for a whole run stands once, with the run; a case says that there is something, and leads there.
function warned(run, stale) {
  const words = [stale ? "stale" : null, run.caveats.length ? `${run.caveats.length} ${run.caveats.length > 1 ? "warnings" : "warning"}` : null].filter(Boolean);
  if (!words.length) return null;
  const lead = () => { const row = by(idOf(run)); row.scrollIntoView({ block: "center" }); row.focus({ preventScroll: true }); };
  return el("p", { class: stale ? "stale" : "caveat" }, "Run ", el("strong", {}, run.name), `: ${words.join(", ")}. `,
    el("button", { type: "button", class: "lead", onclick: lead }, "Read why"));
}

function panel(point, several) {
  const run = point.of, { stale } = published(point.device, run.name);
  return el("article", { class: "panel", "data-device": point.device },
    several ? el("h3", {}, nameOf(point.device)) : null,
    el("p", { class: "answer" }, point.measured.answer),
    warned(run, stale),
    ranking(point),
    el("p", { class: "dim" }, `${point.measured.band}. ${run.budget}`),
    others(point),
    el("details", {}, el("summary", {}, "Bandwidth by size"), bandwidth(point)),
    el("h3", {}, "Precision and determinism"), precision(point), verified(point),
    el("details", {}, el("summary", {}, `Conditions of ${run.name}, ${run.date}`), el("p", {}, links(published(point.device, run.name))), el("dl", {}, run.conditions.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))));
}

function absent(device) {
  return el("article", { class: "panel" }, el("h3", {}, nameOf(device)), el("p", { class: "answer" }, "This case was not measured there."));
}

let current = null;
function show(focus) {
  const { point, offered } = choose();
  current = point;
  controls(point, offered);
  const beside = data.devices.some(device => device.key === wanted.beside) && wanted.beside !== point.device ? wanted.beside : null;
  const other = beside && besides(point, beside);
  const kept = Object.fromEntries(FIELDS.filter(field => field !== "run" || offered.run.length > 1).map(field => [field, point[field]]));
  history.replaceState(null, "", `#${new URLSearchParams(beside ? { ...kept, beside } : kept)}`);
  const context = severalContexts(point.of) || point.context !== "cold" ? point.context : null;
  by("case").textContent = [`${NORMS[point.norm]} backward`, point.shape, point.dtype, point.variant, context].filter(text => text && text !== "plain").join(", ") + ` on ${[point.device, ...(beside ? [beside] : [])].map(nameOf).join(" and ")}`;
  document.title = `${by("case").textContent} - normbwd`;
  const open = [...by("panels").querySelectorAll("details")].map(each => [each.open, each.querySelector("summary").textContent.split(" ")[0]]).filter(([is]) => is).map(([, word]) => word);
  by("apart").hidden = !beside;
  by("unmet").textContent = unmet(point);
  by("panels").replaceChildren(panel(point, Boolean(beside)), ...(beside ? [other ? panel(other, true) : absent(beside)] : []));
  for (const each of by("panels").querySelectorAll("details")) each.open = open.includes(each.querySelector("summary").textContent.split(" ")[0]);
  by("again").replaceChildren(...point.of.command.split(/(?<=[ ,])/).map(word => el("span", {}, word)));  // no line ends inside a word
  by("copied").textContent = "";
  if (focus) document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
}

// What stands between backticks is code.
const marked = text => text.split("`").map((part, place) => place % 2 ? el("code", {}, part) : part);

// The files of the checkout: beside the page, or in the repository that publishes it by GitHub Pages.
const [, owner] = location.hostname.match(/^([\w-]+)\.github\.io$/) ?? [];
const home = owner ? `https://github.com/${owner}/${location.pathname.split("/")[1] || location.hostname}/blob/main/` : "../";
const idOf = run => `run-${run.device}-${run.name}`;
const links = run => [run.file, ...run.pages].flatMap((path, place) => [place ? " " : null, el("a", { href: home + path }, path.split("/").at(-1))]);
for (const link of document.querySelectorAll("a[data-path]")) link.href = home + link.dataset.path;

function runs() {
  const several = data.devices.length > 1, on = (run, cells) => several ? [nameOf(run.device), ...cells] : cells;
  const first = several ? ["run", "device"] : ["run"];
  const caveats = run => data.runs.find(each => each.device === run.device && each.name === run.name)?.caveats ?? [];
  const rows = data.published.map(run => [el("span", { id: idOf(run), tabindex: -1 }, run.name), ...on(run, [
    [...marked(run.about), el("span", { class: "files" }, links(run))],
    run.date,
    [run.age, ...caveats(run).map(caveat => el("p", { class: "caveat" }, caveat))]])]);
  by("runs").append(table("published runs", [...first, "what", "date", "revision and age"], rows));
  by("runs").append(...Object.entries(data.planned).filter(([, names]) => names).map(([device, names]) => el("p", {}, `Not measured on ${device}: ${names}.`)));
}

by("choose").addEventListener("submit", event => { event.preventDefault(); find(event.target.elements.namedItem("size").value); });
by("copy").addEventListener("click", async () => {
  const range = document.createRange();
  range.selectNodeContents(by("again"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  try { await navigator.clipboard.writeText(by("again").textContent); by("copied").textContent = "copied"; } catch { by("copied").textContent = "selected"; }
});
addEventListener("hashchange", () => { readAddress(); show(); });
document.querySelector("main").hidden = false;
by("without").hidden = true;
runs();
readAddress();
show();
