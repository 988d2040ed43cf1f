// One lane of a race of batches: a line for each place of the batch, time from left to right.
//
// A box is a row's part in one forward, as wide as the forward was long and coloured by the tokens it
// committed; shaded: the row holds its place and waits; dark: a forward that only fills a cache.
const ROW_HEIGHT = 18;
const ROW_GAP = 4;
const ROW_NUMBERS = { seconds: "seconds", speed: "tokens/s", rate: "tokens/forward", idle: "idle" };

const ROW_COLOURS = {
  "one token of a row": "line",
  "two": "level-3",
  "three": "level-4",
  "four": "level-5",
  "more": "level-8",
  "waits for others": "doubt-2",
  "a forward that only fills the cache": "mute",
};

const batchLegend = () => {
  const entries = Object.entries(ROW_COLOURS).map(([words, colour]) => {
    const entry = make("span", "", words);
    entry.style.setProperty("--swatch", `var(--mars-${colour})`);
    return entry;
  });
  return make("p", "mars-batch-legend", ...entries);
};

// Which line each row is drawn on: the first that is free, for as long as the row is there.
const createPlaces = () => {
  const taken = [];
  return {
    enter(row) {
      const free = taken.indexOf(undefined);
      const place = free < 0 ? taken.length : free;
      taken[place] = row;
      return place;
    },
    leave(row) {
      if (taken.includes(row)) taken[taken.indexOf(row)] = undefined;
    },
    get taken() { return taken.filter((row) => row !== undefined); },
    get count() { return taken.length; },
  };
};

let drawings = 0; // a clip path is found by its name

const createRows = ({ name, about }) => {
  const { values, numbers } = laneValues(ROW_NUMBERS);
  const state = make("span", "mars-lane-state", "waits");
  const window = `mars-rows-${++drawings}`;
  const clip = svg("rect", { x: 0, y: 0, height: 0, width: 0 });
  const [boxesOfRows, ends] = [svg("g", {}), svg("g", {})]; // ends lie on top
  const drawing = svg("g", { "clip-path": `url(#${window})` }, boxesOfRows, ends);
  const picture = svg(
    "svg",
    { preserveAspectRatio: "none", role: "img", class: "mars-rows" },
    svg("defs", {}, svg("clipPath", { id: window }, clip)),
    drawing,
  );
  const title = make("h3", "", name);
  const answers = make("dl", "");
  const node = make(
    "section", "mars-lane mars-batch-lane", make("header", "", title, state), make("p", "", about),
    numbers, make("div", "mars-rows-box", picture),
    make("details", "mars-answers", make("summary", "", "Answers"), answers),
  );
  node.ariaLabel = name;
  const times = []; // of each record: ms of decoding that had passed when it was there
  const passes = []; // of each forward, as of a timeline
  const places = createPlaces();
  const rows = new Map(); // row -> { place, group, answer, last: forward }
  const boxes = []; // what is drawn: { from, to, tokens }, tokens null where a row waits
  let [clock, starts, forward, settled, scale] = [0, 0, 0, true, 0];

  const y = (place) => place * (ROW_HEIGHT + ROW_GAP);
  const box = (row, kind, tokens) => {
    const one = rows.get(row);
    if (!one) return;
    one.last = forward;
    boxes.push({ from: starts, to: clock, tokens });
    const attributes = { x: starts, y: y(one.place), width: clock - starts, height: ROW_HEIGHT };
    const drawn = svg("rect", { ...attributes, class: `mars-box-${kind}` });
    if (tokens > 1) drawn.dataset.level = levelOf(tokens);
    one.group.append(drawn);
  };
  // All have told what they did in the forward: who holds a place and did nothing, waited.
  const settle = () => {
    if (settled) return;
    settled = true;
    for (const row of places.taken) if (rows.get(row).last !== forward) box(row, "idle", null);
  };
  // The rows of a forward share its time.
  const begin = (record) => {
    if (record.forward === forward) return;
    settle();
    [forward, starts, settled] = [record.forward, clock, false];
    clock += record.ms;
    passes.push({ start: starts, end: clock, tokens: 0 });
  };
  const reach = () => {
    const height = Math.max(1, y(places.count) - ROW_GAP);
    picture.setAttribute("viewBox", `0 0 ${Math.max(scale, clock, 1)} ${height}`);
    picture.style.height = `${height}px`;
    clip.setAttribute("height", height);
  };
  const tell = (until) => {
    let [tokens, parts, used, held] = [0, 0, 0, 0];
    for (const one of boxes) {
      if (one.from >= until) continue;
      const length = Math.min(until, one.to) - one.from;
      held += length;
      if (one.tokens !== null) used += length;
      if (one.tokens !== null && one.to <= until + 1e-6) {
        tokens += one.tokens;
        parts += 1;
      }
    }
    values.seconds.textContent = (until / 1000).toFixed(2);
    values.speed.textContent = until ? ((tokens * 1000) / until).toFixed(1) : "–";
    values.rate.textContent = parts ? (tokens / parts).toFixed(2) : "–";
    values.idle.textContent = held ? `${Math.round(100 * (1 - used / held))} %` : "–";
  };
  const takers = {
    join({ row, prompt }) {
      settle();
      const text = prompt.messages.at(-1).content;
      const group = svg("g", {}, svg("title", {}, text));
      const answer = Object.assign(make("dd", ""), { dir: "auto" });
      answers.append(make("dt", "", text), answer);
      rows.set(row, { place: places.enter(row), group, answer, last: 0 });
      boxesOfRows.append(group);
    },
    step(record) {
      begin(record);
      box(record.row, "step", record.tokens.length);
      passes.at(-1).tokens += record.tokens.length;
      rows.get(record.row)?.answer.append(record.tokens.map(({ text }) => text).join(""));
    },
    forward(record) {
      if (record.role !== "extend") return;
      begin(record);
      for (const row of record.rows) box(row, "extend", 0);
    },
    leave({ row }) {
      settle();
      places.leave(row);
    },
    done({ row }) {
      const one = rows.get(row);
      if (!one) return;
      const [x, top] = [clock, y(one.place)];
      ends.append(svg("line", { x1: x, x2: x, y1: top, y2: top + ROW_HEIGHT }));
    },
  };
  const lane = {
    node,
    timeline: timelineOf([]),
    say(words, kind = "") {
      state.textContent = words;
      node.dataset.lane = kind;
    },
    take(record) {
      takers[record.type]?.(record);
      times.push(clock);
      clip.setAttribute("width", Number.MAX_SAFE_INTEGER);
      reach();
      tell(clock);
    },
    // The longest lane's time: all are drawn to the same scale.
    scaleTo(longest) {
      scale = longest;
      reach();
    },
    // What there was after `position` ms.
    seek(position) {
      const { end } = lane.timeline;
      const [until, over] = [Math.max(0, Math.min(position, end)), position >= end];
      clip.setAttribute("width", over ? Number.MAX_SAFE_INTEGER : until);
      lane.say(over ? "finished" : "", over ? "over" : "");
      tell(until);
    },
    close() {
      settle();
      lane.timeline = { times, passes, end: clock };
      return lane.timeline;
    },
  };
  return lane;
};
