// The browser of sentences: its controls, and the two systems side by side.

(() => {
  const data = JSON.parse(document.getElementById("browser-data").textContent);
  const body = document.getElementById("browser-body");
  const SIDES = ["left", "right"];
  const LONGEST_OPTION = 60; // characters of a sentence in its menu

  const control = {};
  for (const select of body.querySelectorAll("select")) control[select.name] = select;

  // Offers [value, label] pairs. A choice that is offered again is kept.
  function offer(select, options, preferred) {
    const values = options.map(([value]) => value);
    const [chosen] = [select.value, preferred, values[0]].filter((value) => values.includes(value));
    select.replaceChildren();
    for (const [value, label] of options) element(select, "option", { value }, label);
    select.value = chosen;
    select.disabled = options.length < 2;
  }

  const numbers = (count) => numbered(count).map((number) => [number, number]);
  const chosen = () =>
    Object.fromEntries(Object.entries(control).map(([name, select]) => [name, select.value]));
  // What a side shows; undefined if its system does not have the sentence.
  const shown = (side) => data.sentences[control.sentence.value].of[control[side].value];
  const both = () => SIDES.map(shown).filter(Boolean);

  // Two maps with one scale and one cursor.
  class Pair {
    constructor(name, label, mapOf) {
      this.label = label;
      this.mapOf = mapOf;
      this.cursor = null;
      this.maps = SIDES.map((side) =>
        new HeatMap(document.getElementById(`${name}-${side}`), (r, c) => this.move(r, c)));
      this.legend = document.getElementById(`${name}-legend`);
    }

    show() {
      const found = SIDES.map((side) => {
        const one = shown(side);
        return one ? this.mapOf(one, chosen()) : { missing: "has no such sentence" };
      });
      const drawn = found.filter((map) => !map.missing);
      const ofMap = ({ rows, columns, value, highest }) =>
        highest || most(rows.map((_, r) => most(columns.map((__, c) => value(r, c)))));
      const highest = most(drawn.map(ofMap)) || 1;
      SIDES.forEach((side, i) => {
        const name = control[side].value;
        if (found[i].missing) this.maps[i].clear(name, found[i].missing);
        else this.maps[i].show(name, this.label, found[i], highest);
      });
      this.legend.hidden = !drawn.length;
      for (const { unit, digits } of drawn.slice(0, 1)) {
        const scale = drawn.length > 1 ? ", in both maps" : "";
        this.legend.querySelector(".most").textContent = (highest / unit).toFixed(digits) + scale;
      }
      if (this.cursor) this.move(...this.cursor);
    }

    move(r, c) {
      this.cursor = [r, c];
      for (const map of this.maps) map.mark(r, c);
    }
  }

  const pairs = [
    new Pair("attention", "Attention weights", (one, choice) => attentionMap(one, choice, data.weightUnit)),
    new Pair("couplings", "Coupling coefficients", (one, choice) => couplingMap(one, choice, data.coefficientUnit)),
  ];

  function offerAttentions() {
    const found = both();
    const { attention, layer, head } = control;
    offer(attention, data.attentions.filter(([name]) => found.some((one) => one.attention[name])));
    const stacks = found.map((one) => one.attention[attention.value] || []);
    offer(layer, numbers(most(stacks.map((layers) => layers.length))));
    const heads = most(stacks.map((layers) => (layers[layer.value - 1] || []).length));
    offer(head, [[MEAN, "mean of heads"], ...numbers(heads)], "1");
  }

  function offerCouplings() {
    const found = both().flatMap((one) => one.couplings.map((coupling) => ({ one, coupling })));
    document.getElementById("couplings").hidden = !found.length;
    if (!found.length) return;
    const places = new Set(found.map(({ coupling }) => placeOf(coupling)));
    offer(control.place, [...places].map((place) => [place, place.replace(/ (\d+)$/, ", layer $1")]));
    const here = found.filter(({ coupling }) => placeOf(coupling) === control.place.value);
    const iterations = most(here.map(({ coupling }) => coupling.maps.length));
    offer(control.iteration, numbers(iterations), String(iterations));
    const { one, coupling } = here.reduce((a, b) =>
      (b.coupling.choices.length > a.coupling.choices.length ? b : a));
    offer(control.choice, choicesOf(coupling, one));
    document.getElementById("couplings-explanation").textContent = explanation(coupling);
  }

  // The text of the sentence; a line for each system if their subwords differ.
  function showTexts() {
    for (const side of ["source", "target"]) {
      const texts = new Set(both().map((one) => one[side].join(" ")));
      document.getElementById(`text-${side}`).textContent = [...texts].join("\n");
    }
  }

  function showLosses() {
    const place = document.getElementById("losses");
    place.replaceChildren();
    const table = element(place, "table");
    const head = element(element(table, "thead"), "tr");
    element(head, "th", { scope: "col" }, "subword");
    for (const side of SIDES) element(head, "th", { scope: "col", class: "number" }, control[side].value);
    const lines = element(table, "tbody");
    const highest = most(both().flatMap((one) => one.loss));
    const same = new Set(both().map((one) => JSON.stringify(one.target))).size < 2;
    for (let i = 0; i < most(both().map((one) => one.target.length)); i += 1) {
      const line = element(lines, "tr");
      element(line, "th", { scope: "row" }, same ? both()[0].target[i] : `${i + 1}`);
      for (const side of SIDES) {
        const { target, loss } = shown(side) || { target: [], loss: [] };
        const known = typeof loss[i] === "number";
        const subword = same || i >= target.length ? "" : `${target[i]} `;
        const text = subword + (known ? loss[i].toFixed(3) : "–");
        const cell = element(line, "td", { class: "number" }, text);
        if (known) cell.style.setProperty("--share", `${(100 * loss[i]) / highest}%`);
      }
    }
  }

  function show() {
    offerAttentions();
    offerCouplings();
    showTexts();
    for (const pair of pairs) pair.show();
    showLosses();
  }

  offer(control.sentence, data.sentences.map(({ number, of }, i) => {
    const text = `${number}: ${Object.values(of)[0].source.join(" ")}`;
    return [String(i), text.length > LONGEST_OPTION ? `${text.slice(0, LONGEST_OPTION - 1)}…` : text];
  }));
  const systems = data.systems.map((name) => [name, name]);
  offer(control.left, systems);
  offer(control.right, systems, data.systems[1]);
  const leftOut = document.getElementById("browser-left-out");
  leftOut.hidden = !data.leftOut;
  leftOut.textContent = `${data.leftOut} further sentences would make the page too large; the CSV files hold them.`;
  body.hidden = false;
  body.addEventListener("change", show);
  let before = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== before) show();
    before = window.innerWidth;
  });
  show();
})();
