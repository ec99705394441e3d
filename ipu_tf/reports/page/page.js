"use strict";
// Lists of the page: sorted, searched, and what is alive at an operation. The data are those of ipu_tf.reports.page.data.
const parts = JSON.parse(document.getElementById("data").textContent);
const MOST = 200; // entries of a list that are shown at once

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < 4; unit++) count /= 1024;
  return count.toFixed(unit ? 1 : 0) + " " + units[unit];
}
function number(count) {
  const units = ["", " k", " M", " G", " T"];
  let unit = 0;
  for (; count >= 1000 && unit < 4; unit++) count /= 1000;
  return (unit ? count.toFixed(1) : Math.round(count)) + units[unit];
}
function nameOf(part, place) {
  const scopes = [];
  for (; place >= 0; place = part.names[place][0]) scopes.unshift(part.names[place][1]);
  return scopes.join("/");
}
function element(tag, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return made;
}
// The first and last operation of a value as a bar.
function life(part, value) {
  const box = element("div"), bar = element("i"), all = part.operations.length;
  box.className = "life c" + value.kind;
  box.title = "alive from " + part.of + " " + value.first + " to " + value.last;
  bar.style.left = (100 * value.first / all) + "%";
  bar.style.width = Math.max(100 * (value.last + 1 - value.first) / all, 0.7) + "%";
  box.append(bar);
  return box;
}
const VALUES = [["name", e => e.name], ["category", e => e.category], ["bytes", e => e.bytes, bytes],
  ["first", e => e.first], ["last", e => e.last], ["alive", e => e.last - e.first, null]];
const OPERATIONS = [["name", e => e.name], ["number", e => e.index], ["bytes alive", e => e.total, bytes],
  ["of these inside", e => e.inside, bytes], ["FLOPs", e => e.flops, number], ["bytes accessed", e => e.accessed, bytes],
  ["times", e => e.trips === null ? -1 : e.trips, n => n < 0 ? "not known" : String(n)]];
const TICKS = [["tick and its tasks", e => e.name], ["number", e => e.index], ["bytes alive", e => e.total, bytes]];

class List {
  constructor(part, box, columns, entries, sorted) {
    Object.assign(this, {part, box, columns, entries, sorted, down: true, words: "", count: null});
    this.show();
  }
  show() {
    const of = this.columns[this.sorted][1], down = this.down ? -1 : 1;
    const found = this.entries.filter(e => (e.name + " " + (e.category || "")).toLowerCase().includes(this.words));
    found.sort((a, b) => { const x = of(a), y = of(b); return x < y ? -down : x > y ? down : 0; });
    if (this.count) this.count.textContent = found.length > MOST ? MOST + " of " + found.length : String(found.length);
    const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    this.columns.forEach(([name], place) => head.append(this.title(name, place)));
    for (const entry of found.slice(0, MOST)) {
      const line = body.insertRow();
      for (const [, value, text] of this.columns)
        text === null ? line.insertCell().append(life(this.part, entry)) :
          line.insertCell().append(text ? text(value(entry)) : String(value(entry)));
    }
    this.box.replaceChildren(table);
  }
  title(name, place) {
    const cell = element("th"), button = element("button", name);
    if (this.columns[place][2] === null) cell.style.textAlign = "left";
    if (place === this.sorted) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    button.onclick = () => {
      this.down = place === this.sorted ? !this.down : true;
      this.sorted = place;
      this.show();
      this.box.querySelectorAll("button")[place].focus();
    };
    cell.append(button);
    return cell;
  }
}

parts.forEach((part, at) => {
  if (!part.operations.length) return;
  const values = part.values.map(([name, kind, size, first, last]) =>
    ({name: nameOf(part, name), kind, category: part.categories[kind], bytes: size, first, last}));
  const operations = part.operations.map(([name, total, inside, flops, accessed, trips], index) =>
    ({name: nameOf(part, name), index, total, inside, flops, accessed, trips}));
  for (const [what, columns, entries] of [["values", VALUES, values], ["operations", part.of === "tick" ? TICKS : OPERATIONS, operations]]) {
    const list = new List(part, document.getElementById(what + "-" + at), columns, entries, 2);
    const input = document.querySelector(`[data-for=${what}-${at}]`);
    list.count = input.parentElement.nextElementSibling;
    input.oninput = () => { list.words = input.value.toLowerCase(); list.show(); };
    list.show();
  }
  const picture = document.querySelector(`.memory[data-part="${at}"]`), box = document.getElementById("alive-" + at);
  const cursor = picture.querySelector(".cursor"), left = +picture.dataset.left, width = +picture.dataset.width;
  let here = part.peak;
  function choose(index) {
    here = Math.min(Math.max(index, 0), operations.length - 1);
    const x = left + width * (here + 0.5) / operations.length, operation = operations[here];
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    const alive = values.filter(v => v.first <= here && here <= v.last && v.bytes);
    if (operation.inside) alive.push({name: "inside of the loop or branch", kind: part.categories.indexOf("temporaries"), category: "temporaries",
      bytes: operation.inside, first: here, last: here});
    const list = element("div"), title = element("h4", (part.of === "tick" ? `Alive at ${operation.name}` : `Alive at operation ${here}, ${operation.name}`) + `: ${bytes(operation.total)}`);
    list.className = "wide";
    box.replaceChildren(title, list);
    new List(part, list, VALUES, alive, 2);
  }
  picture.onclick = event => {
    const size = picture.getBoundingClientRect(), across = picture.viewBox.baseVal.width / size.width;
    choose(Math.floor(((event.clientX - size.left) * across - left) / width * operations.length));
  };
  picture.onkeydown = event => {
    const step = {ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -1e9, End: 1e9}[event.key];
    if (step === undefined) return;
    event.preventDefault();
    choose(here + step);
  };
  choose(part.peak);
});
