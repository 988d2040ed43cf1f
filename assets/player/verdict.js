// What a race came to, as a table and in words.

const VERDICT_COLUMNS = [
  ["speed-up", (result, repeats) => speedUp(result, repeats)],
  ["seconds", ({ seconds: s }) => s.toFixed(2)],
  ["tokens/s", ({ tokens_per_second: rate }) => rate.toFixed(1)],
  ["forwards", ({ forwards }) => forwards],
  ["tokens/forward", ({ tokens_per_forward: rate }) => rate.toFixed(2)],
  ["ms/forward", ({ ms_per_forward: ms }) => ms.toFixed(1)],
  ["idle", ({ idle }) => `${(100 * idle).toFixed(0)} %`, ({ batch }) => batch],
  ["AR agrees", ({ agreement }) => (agreement === null ? "–" : `${(100 * agreement).toFixed(1)} %`)],
  ["prefill ms", ({ prefill_ms: ms }) => ms.toFixed(0)],
];

const speedUp = ({ lane, speed_up: { median, low, high } }, repeats) => {
  if (!lane) return "–";
  return repeats > 1 ? `${short(median)}× (${short(low)} to ${short(high)})` : `${short(median)}×`;
};

const partingLines = (names, { lane, parts }) => {
  if (!parts) return [];
  const flat = (text) => text.replaceAll("\n", " ↵ ");
  const line = (name, text) => [
    make("dt", "", name),
    make("dd", "", `…${flat(parts.before)}`, make("mark", "", flat(text) || "∅")),
  ];
  return [make("dl", "mars-parting", ...line(names[0], parts.theirs), ...line(names[lane], parts.ours))];
};

// The card of a `verdict` record; header: the `race` record.
const verdictCard = (header, { lanes, repeats }) => {
  const names = header.lanes.map(({ name }) => name);
  const columns = VERDICT_COLUMNS.filter(([, , wanted]) => !wanted || wanted(header));
  const head = make("tr", "", make("td", ""), ...columns.map(([label]) => make("th", "", label)));
  const rows = lanes.map((result) => {
    const cells = columns.map(([, value]) => make("td", "", String(value(result, repeats))));
    return make("tr", "", make("th", "", names[result.lane]), ...cells);
  });
  const table = make("table", "", make("thead", "", head), make("tbody", "", ...rows));
  const measured = repeats > 1 ? `medians of ${repeats} repeats, all lanes in turn` : "measured once";
  return make(
    "section", "mars-verdict",
    ...lanes.slice(1).flatMap((result) => [make("p", "mars-says", result.says), ...partingLines(names, result)]),
    make("div", "mars-table", table),
    make("p", "mars-quiet", `Decoding alone, each lane by itself on the machine; ${measured}.`),
  );
};
