// The player: draws a trace (JSON Lines, see mars_core/TRACE.md) as it grows.
//
// const player = createPlayer(root): feed(text) takes the whole trace so far and draws what is new;
// a new header is a new run. Text from the trace reaches the page as text nodes alone.
// The page's own lines have the type "page". One in front of a trace, {"state":"trace",run,at}, says
// that `at` lines of it are left out; if some of them are missing here, the event "mars-gap" asks
// for the whole. The others are a word of the page itself: {"state":...,"text":...}.
const createPlayer = (() => {
  const TINTS = 6;
  const NUMBERS = { tokens: "tokens", forwards: "forwards", rate: "tokens per forward",
    speed: "tokens/s", prefill: "prefill ms" };
  const REASONS = {
    eos: "The model ended its answer",
    stop: "A stop string was reached",
    length: "The token limit was reached",
    context: "The model's context is full",
    stopped: "Stopped",
  };
  const NEAR_END = 48; // px from the bottom that still count as following

  // Strings among the children become text nodes: whatever they hold, they are not parsed.
  const make = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };
  const short = (number) => String(Number(number.toFixed(2)));
  const setting = ({ mode, tau }) => (mode === "one" ? "one token" : `tau ${short(tau)}`);
  const quoted = (text) => `“${text.replaceAll("\n", "↵")}”`;
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  // Cut one pass into atoms: a word, a stretch of spaces, one newline, a special token, or `part`,
  // a token that added no text because its character is still incomplete.
  function atomsOf(entries) {
    return entries.flatMap((entry) => {
      const { special, text } = entry.token;
      if (special) return [{ kind: "special", entry, text: special }];
      return (text.match(/\n|[^\S\n]+|\S+/g) || [""]).map((part) => {
        const kind = part === "\n" ? "newline" : part === "" ? "part" : part.trim() ? "word" : "space";
        return { kind, entry, text: part };
      });
    });
  }

  // Lines of a pass: { lead, core, tail, newlines }. Spaces at the edges stay outside the bracket
  // (lead, tail), and so do newlines, so that neither a gap nor an empty line is ever tinted.
  function linesOf(atoms) {
    const lines = [{ core: [], newlines: [] }];
    for (const atom of atoms) {
      let line = lines.at(-1);
      if (atom.kind === "newline") line.newlines.push(atom);
      else {
        if (line.newlines.length) lines.push((line = { core: [], newlines: [] }));
        line.core.push(atom);
      }
    }
    const spaces = (atom) => atom.kind === "space";
    for (const line of lines) {
      line.lead = [];
      line.tail = [];
      if (lines.length === 1 && !line.newlines.length && line.core.every(spaces)) continue;
      while (line.core.length && spaces(line.core[0])) line.lead.push(line.core.shift());
      while (line.core.length && spaces(line.core.at(-1))) line.tail.unshift(line.core.pop());
    }
    const [first, ...others] = lines;
    if (first.core.length || !others.some((line) => line.core.length)) return lines;
    // newlines in front of words end the line before: they are marked, but outside the bracket
    others[0].lead.unshift(...first.lead, ...first.newlines);
    return others;
  }

  function skeleton(root) {
    const values = {};
    const numbers = make("dl", "mars-numbers");
    for (const [key, label] of Object.entries(NUMBERS)) {
      values[key] = make("dd", "", "–");
      numbers.append(make("div", `mars-number mars-${key}`, make("dt", "", label), values[key]));
    }
    const notice = Object.assign(make("p", "mars-notice"), { role: "alert" });
    const asked = make("p", "mars-asked");
    const text = make("div", "mars-text");
    asked.dir = text.dir = "auto";
    const stream = make("div", "mars-stream", emptyState(), asked, text);
    const label = "Generated text; arrow keys step through its tokens";
    Object.assign(stream, { tabIndex: 0, role: "region", ariaLabel: label });
    const status = make("p", "mars-status");
    const follow = make("button", "mars-button mars-follow", "Latest ↓");
    const save = make("button", "mars-button mars-save", "Save trace");
    follow.type = save.type = "button";
    const bar = make("div", "mars-bar", status, follow, save);
    const card = make("div", "mars-card", notice, stream, bar);
    const live = Object.assign(make("div", "mars-live"), { ariaLive: "polite" });
    const tip = Object.assign(make("div", "mars-tip"), { hidden: true });
    root.classList.add("mars");
    root.replaceChildren(numbers, card, legend(), live, tip);
    return { values, notice, asked, stream, text, status, follow, save, live, tip };
  }

  function emptyState() {
    const sample = Object.assign(make("p", "mars-sample"), { ariaHidden: "true" });
    sample.append(run("Several tokens", 3, 0), " ", run("at once", 2, 1), " then one");
    return make(
      "div", "mars-empty", sample,
      make("p", "", "Write a prompt and press Generate: the answer appears here token by token, " +
        "and every forward pass that produced several tokens is tinted and bracketed."),
      make("p", "", "Move tau while it runs: towards “fast” for longer brackets, " +
        "towards “exact” for what one-token decoding would say."),
    );
  }

  // A pass that is only an example.
  function run(text, count, tint) {
    const node = make("span", "mars-run mars-first mars-last", text, counter(count));
    node.dataset.tint = tint;
    return node;
  }

  // The number is drawn by CSS: it is not part of the text that a person selects and copies.
  function counter(count) {
    const node = make("span", "mars-count");
    node.dataset.count = count;
    return node;
  }

  function legend() {
    const entry = (sample, words) => {
      sample.ariaHidden = "true";
      return make("li", "", sample, make("span", "", words));
    };
    return make(
      "ul", "mars-legend",
      entry(run("abc", 3, 0), "Tint and bracket = tokens of one forward pass, with their number."),
      entry(make("span", "mars-key", "abc"), "Plain = one token in its pass."),
      entry(make("span", "mars-key mars-odd", "abc"),
        "Wavy = one-token decoding would have chosen another word here."),
    );
  }

  function createPlayer(root) {
    const ui = skeleton(root);
    let runName, raw; // which run is drawn, and its lines
    let records, tokens, bySlot, totals, now, chip, tints; // of the run that is drawn
    let rest; // what to go back to where a run that was waited for never came
    let picked = -1; // index of the token whose card is open

    function setState(state) {
      root.dataset.state = state;
      root.dispatchEvent(new CustomEvent("mars-state", { bubbles: true, detail: state }));
    }

    function clear() {
      hideTip();
      [records, tokens, bySlot, chip, tints] = [[], [], new Map(), null, 0];
      totals = { tokens: 0, forwards: 0, ms: 0, prefill: null };
      ui.text.replaceChildren();
      ui.asked.textContent = ui.notice.textContent = "";
      ui.status.textContent = "No run yet.";
      showNumbers();
    }

    function reset() {
      [runName, raw] = [null, []];
      clear();
      setState("empty");
    }

    function showNumbers() {
      const { tokens: count, forwards, ms, prefill } = totals;
      const speed = (count * 1000) / ms;
      ui.values.tokens.textContent = forwards ? count : "–";
      ui.values.forwards.textContent = forwards || "–";
      ui.values.rate.textContent = forwards ? (count / forwards).toFixed(2) : "–";
      ui.values.speed.textContent = ms > 0 ? speed.toFixed(speed < 100 ? 1 : 0) : "–";
      ui.values.prefill.textContent = prefill === null ? "–" : Math.round(prefill);
      Object.assign(root.dataset, { tokens: count, forwards });
    }

    const draw = {
      header(record) {
        clear();
        records.push(record);
        now = { mode: record.settings.mode, tau: record.settings.tau };
        ui.asked.textContent = record.prompt?.messages.at(-1)?.content ?? "";
        ui.status.textContent = setting(now);
        ui.live.textContent = "Generating.";
        setState("running");
      },
      prefill(record) {
        totals.prefill = (totals.prefill || 0) + record.ms;
        ui.values.prefill.title = record.reused ? `${record.reused} of the tokens were in the cache` : "";
      },
      forward: (record) => (totals.ms += record.ms),
      control(record, into) {
        const next = { mode: record.mode, tau: record.tau };
        // of a slider dragged along, one chip remains, and a tick wherever it passed
        const dragged = chip && totals.forwards - chip.forward < 6;
        if (dragged) chip.node.textContent = "";
        const from = dragged ? chip.from : now;
        const to = from.mode === next.mode ? short(next.tau) : setting(next);
        const node = make("span", "mars-chip", `${setting(from)} → ${to}`);
        node.title = `from forward ${record.forward} on`;
        chip = { node, from, forward: totals.forwards };
        into.append(node);
        now = next;
        ui.status.textContent = setting(now);
      },
      step(record, into) {
        totals.tokens += record.tokens.length;
        totals.forwards += 1;
        totals.ms += record.ms;
        for (const seenLater of record.hindsight || []) addHindsight(seenLater);
        const entries = record.tokens.map((token, i) => {
          const slot = record.slots.find((other) => other.slot === token.slot);
          const entry = { token, record, slot, nodes: [], index: tokens.length + i };
          bySlot.set(`${record.forward}:${token.slot}`, entry);
          return entry;
        });
        tokens.push(...entries);
        if (entries.length > 1) drawPass(entries, into);
        else for (const atom of atomsOf(entries)) into.append(...drawAtom(atom));
      },
      done(record, into) {
        if (record.tail) into.append(record.tail);
        totals.ms = record.decode_ms;
        const counts = `${plural(record.tokens, "token")} in ${plural(record.forwards, "forward")}`;
        ui.status.textContent = `${REASONS[record.reason] || "Ended"}: ${counts}.`;
        ui.live.textContent = ui.status.textContent;
        setState(record.reason === "stopped" ? "stopped" : "done");
      },
    };

    function drawAtom(atom) {
      const node = make("span", `mars-token mars-${atom.kind}`, atom.kind === "newline" ? "" : atom.text);
      node.dataset.token = atom.entry.index;
      atom.entry.nodes.push(node);
      return atom.kind === "newline" ? [node, "\n"] : [node];
    }

    function drawPass(entries, into) {
      const tint = tints++ % TINTS;
      let last = null;
      for (const line of linesOf(atomsOf(entries))) {
        for (const atom of line.lead) into.append(...drawAtom(atom));
        if (line.core.length || line.newlines.length) {
          const node = make("span", last ? "mars-run" : "mars-run mars-first");
          if (!line.core.length) node.classList.add("mars-lonely");
          node.dataset.tint = tint;
          for (const atom of [...line.core, ...line.newlines]) node.append(drawAtom(atom)[0]);
          into.append(node);
          last = node;
        }
        for (const atom of line.tail) into.append(...drawAtom(atom));
        into.append("\n".repeat(line.newlines.length));
      }
      last.classList.add("mars-last");
      last.append(counter(entries.length));
    }

    // the nodes of a token that carry its marks: its words, or its spaces where it has no word
    function visible({ nodes }) {
      const words = nodes.filter((node) => !node.classList.contains("mars-space"));
      return words.length ? words : nodes;
    }

    function addHindsight(record) {
      const entry = bySlot.get(`${record.forward}:${record.slot}`);
      if (entry) entry.hindsight = record;
      if (!entry || record.ar_token === entry.token.id) return;
      for (const node of visible(entry)) node.classList.add("mars-odd");
    }

    // a run was asked for (waiting), called off (idle), refused (error), or it broke off (failed)
    function page({ state, text }) {
      const before = root.dataset.state;
      if (state === "waiting") {
        if (before !== "waiting") rest = { state: before, status: ui.status.textContent };
        ui.notice.textContent = "";
        ui.status.textContent = text;
        return setState("waiting");
      }
      ui.notice.textContent = text;
      if (before === "waiting") {
        ui.status.textContent = rest.status;
        setState(rest.state);
      } else if (before === "running" && state === "failed") setState("stopped");
    }

    function feed(text) {
      const lines = (text || "").split("\n").slice(0, -1);
      let [name, at] = [lines[0], 0]; // a bare trace is known by its header
      if (name && name.startsWith('{"type":"page"')) {
        const message = JSON.parse(lines.shift());
        if (message.state !== "trace") return page(message);
        ({ run: name, at } = message);
      }
      if (!lines.length) return;
      if (name !== runName && !at) [runName, raw] = [name, []];
      if (name !== runName || at > raw.length) return root.dispatchEvent(new CustomEvent("mars-gap"));
      drawLines(lines.slice(raw.length - at));
    }

    function drawLines(lines) {
      const following = isFollowing();
      const into = document.createDocumentFragment();
      for (const line of lines) {
        const record = JSON.parse(line);
        raw.push(line);
        if (record.type !== "header") records.push(record);
        // a record this player does not know, or another row's, is kept but not drawn
        if (draw[record.type] && !record.row) draw[record.type](record, into);
      }
      ui.text.append(into);
      showNumbers();
      if (following) ui.stream.scrollTop = ui.stream.scrollHeight;
      showFollow();
    }

    const below = ({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight;
    const isFollowing = () => below(ui.stream) < NEAR_END;
    const showFollow = () => (ui.follow.hidden = isFollowing());

    function save() {
      const link = make("a");
      link.href = URL.createObjectURL(new Blob([raw.join("\n"), "\n"], { type: "application/jsonl" }));
      link.download = `mars-trace-${records[0].created.replace(/[^0-9A-Za-z]+/g, "-")}.jsonl`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }

    function hideTip() {
      for (const node of picked < 0 ? [] : tokens[picked].nodes) node.classList.remove("mars-picked");
      picked = -1;
      ui.tip.hidden = true;
    }

    function showTip(index) {
      const entry = tokens[index];
      if (index === picked || !entry) return;
      hideTip();
      picked = index;
      for (const node of visible(entry)) node.classList.add("mars-picked");
      fillTip(ui.tip, entry);
      ui.tip.hidden = false;
      const frame = root.getBoundingClientRect();
      const spot = visible(entry)[0].getBoundingClientRect();
      const left = Math.min(spot.left - frame.left, frame.width - ui.tip.offsetWidth);
      const high = ui.tip.offsetHeight + 8;
      const fits = spot.bottom + high < window.innerHeight;
      ui.tip.style.left = `${Math.max(0, left)}px`;
      ui.tip.style.top = `${(fits ? spot.bottom + 8 : spot.top - high) - frame.top}px`;
    }

    const on = (name, listener) => ui.stream.addEventListener(name, listener);
    on("pointerover", (event) => {
      const node = event.target.closest("[data-token]");
      if (node) showTip(Number(node.dataset.token));
      else hideTip();
    });
    on("pointerleave", hideTip);
    on("blur", hideTip);
    on("scroll", showFollow);
    on("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hideTip();
      if (!move || !tokens.length) return;
      event.preventDefault();
      const index = Math.min(tokens.length - 1, Math.max(0, picked + move));
      tokens[index].nodes[0].scrollIntoView({ block: "nearest" });
      showTip(index);
    });
    ui.follow.addEventListener("click", () => (ui.stream.scrollTop = ui.stream.scrollHeight));
    ui.save.addEventListener("click", save);
    reset();
    showFollow();
    return { feed, reset, get records() { return records; } };
  }

  // What is known of one token: where it came from, how sure it was, what else it could have been.
  function fillTip(tip, { token, record, slot, hindsight }) {
    const place = `forward ${record.forward} · slot ${token.slot} · ${record.ms.toFixed(0)} ms`;
    tip.replaceChildren(make("strong", "", quoted(token.special || token.text)), make("p", "", place));
    if (slot) {
      const rule = token.slot ? `tau ${short(record.tau)}` : "always accepted";
      tip.append(make("p", "", `confidence ${slot.confidence.toFixed(3)}, ${rule}`));
    }
    if (hindsight) {
      const same = hindsight.ar_token === token.id;
      const choice = same ? "the same" : `${quoted(hindsight.ar_text)} (${hindsight.ar_prob.toFixed(2)})`;
      tip.append(make("p", same ? "" : "mars-differs", `one-token choice: ${choice}`));
    }
    const rows = (slot ? slot.alternatives || [] : []).map(({ text, prob }) => {
      const bar = make("i");
      bar.style.width = `${Math.round(prob * 100)}%`;
      return make("li", "", make("span", "", quoted(text)), make("b", "", prob.toFixed(3)), bar);
    });
    tip.append(make("ol", "", ...rows));
  }

  return createPlayer;
})();
