// One run: its records, what they add up to, and its text drawn into the turn that asked for it.

const noTotals = () =>
  ({ tokens: 0, forwards: 0, ms: 0, prefill: null, reused: 0, drafted: 0, kept: 0 });

// tokens: all that are drawn, of earlier turns too; those of this run are appended.
const createRun = (header, turn, tokens) => ({
  turn,
  tokens,
  records: [header],
  drawn: 1, // of them
  passes: new Map(), // forward -> { record, entries }
  totals: noTotals(),
  now: { mode: header.settings.mode, tau: header.settings.tau },
  since: null, // { tokens, forwards } from the last move of mode or tau on
  chip: null, // where that move is marked
  tints: 0, // passes of several tokens
  drafts: [], // nodes of what is proposed, and of what AR has just refused
  cut: createCutter(),
  done: null,
});

// a record this player does not know, or another row's, is kept but not drawn
const drawRecord = (run, record) => {
  run.drawn += 1;
  for (const node of run.drafts.splice(0)) node.remove();
  if (!record.row) TAKERS[record.type]?.(run, record, chunkOf(run.turn.text));
};

const takeRecord = (run, record) => {
  run.records.push(record);
  drawRecord(run, record);
  if (record.row) return;
  if (record.type === "step") for (const { text } of record.tokens) run.turn.answer += text;
  if (record.type === "done") run.turn.answer += record.tail ?? "";
};

// The run with those of its records drawn that were there at `position` of its timeline, ms.
const drawnAt = (run, { times }, position) => {
  const count = countUpTo(times, position + 1e-6);
  const shown = count < run.drawn ? rewound(run) : run;
  while (shown.drawn < count) drawRecord(shown, shown.records[shown.drawn]);
  return shown;
};

// The same run with nothing of it drawn yet; the answer of its turn stays what it is.
const rewound = ({ records, turn, tokens }) => {
  turn.text.replaceChildren();
  tokens.length = turn.first;
  return { ...createRun(records[0], turn, tokens), records };
};

const TAKERS = {
  prefill({ totals }, { ms, reused }) {
    totals.prefill = (totals.prefill || 0) + ms;
    totals.reused += reused;
  },
  forward: ({ totals }, { ms }) => (totals.ms += ms),
  control(run, record, into) {
    const { chip, now, totals } = run;
    const next = { mode: record.mode, tau: record.tau };
    // of a slider dragged along, one chip remains, and a tick wherever it passed
    const dragged = chip && totals.forwards - chip.forward < 6;
    if (dragged) chip.node.textContent = "";
    const from = dragged ? chip.from : now;
    const to = from.mode === next.mode ? short(next.tau) : setting(next);
    const node = make("span", "mars-chip", `${setting(from)} → ${to}`);
    node.title = `from forward ${record.forward} on`;
    into.append(node);
    run.chip = { node, from, forward: totals.forwards };
    run.now = next;
    run.since = { tokens: 0, forwards: 0 };
  },
  step(run, record, into) {
    const { since, totals } = run;
    for (const counts of since ? [totals, since] : [totals]) {
      counts.tokens += record.tokens.length;
      counts.forwards += 1;
    }
    totals.ms += record.ms;
    const refused = (record.drafts ?? []).filter(({ verdict }) => verdict !== "kept");
    totals.drafted += record.drafts?.length ?? 0;
    totals.kept += (record.drafts?.length ?? 0) - refused.length;
    for (const seen of record.hindsight ?? []) {
      const entry = run.passes.get(seen.forward)?.entries.find(isAt(seen.slot));
      if (entry) markHindsight(entry, seen);
    }
    const entries = record.tokens.map((token, i) => entryOf(token, record, run.tokens.length + i));
    run.tokens.push(...entries);
    run.passes.set(record.forward, { record, entries });
    const atoms = atomsOf(entries, run.cut);
    if (entries.length > 1) drawPass(atoms, entries.length, run.tints++, into);
    else for (const atom of atoms) into.append(...drawAtom(atom));
    entries.forEach(markToken);
    if (record.mode === "verified") run.drafts = drawDrafts(record, refused, entries, into);
  },
  done(run, record, into) {
    if (record.tail) into.append(record.tail);
    run.totals.ms = record.decode_ms;
    run.done = record;
  },
};

// A token that is drawn. Of a draft no slot of its forward says how sure it was.
const entryOf = (token, record, index) => {
  const slots = token.source === "draft" ? [] : record.slots;
  const slot = slots.find((other) => other.slot === token.slot);
  return { token, record, slot, index, nodes: [] };
};

const isAt = (slot) => ({ token }) => token.source !== "draft" && token.slot === slot;

const NUMBERS = {
  tokens: "tokens",
  forwards: "forwards",
  rate: "tokens per forward",
  speed: "tokens/s",
  drafts: "drafts kept",
  prefill: "prefill ms",
};

// The numbers as they are shown, "–" where there is none yet.
const numbersOf = (run) => {
  const { tokens, forwards, ms, prefill, drafted, kept } = run?.totals ?? noTotals();
  const speed = (tokens * 1000) / ms;
  const rate = (counts) => (counts.forwards ? (counts.tokens / counts.forwards).toFixed(2) : "–");
  return {
    tokens: forwards ? tokens : "–",
    forwards: forwards || "–",
    rate: rate({ tokens, forwards }),
    speed: ms > 0 ? speed.toFixed(speed < 100 ? 1 : 0) : "–",
    drafts: drafted ? `${kept}/${drafted}` : "–",
    prefill: prefill === null ? "–" : Math.round(prefill),
    since: run?.since ? `since ${setting(run.now)}: ${rate(run.since)}` : "",
  };
};

const REASONS = {
  eos: "The model ended its answer",
  stop: "A stop string was reached",
  length: "The token limit was reached",
  context: "The model's context is full",
  stopped: "Stopped",
};

const statusOf = (run) => {
  if (!run) return "No run yet.";
  const { done, now } = run;
  const exact = now.mode === "tau" && now.tau >= 1;
  if (!done) return exact ? "tau 1: one token per pass, enforced" : setting(now);
  const counts = `${plural(done.tokens, "token")} in ${plural(done.forwards, "forward")}`;
  return `${REASONS[done.reason] || "Ended"}: ${counts}.`;
};
