"use strict";
// The browser of sentences: the maps of two systems side by side, as shaded tables of numbers.
// Texts are set as text, never as markup.

(() => {
  const data = JSON.parse(document.getElementById("browser-data").textContent);
  const body = document.getElementById("browser-body");
  const LONGEST_OPTION = 60; // characters of a sentence in its menu
  const LONGEST_LABEL = 14; // of a subword beside a map; the readout has the rest
  const EXPLANATIONS = {
    weights: "How much each query (row) attends to each key (column). The query of the decoder at position i reads subword i - 1 and predicts subword i.",
    heads: "How each head (row) is shared among the output capsules (columns), mean over the tokens.",
    layers: "How each layer (row) is shared among the output capsules (columns), mean over the tokens.",
    vertical: "How each head (row) is shared among the query positions (columns).",
    horizontal: "The share of input position t (column) that the capsule of a head takes at position l (row), over t <= l.",
    loss: "The negative log-likelihood of each subword of the reference, in nats.",
  };

  function element(parent, name, text = "", attributes = {}) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return parent.appendChild(made);
  }

  function shortened(text, longest) {
    const characters = [...text];
    return characters.length > longest ? `${characters.slice(0, longest - 1).join("")}…` : text;
  }

  function menu(parent, name) {
    return element(element(parent, "label", `${name} `), "select", "", { name });
  }

  // Offers texts. What was chosen before stays so if it is offered again.
  function offer(select, texts, preferred = 0) {
    const before = select.options.length ? select.options[select.selectedIndex].text : null;
    select.replaceChildren();
    texts.forEach((text, i) => element(select, "option", text, { value: i }));
    select.selectedIndex = texts.includes(before) ? texts.indexOf(before) : preferred;
    select.disabled = texts.length < 2;
  }

  const highestOf = (values) =>
    Array.isArray(values) ? values.reduce((most, each) => Math.max(most, highestOf(each)), 0) : values;

  // A map as a table with a cursor. `moved` is called with row and column when the reader moves it.
  class Grid {
    constructor(parent, moved) {
      const pane = element(parent, "div");
      this.title = element(pane, "h4");
      this.area = element(pane, "div", "", {
        class: "scroll map", tabindex: 0, role: "region", "aria-describedby": "browser-help",
      });
      this.readout = element(pane, "p", "", { class: "readout", "aria-live": "polite" });
      this.moved = moved;
      this.at = [0, 0];
      this.area.addEventListener("pointerover", ({ target }) => {
        if (target.tagName === "TD") moved(target.parentNode.rowIndex - 1, target.cellIndex - 1);
      });
      this.area.addEventListener("focus", () => moved(...this.at));
      this.area.addEventListener("keydown", (event) => this.key(event));
    }

    // Shows numbers by row and column, or why there are none.
    show(system, map, values, highest) {
      this.title.textContent = system;
      this.area.replaceChildren();
      this.readout.textContent = map ? "" : `${system} has no such map.`;
      this.area.hidden = !map;
      this.map = map && { ...map, values };
      if (!map) return;
      this.area.setAttribute("aria-label", `${map.kind} of ${system}`);
      const percent = map.kind !== "loss";
      const digits = percent && highest >= 0.1 ? 0 : 1;
      const table = element(this.area, "table");
      const head = element(element(table, "thead"), "tr");
      element(head, "th", map.rows.name, { scope: "col" });
      for (const label of map.columns.labels) {
        const kind = map.columns.numbered ? "word" : "number";
        element(head, "th", shortened(label, LONGEST_LABEL), { scope: "col", class: kind });
      }
      const lines = element(table, "tbody");
      values.forEach((row, r) => {
        const line = element(lines, "tr");
        element(line, "th", shortened(map.rows.labels[r], LONGEST_LABEL), { scope: "row" });
        for (const value of row) {
          const text = value === null ? "–" : (value * (percent ? 100 : 1)).toFixed(digits);
          const cell = element(line, "td", Number(text) === 0 ? "" : text);
          cell.style.setProperty("--share", (value / highest).toFixed(3));
        }
      });
    }

    key(event) {
      const [row, column] = this.at, { rows, columns } = this.map;
      const last = columns.labels.length - 1;
      const to = {
        ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
        ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
        Home: [row, 0], End: [row, last],
      }[event.key];
      if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const within = (i, end) => Math.min(Math.max(i, 0), end);
      this.moved(within(to[0], rows.labels.length - 1), within(to[1], last));
      const cell = this.area.querySelector("td.here");
      if (cell) cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    // Puts the cursor on a cell, if the map has it, and says its number.
    mark(row, column) {
      this.at = [row, column];
      if (!this.map) return;
      for (const cell of this.area.querySelectorAll(".here")) cell.classList.remove("here");
      const { rows, columns, values } = this.map;
      this.readout.textContent = "";
      if (!values[row] || values[row][column] === undefined) return;
      const lines = this.area.querySelector("table").rows;
      const line = lines[row + 1];
      for (const cell of [line.cells[0], line.cells[column + 1], lines[0].cells[column + 1]]) {
        cell.classList.add("here");
      }
      const named = ({ name, labels, numbered }, i) =>
        (numbered ? `${name} ${i + 1} “${labels[i]}”` : `${name} ${labels[i]}`);
      this.readout.textContent = `${named(rows, row)} → ${named(columns, column)}: ${values[row][column]}`;
    }
  }

  // One kind of maps: its menus, and a map of each system with the same scale and the same cursor.
  class Maps {
    constructor(key, title) {
      this.key = key;
      this.part = element(body, "div", "", { id: `browser-${key}` });
      element(this.part, "h3", title);
      const controls = element(this.part, "div", "", { class: "controls" });
      this.place = menu(controls, `${key} of`);
      this.choices = element(controls, "span", "", { class: "controls", style: "margin: 0" });
      this.explanation = element(this.part, "p");
      const pair = element(this.part, "div", "", { class: "pair" });
      this.grids = [0, 1].map(() => new Grid(pair, (r, c) => this.move(r, c)));
      this.cursor = null;
    }

    show(systems, names) {
      const found = systems.map((one) => (one ? one[this.key] : []));
      const places = [...new Set(found.flat().map(({ name }) => name))];
      this.part.hidden = !places.length;
      if (!places.length) return;
      offer(this.place, places);
      this.place.parentNode.hidden = places.length < 2;
      const here = found.map((maps) => maps.find(({ name }) => name === places[this.place.selectedIndex]));
      const known = here.filter(Boolean);
      this.explanation.textContent = EXPLANATIONS[known[0].kind];
      // the system with more to choose from decides what is offered
      const size = ({ choices }) => choices.reduce((total, { labels }) => total * labels.length, 1);
      const { choices } = known.reduce((a, b) => (size(b) > size(a) ? b : a));
      const menus = [...this.choices.querySelectorAll("select")];
      if (menus.map(({ name }) => name).join() !== choices.map(({ name }) => name).join()) {
        this.choices.replaceChildren();
        for (const { name } of choices) menu(this.choices, name);
      }
      const selects = [...this.choices.querySelectorAll("select")];
      choices.forEach(({ labels, chosen }, i) => offer(selects[i], labels, chosen));
      const highest = highestOf(known.map(({ values }) => values)) || 1;
      here.forEach((map, side) => {
        const values = map && selects.reduce((values, select, i) =>
          values && values[map.choices[i].labels.indexOf(select.options[select.selectedIndex].text)], map.values);
        this.grids[side].show(names[side], values && map, values, highest);
      });
      if (this.cursor) this.move(...this.cursor);
    }

    move(row, column) {
      this.cursor = [row, column];
      for (const grid of this.grids) grid.mark(row, column);
    }
  }

  const controls = element(body, "div", "", { class: "controls" });
  const [sentence, left, right] = ["sentence", "left", "right"].map((name) => menu(controls, name));
  const texts = element(body, "div", "", { id: "browser-texts" });
  const parts = [["attention", "Attention"], ["coefficients", "Coupling coefficients"], ["loss", "Loss"]]
    .map(([key, title]) => new Maps(key, title));

  function show() {
    const sides = [left, right].map((select) => select.selectedIndex);
    const systems = sides.map((side) => data.sentences[sentence.selectedIndex].systems[side]);
    const known = systems.filter(Boolean);
    texts.replaceChildren();
    for (const [name, key] of [["source", "source"], ["reference", "target"]]) {
      for (const text of new Set(known.map((one) => one[key].join(" ")))) element(texts, "p", `${name}: ${text}`);
    }
    for (const part of parts) part.show(systems, sides.map((side) => data.systems[side]));
  }

  offer(sentence, data.sentences.map(({ number, systems }) =>
    shortened(`${number}: ${systems.find(Boolean).source.join(" ")}`, LONGEST_OPTION)));
  offer(left, data.systems);
  offer(right, data.systems, data.systems.length > 1 ? 1 : 0);
  body.hidden = false;
  body.addEventListener("change", show);
  show();
})();
