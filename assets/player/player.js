// The player: draws a trace (JSON Lines, see mars_core/TRACE.md) as it grows, and the conversation
// it belongs to. Its parts are in the other files of this folder; text from a trace reaches the page
// as text nodes alone.
//
// const player = createPlayer(root, { plotly, figure }). With both options there is a plot under the
// stream: plotly() promises the library, figure is the plot's skeleton. What a player can do:
//   feed(text)   the whole trace so far, or the page's own line (see feed.js): what is new is drawn
//   reset()      forget everything that is drawn
//   startOver()  a new conversation; what still comes of a run that is going on is ignored
//   history()    the messages before the next prompt; where a turn is being edited, those before it
//   again()      { prompt, history } that repeat the last turn, or null
//   editing      text of the turn that is being edited, or null
//   records      of the latest run
// Events on root: mars-state (detail: the state), mars-gap (the whole trace is needed), mars-again
// (Regenerate), mars-edit (detail: the turn's text), mars-over (New chat).
const createPlayer = (root, options = {}) => {
  const NEAR_END = 48; // px from the bottom that still count as following
  const tell = (name, detail) => root.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  const ui = createFrame(root, {
    copyChat: () => copied(ui.copyChat, turns.asText()),
    copy: () => copied(ui.copy, turns.last.answer),
    again: () => tell("mars-again"),
    save: () => saveTrace(run.records),
    follow: () => scrollToEnd(),
    newChat() {
      startOver();
      tell("mars-over");
    },
  });
  let run = null; // the latest one
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
    const { tokens, forwards, reused } = run?.totals ?? noTotals();
    ui.values.prefill.title = reused ? `${reused} of the tokens were in the cache` : "";
    Object.assign(root.dataset, { tokens, forwards, turns: turns.count });
  }

  function clear() {
    reader.hide();
    turns.clear();
    [run, rest] = [null, null];
    chart.reset();
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

  async function copied(button, text) {
    const label = (button.dataset.label ??= button.textContent);
    const words = (await copyText(text)) ? "Copied" : "Could not copy";
    [button.textContent, ui.live.textContent] = [words, `${words}.`];
    setTimeout(() => ([button.textContent, ui.live.textContent] = [label, ""]), 1500);
  }

  function begin(header) {
    reader.hide();
    run = createRun(header, turns.begin(header.prompt?.messages ?? []), turns.tokens);
    chart.reset();
    ui.notice.textContent = "";
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
  }

  // a run was asked for (waiting), called off (idle), refused (error), or it broke off (failed)
  function onPage({ state, text }) {
    const before = root.dataset.state;
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
    } else if (before === "running" && state === "failed") {
      ui.status.textContent = "The run broke off.";
      setState("stopped");
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
  return {
    feed: feed.feed,
    reset() {
      feed.forget();
      clear();
    },
    startOver,
    history: turns.history,
    again: turns.again,
    get editing() { return turns.edited?.question ?? null; },
    get records() { return run?.records ?? []; },
  };
};

// As it came: no number of a trace is too large for JavaScript.
const saveTrace = (records) => {
  const lines = records.map((record) => `${JSON.stringify(record)}\n`);
  const link = make("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = `mars-trace-${records[0].created.replace(/[^0-9A-Za-z]+/g, "-")}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};
