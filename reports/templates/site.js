"use strict";
// Chooses and draws. Every figure is text that was written when the page was; a picture is drawn from that text.
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
const SVG = "http://www.w3.org/2000/svg";

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
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (name.startsWith("on")) element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The data as plain objects: what the page draws is what the buttons give away.
const read = row => Object.fromEntries(data.columns.map((name, place) => [name, row[place] ?? null]));
const points = data.runs.flatMap(run => run.groups.flatMap(group => group.cases.map(measured => ({
  device: run.device, norm: group.norm, variant: group.variant, dtype: group.dtype, context: group.context,
  shape: measured.shape, run: run.name, of: run, group, measured,
}))));
const published = (device, name) => data.published.find(run => run.device === device && run.name === name);
// A run in the usual context alone does not name it.
const severalContexts = run => run.groups.some(group => group.context !== run.groups[0].context);
const nameOf = device => data.devices.find(each => each.key === device).name;
const ageOf = run => ({ age: run.age, stale: run.stale ? run.age : null });
const exported = point => ({
  device: nameOf(point.device), ...Object.fromEntries(FIELDS.slice(1).map(name => [name, point[name]])),
  rows: point.measured.rows, columns: point.measured.cols, revision: point.of.revision, date: point.of.date, ...ageOf(published(point.device, point.run)),
  baseline: point.of.baseline, command: point.of.command, answer: point.measured.answer, add_us: point.measured.add_us,
  gradients: point.group.gradients, implementations: point.measured.entries.map(read),
});

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
const switched = new Map();  // curves that a reader switched on or off
const isDrawn = (point, impl) => switched.get(impl) ?? point.group.shown.includes(impl);

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

const styleOf = impl => data.styles[impl] ?? { colour: "#8c8c8c", marker: "o", dashes: "" };
const own = impl => ({ class: "c", "--own": styleOf(impl).colour });

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
const WIDTH = 360, HEIGHT = 250, LEFT = 42, RIGHT = 10, TOP = 18, BOTTOM = 34;
function marker(kind, x, y, size) {
  const [s, t] = [size, size * 0.4];
  const paths = {
    o: `M${x - s},${y}a${s},${s} 0 1 0 ${2 * s},0a${s},${s} 0 1 0 ${-2 * s},0`, s: `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    D: `M${x},${y - s * 1.2}L${x + s * 1.2},${y}L${x},${y + s * 1.2}L${x - s * 1.2},${y}z`, "^": `M${x},${y - s * 1.2}L${x + s * 1.1},${y + s}h${-2.2 * s}z`,
    v: `M${x},${y + s * 1.2}L${x + s * 1.1},${y - s}h${-2.2 * s}z`, P: `M${x - t},${y - s}h${2 * t}v${s - t}h${s - t}v${2 * t}h${t - s}v${s - t}h${-2 * t}v${t - s}h${t - s}v${-2 * t}h${s - t}z`,
    X: `M${x - s},${y - s * 0.6}l${s * 0.4},${-s * 0.4}l${s * 0.6},${s * 0.6}l${s * 0.6},${-s * 0.6}l${s * 0.4},${s * 0.4}l${-s * 0.6},${s * 0.6}l${s * 0.6},${s * 0.6}l${-s * 0.4},${s * 0.4}l${-s * 0.6},${-s * 0.6}l${-s * 0.6},${s * 0.6}l${-s * 0.4},${-s * 0.4}l${s * 0.6},${-s * 0.6}z`,
  };
  return paths[kind] ?? paths.o;
}
const coloured = (element, impl) => { element.style.setProperty("--own", styleOf(impl).colour); return element; };

function curvesOf(cases, run) {
  const curves = new Map();
  for (const measured of cases) for (const row of measured.entries.map(read)) if (row.gbps) {
    if (!curves.has(row.impl)) curves.set(row.impl, []);
    const scaled = us => us && row.gbps * row.us / us;
    curves.get(row.impl).push({ measured, at: measured[run.axis], gbps: row.gbps, low: scaled(row.us_high), high: scaled(row.us_low) });
  }
  return curves;
}

function picture(point, strip, cases, axis, top) {
  const at = [...new Set(cases.map(measured => measured[axis]))].sort((a, b) => a - b);
  const [first, last] = [Math.log2(at[0]), Math.log2(at.at(-1))], wide = WIDTH - LEFT - RIGHT, high = HEIGHT - TOP - BOTTOM;
  const x = value => LEFT + 14 + (wide - 28) * (last > first ? (Math.log2(value) - first) / (last - first) : 0.5);
  const y = value => TOP + high * (1 - Number(value) / top);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `GB/s against ${axis === "cols" ? "columns" : "rows"}, ${strip}; the figures stand in the table below` });
  const step = top > 4500 ? 2000 : top > 1800 ? 1000 : top > 900 ? 500 : top > 180 ? 100 : 10;
  for (let level = 0; level <= top; level += step) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(level), y2: y(level) }));
    svg.append(shape("text", { x: LEFT - 5, y: y(level) + 4, "text-anchor": "end" }, String(level)));
  }
  let end = -99;
  for (const value of at) {
    const chosen = cases.some(measured => measured === point.measured && measured[axis] === value);
    if (x(value) - end < 36 && !chosen) continue;
    if (chosen) svg.append(shape("line", { class: "here", x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM }));
    svg.append(shape("text", { x: x(value), y: HEIGHT - BOTTOM + 15, "text-anchor": "middle", class: chosen ? "here" : "" }, String(value)));
    end = x(value);
  }
  svg.append(shape("text", { x: LEFT, y: 11 }, "GB/s"), shape("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, axis === "cols" ? "columns" : "rows"));
  for (const [name, value] of point.of.levels) svg.append(shape("line", { class: "level", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), "stroke-dasharray": name === "datasheet" ? "2 2.5" : "7 3" }));
  const adds = cases.filter(measured => measured.add_gbps).map(measured => [x(measured[axis]), y(measured.add_gbps)]).sort((a, b) => a[0] - b[0]);
  svg.append(shape("polyline", { class: "add", points: adds.join(" ") }));
  for (const [impl, curve] of curvesOf(cases, { ...point.of, axis })) {
    if (!isDrawn(point, impl)) continue;
    curve.sort((a, b) => a.at - b.at);
    const group = coloured(shape("g", { class: "c" }), impl);
    const known = curve.filter(each => each.low && each.high);
    if (known.length > 1) group.append(shape("polygon", { class: "band", points: [...known.map(each => [x(each.at), y(each.high)]), ...[...known].reverse().map(each => [x(each.at), y(each.low)])].join(" ") }));
    group.append(shape("polyline", { class: "curve", "stroke-dasharray": styleOf(impl).dashes, points: curve.map(each => [x(each.at), y(each.gbps)]).join(" ") }));
    for (const each of curve) group.append(shape("path", { class: "mark", d: marker(styleOf(impl).marker, x(each.at), y(each.gbps), 3.4), onclick: () => pick("shape", each.measured.shape) },
      shape("title", {}, `${impl}, ${each.measured.shape}: ${each.gbps} GB/s`)));
    svg.append(group);
  }
  return el("figure", {}, el("figcaption", {}, strip), svg);
}

function swatch(impl) {
  const svg = coloured(shape("svg", { viewBox: "0 0 34 12", "aria-hidden": "true", class: "c" }), impl);
  svg.append(shape("line", { class: "curve", x1: 1, x2: 33, y1: 6, y2: 6, "stroke-dasharray": styleOf(impl).dashes }), shape("path", { class: "mark", d: marker(styleOf(impl).marker, 17, 6, 4) }));
  return svg;
}
function line(kind, dashes) {
  const svg = shape("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" });
  svg.append(shape("line", { class: kind, x1: 1, x2: 33, y1: 6, y2: 6, "stroke-dasharray": dashes }));
  return svg;
}
function legend(point, impls) {
  const toggle = impl => event => { switched.set(impl, event.target.checked); show(`curve-${impl}`); };
  return el("fieldset", { class: "legend", "aria-label": "curves" },
    impls.map(impl => el("label", {}, el("input", { type: "checkbox", "data-focus": `curve-${impl}`, checked: isDrawn(point, impl), onchange: toggle(impl) }), swatch(impl), impl)),
    el("span", {}, line("add", ""), "same-traffic add"),
    point.of.levels.map(([name, value]) => el("span", {}, line("level", name === "datasheet" ? "2 2.5" : "7 3"), `${name}, ${value}`)));
}

function bandwidth(point) {
  const cases = point.group.cases.filter(measured => measured.strip), strips = new Map();
  for (const measured of cases) strips.set(measured.strip, [...(strips.get(measured.strip) ?? []), measured]);
  const drawn = [...strips].filter(([, of]) => of.length > 1);
  const axis = drawn.length ? "cols" : "rows";
  const panels = drawn.length ? drawn : new Set(cases.map(measured => measured.rows)).size > 1 ? [["all shapes", cases]] : [];
  if (!cases.some(measured => measured.entries.some(row => read(row).gbps))) return el("p", { class: "dim" }, "No bandwidth here: nothing ranks, or the time is that on the host.");
  if (!panels.length) return el("p", { class: "dim" }, "One size alone: no curve.");
  const impls = [...curvesOf(cases, { ...point.of, axis }).keys()].sort((a, b) => point.group.shown.includes(b) - point.group.shown.includes(a));
  const highest = [...cases.flatMap(measured => [measured.add_gbps, ...measured.entries.map(row => read(row).gbps)]), ...point.of.levels.map(level => level[1])].filter(Boolean);
  const top = 1.03 * Math.max(...highest.map(Number));
  const heads = ["rows x columns", "add", ...impls];
  const rows = cases.map(measured => {
    const of = Object.fromEntries(measured.entries.map(read).map(row => [row.impl, row.gbps]));
    return [measured.shape, measured.add_gbps ?? "", ...impls.map(impl => of[impl] ?? "")];
  });
  return el("div", {}, legend(point, impls), el("div", { class: "charts" }, panels.map(([strip, of]) => picture(point, strip, of, axis, top))),
    el("details", {}, el("summary", {}, "These figures as a table"), table("bandwidth in GB/s", heads, rows, heads.map((_, place) => place ? "number" : "text"))));
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
    el("h3", {}, "Bandwidth against size"), bandwidth(point),
    el("h3", {}, "Precision and determinism"), precision(point), verified(point),
    el("details", {}, el("summary", {}, `Conditions of ${run.name}, ${run.date}`), el("p", {}, links(published(point.device, run.name))), el("dl", {}, run.conditions.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))));
}

function absent(device) {
  return el("article", { class: "panel" }, el("h3", {}, nameOf(device)), el("p", { class: "answer" }, "This case was not measured there."));
}

function give(name, object) {
  const address = URL.createObjectURL(new Blob([JSON.stringify(object, null, 1) + "\n"], { type: "application/json" }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
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
by("one").addEventListener("click", () => give("normbwd-case.json", exported(current)));
by("all").addEventListener("click", () => give("normbwd.json", points.map(exported)));
addEventListener("hashchange", () => { readAddress(); show(); });
document.querySelector("main").hidden = false;
by("without").hidden = true;
runs();
readAddress();
show();
