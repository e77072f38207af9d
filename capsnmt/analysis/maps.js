// What each map of the browser shows, as HeatMap reads it; or { missing: why there is none }.

const MEAN = "mean"; // of heads, or of tokens
const SENTENCE = "all"; // the only choice of vertical routing

const numbered = (count, label = "") => Array.from({ length: count }, (_, i) => `${label}${i + 1}`);
const subword = (name, words) => (i) => `${name} ${i + 1} “${words[i]}”`;
const wordsOf = (place, one) => (place.startsWith("enc-self") || place === "encoder" ? one.source : one.inputs);
const placeOf = ({ place, layer }) => `${place} ${layer}`;

// The weights of one head, or their mean: queries by keys.
function attentionMap(one, { attention, layer, head }, unit) {
  const heads = (one.attention[attention] || [])[layer - 1];
  if (!heads) return { missing: "has no such layer" };
  if (head !== MEAN && !heads[head - 1]) return { missing: "has no such head" };
  const queries = wordsOf(attention, one);
  const own = attention === "dec-self" ? one.inputs : one.source;
  // with cross-self-attention the decoder reads both; zeros at the end of a row are left out
  const longest = most(heads.flatMap((map) => map.map((row) => row.length)));
  const keys = longest > own.length ? [...one.source, ...one.inputs] : own;
  const query = subword("query", queries);
  const predicted = (r) => (attention === "enc-self" ? "" : ` (predicts “${one.target[r]}”)`);
  const weight = (map, r, c) => map[r][c] || 0;
  return {
    rows: queries,
    columns: keys,
    rowName: (r) => query(r) + predicted(r),
    columnName: subword("key", keys),
    value: (r, c) => (head === MEAN
      ? heads.reduce((sum, map) => sum + weight(map, r, c), 0) / heads.length
      : weight(heads[head - 1], r, c)),
    unit,
    digits: 3,
    words: true,
    square: true,
  };
}

// The coupling coefficients of one iteration: input capsules by output capsules or positions.
function couplingMap(one, { place: chosen, iteration, choice }, unit) {
  const found = one.couplings.find((each) => placeOf(each) === chosen);
  if (!found) return { missing: one.couplings.length ? "does not route here" : "does not route" };
  const { place, group, maps } = found;
  const number = found.choices.indexOf(choice);
  const map = (maps[iteration - 1] || [])[number];
  if (!map) return { missing: "has no such iteration, token or head" };
  const shared = {
    value: (r, c) => map[r][c] || 0,
    unit,
    digits: 5,
    // one scale for all iterations, so that they can be compared
    highest: most(maps.flatMap((each) => each[number].map((row) => most(row)))),
  };
  const words = wordsOf(place, one);
  if (place.endsWith("-horizontal")) {
    const names = { rowName: subword("position", words), columnName: subword("input", words) };
    return { ...shared, ...names, rows: words, columns: words, words: true, square: true };
  }
  const inputs = numbered(map.length, ["encoder", "decoder"].includes(place) ? "layer " : "head ");
  const rows = { rows: inputs, rowName: (r) => inputs[r] };
  if (place.endsWith("-vertical")) {
    return { ...shared, ...rows, columns: words, columnName: subword("position", words), words: true };
  }
  const capsules = (c) => (group > 1
    ? `capsules ${c * group + 1} to ${Math.min((c + 1) * group, found.capsules)}, mean` : `capsule ${c + 1}`);
  return { ...shared, ...rows, columns: numbered(found.columns), columnName: capsules };
}

// What the coefficients of a place are, in words.
function explanation({ place, group, choices }) {
  if (place.endsWith("-horizontal")) {
    return "Horizontal routing: the share of position t (column) that the capsule of a head takes at position l (row), over t ≤ l. Iteration 1 is uniform over the heads.";
  }
  if (place.endsWith("-vertical")) {
    return "Vertical routing: how each head (row) is shared among the query positions (columns). Iteration 1 is uniform.";
  }
  const averaged = group > 1 ? ` A column is the mean of ${group} neighbours.` : "";
  const tokens = choices.length > 1 ? "" : " Single tokens are left out: they would make the page too large.";
  return `How each input capsule (row) is shared among the output capsules (columns), which are sorted by their strongest input in the last iteration.${averaged} Iteration 1 is uniform.${tokens}`;
}

// The choices of a place with their labels.
function choicesOf({ place, choices }, one) {
  const words = wordsOf(place, one);
  return choices.map((choice) => {
    if (choice === MEAN) return [choice, "mean of tokens"];
    if (choice === SENTENCE) return [choice, "the sentence"];
    return [choice, place.endsWith("-horizontal") ? `head ${choice}` : `token ${choice} “${words[choice - 1]}”`];
  });
}
