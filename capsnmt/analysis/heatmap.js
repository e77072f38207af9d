"use strict";
// Heat maps with a cursor, and what they need of the page. Texts are set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const LONGEST_LABEL = 14; // characters on an axis; the readout has the rest
const LINE = 18, NARROWEST = 5, LEGIBLE = 12, WIDEST = 22; // pixels of a cell

const most = (numbers) => Math.max(0, ...numbers);

function element(parent, name, attributes = {}, text = "") {
  const made = parent.namespaceURI === SVG || name === "svg"
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return parent.appendChild(made);
}

function shortened(text) {
  const characters = [...text];
  return characters.length > LONGEST_LABEL ? `${characters.slice(0, LONGEST_LABEL - 1).join("")}…` : text;
}

const pen = document.createElement("canvas").getContext("2d");

function width(text) {
  pen.font = `bold 11px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/*
 * A map:
 *   rows, columns          labels of the axes
 *   rowName, columnName    functions of an index: what the readout says
 *   value(row, column)     in units of 1 / unit, shown with so many digits
 *   words                  whether the columns are subwords
 *   square                 whether the cells are
 */
class HeatMap {
  // `moved` is called with row and column when the reader moves the cursor.
  constructor(root, moved) {
    this.title = root.querySelector("h4");
    this.area = root.querySelector(".map");
    this.readout = root.querySelector(".readout");
    this.details = root.querySelector("details");
    this.at = [0, 0];
    this.moved = moved;
    this.details.addEventListener("toggle", () => this.list());
    this.area.addEventListener("pointermove", (event) => {
      const cell = this.cellAt(event);
      if (cell) moved(...cell);
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("focus", () => moved(...this.at));
  }

  // Shows that there is no map.
  clear(name, reason) {
    this.map = null;
    this.title.textContent = name;
    this.area.replaceChildren();
    this.readout.textContent = `${name} ${reason}.`;
    this.area.hidden = this.details.hidden = true;
  }

  // Draws a map in which `highest` is darkest.
  show(name, label, map, highest) {
    this.map = map;
    this.cursor = null;
    this.title.textContent = name;
    this.readout.textContent = "";
    this.area.replaceChildren();
    this.area.hidden = this.details.hidden = false;
    this.area.setAttribute("aria-label", `${label} of ${name}`);
    const rows = map.rows.map(shortened), columns = map.columns.map(shortened);
    const x0 = Math.ceil(most(rows.map(width))) + 6;
    const y0 = map.words ? Math.ceil(most(columns.map(width))) + 6 : LINE;
    const fitting = Math.floor((this.area.clientWidth - x0 - 2) / columns.length);
    const w = Math.max(map.words ? LEGIBLE : NARROWEST, Math.min(WIDEST, fitting));
    const h = map.square ? w : LINE;
    this.size = { x0, y0, w, h };
    this.svg = element(this.area, "svg", {
      width: x0 + w * columns.length + 2, height: y0 + h * rows.length + 2, "aria-hidden": "true",
    });
    this.rowLabels = rows.map((text, r) => element(this.svg, "text", {
      x: x0 - 4, y: y0 + h * (r + 0.5), "text-anchor": "end", "dominant-baseline": "central",
    }, text));
    this.columnLabels = columns.map((text, c) => this.columnLabel(text, c));
    const cells = element(this.svg, "g", { class: "cells", "shape-rendering": "crispEdges" });
    rows.forEach((_, r) => columns.forEach((__, c) => {
      const value = map.value(r, c);
      if (value) {
        const opacity = (value / highest).toFixed(3);
        element(cells, "rect", { ...this.box(r, c), "fill-opacity": opacity });
      }
    }));
    element(this.svg, "rect", {
      class: "frame", x: x0, y: y0, width: w * columns.length, height: h * rows.length,
    });
    this.list();
  }

  box(r, c) {
    const { x0, y0, w, h } = this.size;
    return { x: x0 + w * c, y: y0 + h * r, width: w, height: h };
  }

  columnLabel(text, c) {
    const { x0, y0, w } = this.size;
    const x = x0 + w * (c + 0.5), y = y0 - 4;
    if (this.map.words) {
      const turned = { transform: `rotate(-90 ${x} ${y})`, "dominant-baseline": "central" };
      return element(this.svg, "text", { x, y, ...turned }, text);
    }
    // numbers must not touch: 1, then every multiple that leaves room
    const apart = Math.ceil(24 / w);
    const visible = c === 0 || ((c + 1) % apart === 0 && c + 1 > apart / 2 + 1);
    return element(this.svg, "text", { x, y, "text-anchor": "middle" }, visible ? text : "");
  }

  cellAt(event) {
    if (!this.map) return null;
    const box = this.svg.getBoundingClientRect();
    const { x0, y0, w, h } = this.size;
    const r = Math.floor((event.clientY - box.top - y0) / h);
    const c = Math.floor((event.clientX - box.left - x0) / w);
    return this.has(r, c) ? [r, c] : null;
  }

  has(r, c) {
    return r >= 0 && c >= 0 && r < this.map.rows.length && c < this.map.columns.length;
  }

  key(event) {
    const [row, column] = this.at, last = this.map.columns.length - 1;
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, last],
    }[event.key];
    if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const within = (i, end) => Math.min(Math.max(i, 0), end);
    this.moved(within(to[0], this.map.rows.length - 1), within(to[1], last));
    if (this.cursor) this.cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // Puts the cursor on a cell, if the map has it, and says its number.
  mark(r, c) {
    this.at = [r, c];
    if (!this.map) return;
    for (const label of this.area.querySelectorAll(".here")) label.classList.remove("here");
    if (this.cursor) this.cursor.remove();
    this.cursor = null;
    this.readout.textContent = "";
    if (!this.has(r, c)) return;
    const { value, unit, digits, rowName, columnName } = this.map;
    const number = (value(r, c) / unit).toFixed(digits);
    this.readout.textContent = `${rowName(r)} → ${columnName(c)}: ${number}`;
    this.rowLabels[r].classList.add("here");
    this.columnLabels[c].classList.add("here");
    this.cursor = element(this.svg, "rect", { class: "cursor", ...this.box(r, c) });
  }

  // Lists the numbers as a table, once the reader unfolds it.
  list() {
    const place = this.details.querySelector("div");
    place.replaceChildren();
    if (!this.details.open || !this.map) return;
    const { rows, columns, value, unit, digits } = this.map;
    const table = element(place, "table");
    const head = element(element(table, "thead"), "tr");
    element(head, "td");
    for (const label of columns) element(head, "th", { scope: "col", class: "number" }, label);
    const lines = element(table, "tbody");
    rows.forEach((label, r) => {
      const line = element(lines, "tr");
      element(line, "th", { scope: "row" }, label);
      columns.forEach((_, c) => {
        element(line, "td", { class: "number" }, (value(r, c) / unit).toFixed(digits));
      });
    });
  }
}
