"use strict";
function key(row, column, numeric) {
  const cell = row.cells[column], text = cell.dataset.key ?? (cell.querySelector("summary") ?? cell).textContent;
  if (!numeric) return text;
  const number = Number.parseFloat(text === "inf" ? "Infinity" : text);
  return Number.isNaN(number) ? null : number;
}
function sort(table, original, head, column) {
  const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
  const numeric = head.dataset.kind === "number", sign = direction === "ascending" ? 1 : -1;
  const rows = [...original].sort((one, other) => {
    const a = key(one, column, numeric), b = key(other, column, numeric);
    if (a === null || b === null) return (a === null) - (b === null);  // what has no figure comes last, both ways
    if (numeric) return a === b ? 0 : sign * (a < b ? -1 : 1);  // a difference of two infinities is no number
    return sign * a.localeCompare(b, "en", { numeric: true });
  });
  table.tBodies[0].append(...rows);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const original = [...table.tBodies[0].rows];
  [...table.tHead.rows[0].cells].forEach((head, column) =>
    head.querySelector("button")?.addEventListener("click", () => sort(table, original, head, column)));
}
const form = document.getElementById("filters"), marked = document.querySelectorAll("[data-norm], [data-impl], [data-case]");
const counted = [...document.querySelectorAll("tbody > tr:is([data-norm], [data-impl], [data-case])")];
function filter() {
  const checked = name => new Set([...form.elements].filter(e => e.name === name && e.checked).map(e => e.value));
  const norms = checked("norm"), impls = checked("impl"), text = form.elements["case"].value.trim().toLowerCase();
  const absent = form.elements["absent"]?.checked ?? true;
  for (const element of marked) {
    const { norm, impl, case: name, standing } = element.dataset;
    element.hidden = (norm !== undefined && !norms.has(norm)) || (impl !== undefined && !impls.has(impl))
      || (name !== undefined && !name.toLowerCase().includes(text)) || (standing === "absent" && !absent);
  }
  const shown = counted.filter(row => !row.closest("[hidden]")).length;
  document.getElementById("count").textContent = `${shown} of ${counted.length} rows`;
}
form.addEventListener("input", filter);
for (const link of document.querySelectorAll("#cases a")) link.addEventListener("click", () => {
  form.elements["case"].value = link.textContent;
  filter();
});
form.addEventListener("submit", event => event.preventDefault());
form.hidden = false;  // without scripts it could do nothing
filter();
