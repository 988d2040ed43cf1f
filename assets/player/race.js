// A race: every lane as it is measured, then all of them side by side by the times measured.
//
// const race = createRace(root, { server, still }). server: see exportMenu; still: a page that only
// replays. What it can do:
//   feed(text)   the recording so far (see feed.js): what is new is drawn
//   reset()      forget everything that is drawn
//   play(), seek(ms), length, position: see strip.js
//   records      of the race, with those of its lanes
// Events on root: mars-state (detail: the state), mars-gap (the whole recording is needed).
const createRace = (root, { server = null, still = false } = {}) => {
  const tell = (name, detail) => root.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  const strip = createStrip(root, onMove);
  const what = () => ({ records, kind: "race", view });
  const menu = exportMenu(what, server, (words) => (ui.status.textContent = words));
  const ui = raceFrame(root, strip.node, menu, { save: () => saveLines(records, "race") });
  const feed = createFeed({ onRecords, onPage, onGap: () => tell("mars-gap") });
  root.dataset.still = still ? "on" : "off";
  let [records, lanes, header, lane, verdict] = [[], [], null, null, null];
  let rest = null; // state to go back to where a race that was waited for never comes

  function setState(state, words) {
    root.dataset.state = state;
    if (words !== undefined) ui.status.textContent = words;
    tell("mars-state", state);
  }

  function clear() {
    strip.unload();
    ui.facts.replaceChildren();
    [records, lanes, header, lane, verdict] = [[], [], null, null, null];
    Object.assign(root.dataset, { drafted: 0, batch: "off" });
    ui.lanes.replaceChildren();
    ui.verdict.replaceChildren();
    ui.notice.textContent = "";
    setState("empty", "");
  }

  const takers = {
    race(record) {
      clear();
      header = record;
      lanes = record.lanes.map(record.batch ? createRows : createLane);
      root.dataset.batch = record.batch ? "on" : "off";
      ui.lanes.append(...lanes.map(({ node }) => node));
      setState("running");
    },
    lane({ lane: index }) {
      lane?.say("measured");
      lane = lanes[index];
      lane.say("is measured", "now");
      ui.status.textContent = `Measuring ${header.lanes[index].name}, alone …`;
    },
    timing({ lane: index, repeat }) {
      lanes.forEach((one, i) => one.say(i === index ? "again" : "measured", i === index ? "now" : ""));
      const { name } = header.lanes[index];
      ui.status.textContent = `Repeat ${repeat + 1} of ${header.repeats}: ${name} took its turn.`;
    },
    verdict(record) {
      verdict = record;
      ui.verdict.replaceChildren(verdictCard(header, record));
    },
  };

  function onRecords(fresh) {
    for (const record of fresh) {
      const own = takers[record.type];
      if (record.type === "race") records = [];
      if (own) own(record);
      else lane?.take(record);
      if (record.drafts?.length) root.dataset.drafted = 1;
      records.push(record);
    }
    const last = records.at(-1);
    const first = records.find(({ type }) => type === "header");
    ui.question.textContent = header.batch
      ? `${plural(header.batch.prompts, "prompt")}, ${header.batch.rows} at once`
      : first?.prompt?.messages.at(-1)?.content ?? "";
    if (first && !ui.facts.hasChildNodes()) ui.facts.append(factsOf(first, header));
    if (last.type === "verdict" || last.reason === "stopped") finish();
  }

  function finish() {
    strip.load(lanes.map((one) => one.close()));
    const longest = Math.max(0, ...lanes.map(({ timeline }) => timeline.end));
    for (const one of lanes) one.scaleTo?.(longest);
    const words = verdict
      ? "Side by side, as fast as they were."
      : "There is no verdict: that takes two lanes that ran to their end, AR among them.";
    setState(verdict ? "done" : "stopped", words);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (verdict && !calm) {
      strip.playback.seek(0);
      strip.playback.play();
    }
  }

  function onMove(position) {
    if (!verdict && root.dataset.state === "running") return;
    for (const one of lanes) one.seek(position);
  }

  // as the player's: a race was asked for, called off, refused, or it broke off
  function onPage({ state, text }) {
    const before = root.dataset.state;
    if (state === "cut" && before !== "running") return;
    if (state === "note") return void (ui.status.textContent = text);
    if (state === "waiting") {
      if (before !== "waiting") rest = { state: before, words: ui.status.textContent };
      ui.notice.textContent = "";
      return setState("waiting", text);
    }
    ui.notice.textContent = text;
    if (before === "waiting") setState(rest.state, rest.words);
    else if (before === "running" && (state === "failed" || state === "cut")) finish();
  }

  clear();
  const view = {
    node: root,
    feed: feed.feed,
    reset() {
      feed.forget();
      clear();
    },
    play: strip.play,
    seek: strip.seek,
    get length() { return strip.length; },
    get position() { return strip.position; },
    get records() { return records; },
  };
  return view;
};

const emptyRace = () => make(
  "div", "mars-empty",
  make("p", "", "Race answers a prompt several times with the same weights: one token per forward, by " +
    "MARS at your tau, and verified. Each is measured alone; together they would slow each other."),
  make("p", "", "Then all are replayed side by side, as fast as they really were, with the figures."),
);

// The parts of a race that are always there.
const raceFrame = (root, strip, menu, press) => {
  const notice = Object.assign(make("p", "mars-race-notice"), { role: "alert" });
  const status = Object.assign(make("p", "mars-race-status"), { role: "status" });
  const question = Object.assign(make("p", "mars-race-question"), { dir: "auto" });
  const tools = make("div", "mars-tools", colourChoice(root));
  const lanes = make("div", "mars-lanes");
  const bar = make("div", "mars-bar", status, button("Save race", "mars-save-race", press.save), menu);
  const card = make("div", "mars-card", notice, tools, emptyRace(), make("div", "mars-raced", question),
    batchLegend(), lanes, strip, bar);
  const verdict = make("div", "mars-verdicts");
  root.classList.add("mars", "mars-race");
  const facts = make("div");
  root.replaceChildren(verdict, card, ...legendLists(), facts);
  return { notice, status, question, lanes, verdict, facts };
};
