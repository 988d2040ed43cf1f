// The player: draws a trace (JSON Lines, see mars_core/TRACE.md) as it grows, and the conversation
// it belongs to. Its parts are in the other files of this folder; text from a trace reaches the page
// as text nodes alone.
//
// const player = createPlayer(root, { plotly, figure, server, still }). With plotly and figure there is
// a plot under the stream: plotly() promises the library, figure is the plot's skeleton. server: see
// exportMenu; still: a page that only replays. What a player can do:
//   feed(text)   the whole trace so far, or the page's own line (see feed.js): what is new is drawn
//   reset()      forget everything that is drawn
//   startOver()  a new conversation; what still comes of a run that is going on is ignored
//   history()    the messages before the next prompt; where a turn is being edited, those before it
//   again()      { prompt, history } that repeat the last turn, or null
//   editing      text of the turn that is being edited, or null
//   records      of the latest run
//   play(), seek(ms), length, position: of its replay, see strip.js
// Events on root: mars-state (detail: the state), mars-gap (the whole trace is needed), mars-again
// (Regenerate), mars-edit (detail: the turn's text), mars-over (New chat).
const createPlayer = (root, options = {}) => {
  const NEAR_END = 48; // px from the bottom that still count as following
  const tell = (name, detail) => root.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  const strip = createStrip(root, onMove);
  const what = () => ({ records: run.records, kind: "trace", view });
  const menu = exportMenu(what, options.server ?? null, (words) => (ui.status.textContent = words));
  root.dataset.still = options.still ? "on" : "off";
  const ui = createFrame(root, strip.node, menu, {
    copyChat: () => copied(ui.copyChat, turns.asText()),
    copy: () => copied(ui.copy, turns.last.answer),
    again: () => tell("mars-again"),
    save: () => saveLines(run.records, "trace"),
    follow: () => scrollToEnd(),
    newChat() {
      startOver();
      tell("mars-over");
    },
  });
  let run = null; // the latest one
  let timeline = timelineOf([]); // of that run, once it is over
  let rest = null; // what to go back to where a run that was waited for never comes
  const turns = createTurns(ui.talk, edit);
  const chart = createChart(ui.chart, options, () => run?.records ?? [], { onHover, onPick });
  const ofRun = (entry) => entry && run?.passes.get(entry.record.forward)?.record === entry.record;
  const reader = createReader(ui.stream, createCard(root), turns.tokens, (entry) =>
    chart.light(ofRun(entry) ? entry.record.forward : null));
  const feed = createFeed({ onRecords, onPage, onGap: () => tell("mars-gap") });

  const below = ({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight;
  const isFollowing = () => below(ui.stream) < NEAR_END;
  const scrollToEnd = () => (ui.stream.scrollTop = ui.stream.scrollHeight);
  const showFollow = () => (ui.follow.hidden = isFollowing());
  ui.stream.addEventListener("scroll", showFollow);

  function setState(state) {
    root.dataset.state = state;
    ui.copy.disabled = !turns.last?.answer;
    tell("mars-state", state);
  }

  function showNumbers() {
    const numbers = numbersOf(run);
    for (const [key, node] of Object.entries(ui.values)) node.textContent = numbers[key];
    const { tokens, forwards, reused, drafted } = run?.totals ?? noTotals();
    ui.values.drafts.parentElement.hidden = !drafted;
    ui.values.prefill.title = reused ? `${reused} of the tokens were in the cache` : "";
    Object.assign(root.dataset, { tokens, forwards, drafted, turns: turns.count });
  }

  function clear() {
    reader.hide();
    turns.clear();
    [run, rest] = [null, null];
    chart.reset();
    strip.unload();
    ui.facts.replaceChildren();
    ui.notice.textContent = "";
    ui.status.textContent = statusOf(run);
    showNumbers();
    setState("empty");
    showFollow();
  }

  function startOver() {
    feed.refuse(root.dataset.state === "waiting");
    clear();
  }

  function edit(turn) {
    turns.edit(turn);
    tell("mars-edit", turn.question);
  }

  const copied = (button, text) => copyBy(button, text, (words) => (ui.live.textContent = words));

  function begin(header) {
    reader.hide();
    strip.unload(); // which draws the last run to its end
    run = createRun(header, turns.begin(header.prompt?.messages ?? []), turns.tokens);
    chart.reset();
    ui.notice.textContent = "";
    ui.facts.replaceChildren(factsOf(header));
    ui.live.textContent = "Generating.";
    setState("running");
  }

  function onRecords(records) {
    const following = isFollowing() || records[0].type === "header";
    for (const record of records) {
      if (record.type === "header") begin(record);
      else takeRecord(run, record);
      chart.add(record);
    }
    showNumbers();
    showProgress(records.includes(run.done));
    chart.draw();
    if (following) scrollToEnd();
    showFollow();
  }

  function showProgress(ended) {
    const state = run.done?.reason === "stopped" ? "stopped" : "done";
    // the next run is waited for already, and that is what the page says
    if (root.dataset.state === "waiting") {
      rest = { state: ended ? state : rest.state, status: statusOf(run) };
      return;
    }
    ui.status.textContent = statusOf(run);
    if (!ended) return;
    ui.live.textContent = ui.status.textContent;
    setState(state);
    offerReplay();
  }

  function offerReplay() {
    timeline = timelineOf(run.records);
    strip.load([timeline]);
  }

  // The latest run as it was at a position of the strip.
  function onMove(position, playing) {
    if (!run || root.dataset.state === "running") return;
    const before = run.drawn;
    run = drawnAt(run, timeline, position);
    if (run.drawn === before) return;
    reader.hide();
    showNumbers();
    ui.status.textContent = statusOf(run);
    chart.light(playing || !run.done ? run.totals.forwards : null);
    if (playing) scrollToEnd();
    showFollow();
  }

  // a run was asked for (waiting), called off (idle), refused (error), it broke off (failed), its recording
  // is over (cut: if it lacks its end), or there is something to say about what is shown (note)
  function onPage({ state, text }) {
    const before = root.dataset.state;
    if (state === "cut" && before !== "running") return;
    if (state === "note") return void (ui.status.textContent = text);
    if (state === "waiting") {
      if (before !== "waiting") rest = { state: before, status: ui.status.textContent };
      turns.edit(null);
      ui.notice.textContent = "";
      ui.status.textContent = text;
      return setState("waiting");
    }
    ui.notice.textContent = text;
    if (before === "waiting") {
      ui.status.textContent = rest.status;
      setState(rest.state);
    } else if (before === "running" && (state === "failed" || state === "cut")) {
      ui.status.textContent = "The run broke off.";
      setState("stopped");
      offerReplay();
    }
  }

  function onHover(hit, place) {
    const pass = hit && run?.passes.get(hit.forward);
    if (pass) reader.light(pass, hit.slot, place);
    else reader.hide();
  }

  function onPick(forward) {
    const entries = run?.passes.get(forward)?.entries;
    if (entries) entries[0].nodes[0].scrollIntoView({ block: "center" });
  }

  clear();
  const view = {
    node: root,
    feed: feed.feed,
    reset() {
      feed.forget();
      clear();
    },
    startOver,
    history: turns.history,
    again: turns.again,
    play: strip.play,
    seek: strip.seek,
    get length() { return strip.length; },
    get position() { return strip.position; },
    get editing() { return turns.edited?.question ?? null; },
    get records() { return run?.records ?? []; },
  };
  return view;
};
