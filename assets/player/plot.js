// The plot under the stream: confidence of every slot, tau as it was, tokens per forward.
//
// const plot = createPlot(root, { Plotly, figure, onHover, onPick }), root being an empty element of
// the page: add(record) takes the records of a run as they come and costs nothing; draw() asks for a
// redraw, which comes within a quarter of a second; light(forward) marks one; reset() forgets the run.
// onHover({ forward, slot }, rect) tells what the pointer is on (slot null: the bar of a forward),
// onHover(null) that it is on nothing, onPick(forward) that it was clicked.
// `figure` is the skeleton of mars_core/ui/plots.py, filled here. A forward has a fixed width, and
// only those in sight are given to Plotly: after twenty thousand a redraw costs what it costs after
// twenty.
const createPlot = (() => {
  // px: from slot to slot (the dots of a forward touch, but do not overlap), between forwards, the
  // least width of a forward, a bar, the blank after the last forward
  const [SLOT, GAP, LEAST, BAR, AFTER] = [5, 7, 14, 9, 24];
  const CHARACTER = 6.4; // px, of the words where tau moved
  const TICKS = [1, 2, 5];
  const TICK_ROOM = 60; // px between two numbers of the x axis
  // ms between redraws at the least, and in how many times what the last one took: a slow machine
  // draws less often
  const RUNNING = { least: 250, times: 10 };
  const AT_ONCE = { least: 30, times: 1 };

  const words = ({ mode, tau }) => MODES[mode] ?? short(tau);

  function skeleton(root, height) {
    const key = (name, text) => make("li", "", make("i", `mars-plot-${name}`), text);
    const legend = make(
      "ul", "mars-plot-legend",
      key("accepted", "accepted"), key("rejected", "rejected"), key("tau", "tau"),
      key("tokens", "tokens per forward"),
    );
    const title = make("p", "mars-plot-title", "Confidence by forward pass");
    const chart = Object.assign(make("div", "mars-plot-chart"), { role: "img" });
    const band = Object.assign(make("div", "mars-plot-band"), { hidden: true });
    const view = make("div", "mars-plot-view", band, chart);
    const spacer = make("div", "mars-plot-spacer", view);
    const scroller = make("div", "mars-plot-scroll", spacer);
    const label = "Confidence plot; arrow keys scroll through its forwards";
    Object.assign(scroller, { tabIndex: 0, role: "region", ariaLabel: label });
    view.style.height = `${height}px`;
    root.classList.add("mars-card", "mars-plot");
    root.replaceChildren(make("div", "mars-plot-head", title, legend), scroller);
    return { scroller, spacer, view, chart, band };
  }

  // A run as the plot knows it. Of a step, kept: slots whose drafts AR said too, to the step whose
  // text they are. most, tallest: slots and tokens of one forward; setting: mode and
  // tau before the next record; tints: passes of several tokens, which is what the text is tinted by.
  const newRun = () => ({ steps: [], moves: [], most: 1, tallest: 2, setting: null, tints: 0 });

  function take(run, record) {
    if (record.type === "header") run.setting = record.settings;
    if (record.type === "control") {
      run.moves.push({ forward: record.forward, from: run.setting, to: record });
      run.setting = record;
    }
    if (record.type !== "step") return;
    const tint = record.tokens.length > 1 ? run.tints++ % TINTS : null;
    const step = { record, tint, kept: new Map() };
    for (const { verdict, origin } of record.drafts ?? []) {
      if (verdict !== "kept" || !origin) continue;
      const by = run.steps.findLast((other) => other.record.forward === origin.forward);
      by?.kept.set(origin.slot, step);
    }
    run.steps.push(step);
    run.most = Math.max(run.most, record.slots.length);
    run.tallest = Math.max(run.tallest, record.tokens.length);
    run.setting = record;
  }

  function summary({ steps, moves }) {
    if (!steps.length) return "Confidence of every slot: no forwards yet";
    const several = steps.filter(({ tint }) => tint !== null).length;
    const forwards = plural(steps.length, "forward");
    const moved = moves.length ? `; tau moved ${plural(moves.length, "time")}` : "";
    return `Confidence of every slot of ${forwards}; ` +
      `${several} of ${forwards} gave several tokens${moved}`;
  }

  // Moves close together (a slider dragged along) share one label, beside the last of their lines.
  function labelled(moves, width) {
    const groups = [];
    for (const { forward, from, to } of moves) {
      const last = groups.at(-1);
      const close = last && (forward - last.forward) * width < last.room;
      const since = close ? groups.pop().from : from;
      const text = `${since ? `${words(since)} ` : ""}→ ${words(to)}`;
      groups.push({ forward, from: since, text, room: text.length * CHARACTER });
    }
    return groups;
  }

  function readColours(root) {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(`--mars-${name}`).trim();
    const edges = Array.from({ length: TINTS }, (_, i) => colour(`edge-${i}`));
    const [ink, mute, line] = ["ink", "mute", "line"].map(colour);
    // a pass has the colour of its bracket in the text, and none where it gave one token
    const ofPass = ({ tint }) => (tint === null ? mute : edges[tint]);
    return { ink, mute, line, ofPass, font: style.fontFamily, key: [ink, mute, ...edges].join() };
  }

  // What the skeleton's traces show of the steps in sight, by the traces' names. customdata is what
  // a point is: its forward, slot (null: a bar), and place.
  const contents = {
    tokens: (steps, width, colours) => ({
      x: steps.map(({ record }) => record.forward),
      y: steps.map(({ record }) => record.tokens.length),
      width: BAR / width,
      customdata: steps.map(({ record: { forward, tokens } }) => [forward, null, forward, tokens.length]),
      marker: { color: steps.map(colours.ofPass) },
    }),
    tau: (steps, width, colours) => ({
      x: steps.flatMap(({ record: { forward } }) => [forward - 0.5, forward + 0.5]),
      y: steps.flatMap(({ record: { mode, tau } }) => (MODES[mode] ? [null, null] : [tau, tau])),
      line: { color: colours.ink },
    }),
    accepted: (steps, width, colours) => dots(steps, width, true, colours.ofPass),
    rejected: (steps, width, colours) => dots(steps, width, false, () => colours.mute),
  };

  // The step whose text a slot is: its own, or the one that kept it as a draft; null: of none.
  const textOf = (step, slot) => (slot.accepted ? step : (step.kept.get(slot.slot) ?? null));

  function dots(steps, width, accepted, colourOf) {
    const shown = steps.flatMap((step) => {
      const { forward, slots } = step.record;
      const first = forward - ((slots.length - 1) * SLOT) / 2 / width;
      const point = (slot, i) => [forward, slot.slot, first + (i * SLOT) / width, slot.confidence];
      return slots
        .map((slot, i) => ({ text: textOf(step, slot), point: point(slot, i) }))
        .filter(({ text }) => (text !== null) === accepted);
    });
    return {
      x: shown.map(({ point }) => point[2]),
      y: shown.map(({ point }) => point[3]),
      customdata: shown.map(({ point }) => point),
      marker: { color: shown.map(({ text }) => colourOf(text)) },
    };
  }

  function filled(figure, run, { from, to, width, plot, groups }, colours, steps) {
    const data = figure.data.map((trace) => {
      const { marker, line, ...rest } = contents[trace.name](steps, width, colours);
      const content = { ...trace, ...rest };
      if (marker) content.marker = { ...trace.marker, ...marker };
      if (line) content.line = { ...trace.line, ...line };
      return content;
    });
    const { margin, font, xaxis, yaxis, yaxis2 } = figure.layout;
    const numbers = { showticklabels: run.steps.length > 0 };
    const bars = { range: [0, run.tallest], tickvals: [run.tallest], zerolinecolor: colours.line };
    const tick = TICKS.find((n) => n * width >= TICK_ROOM);
    const texts = new Map(groups.map(({ forward, text }) => [forward, text]));
    const shapes = run.moves
      .map(({ forward }) => ({ x: forward - 0.5, text: texts.get(forward) ?? "" }))
      .filter(({ x }) => x >= from && x <= to)
      .map(({ x, text }) => ({ x0: x, x1: x, line: { color: colours.mute }, label: { text } }));
    const layout = {
      ...figure.layout,
      width: plot + margin.l + margin.r,
      font: { ...font, color: colours.mute, family: colours.font },
      xaxis: { ...xaxis, ...numbers, range: [from, to], dtick: tick },
      yaxis: { ...yaxis, gridcolor: colours.line },
      yaxis2: { ...yaxis2, ...numbers, ...bars },
      shapes,
    };
    return { data, layout };
  }

  return (root, { Plotly, figure, onHover, onPick }) => {
    const { height, margin } = figure.layout;
    const ui = skeleton(root, height);
    let run = newRun();
    let [following, listening] = [true, false];
    let [lit, hovered] = [null, null]; // forwards that are marked: from outside, by the pointer
    let waiting = false; // the run went on while one was, and the end was not scrolled to
    let drawn = {}; // the scale of what is on the screen
    let [timer, due, drawnAt, took] = [0, Infinity, -Infinity, 0];
    let visible = false;
    let placed = null; // where we scrolled to; null: the reader scrolled

    function reset() {
      [run, following, lit, drawn.key] = [newRun(), true, null, null];
      release();
      draw();
    }

    function schedule({ least, times }) {
      const now = performance.now();
      const at = Math.max(now, drawnAt + Math.max(least, times * took));
      if (at >= due) return;
      clearTimeout(timer);
      due = at;
      timer = setTimeout(redraw, at - now);
    }

    const marked = () => lit ?? hovered;

    function draw() {
      waiting = marked() !== null;
      schedule(RUNNING);
    }

    function unmarked() {
      placeBand();
      if (waiting) schedule(RUNNING);
    }

    // The scale as it is now: px of the plot and of a forward. Makes the spacer as wide as the run.
    function measure() {
      const plot = ui.scroller.clientWidth - margin.l - margin.r;
      const width = Math.max(LEAST, run.most * SLOT + GAP);
      const groups = labelled(run.moves, width);
      const label = groups.slice(-1).map(({ forward, room }) => (forward - 1) * width + room);
      const forwards = run.steps.at(-1)?.record.forward ?? 0;
      const all = Math.max(plot, forwards * width + AFTER, ...label);
      ui.spacer.style.width = `${margin.l + all + margin.r}px`;
      return { plot, width, groups };
    }

    function scrollTo(left) {
      ui.scroller.scrollLeft = left;
      placed = ui.scroller.scrollLeft;
    }

    function redraw() {
      due = Infinity;
      ui.chart.ariaLabel = summary(run);
      const started = performance.now();
      const scale = measure();
      if (!visible || scale.plot <= 0) return;
      if (marked() === null) {
        waiting = false;
        if (following) scrollTo(ui.scroller.scrollWidth);
      }
      const from = 0.5 + ui.scroller.scrollLeft / scale.width;
      paint({ ...scale, from, to: from + scale.plot / scale.width });
      placeBand();
      drawnAt = performance.now();
      took = drawnAt - started;
    }

    function paint(scale) {
      const { from, to, width } = scale;
      const steps = run.steps.filter(
        ({ record }) => record.forward > from - 0.5 && record.forward < to + 0.5);
      const colours = readColours(root);
      const kept = steps.at(-1)?.kept.size;
      const key = [from, to, steps.length, kept, run.moves.length, run.tallest, colours.key].join();
      if (key === drawn.key) return;
      if (from !== drawn.from || width !== drawn.width) release();
      drawn = { ...scale, key, tallest: run.tallest };
      const { data, layout } = filled(figure, run, scale, colours, steps);
      Plotly.react(ui.chart, data, layout, figure.config);
      if (!listening) listen();
    }

    // px from the left and from the top of the chart
    const xOf = (x) => margin.l + (x - drawn.from) * drawn.width;
    function yOf(axis, value) {
      const { domain, range = [0, drawn.tallest] } = figure.layout[axis];
      const share = (value - range[0]) / (range[1] - range[0]);
      const above = 1 - domain[0] - share * (domain[1] - domain[0]);
      return margin.t + above * (height - margin.t - margin.b);
    }

    function placeBand() {
      const forward = marked();
      const left = Math.max(margin.l, xOf(forward - 0.5));
      const right = Math.min(margin.l + drawn.plot, xOf(forward + 0.5));
      ui.band.hidden = forward === null || !(right > left);
      if (ui.band.hidden) return;
      const top = yOf("yaxis2", drawn.tallest) - 2;
      const box = { left, top, width: right - left, height: height - margin.b - top };
      for (const [name, px] of Object.entries(box)) ui.band.style[name] = `${px}px`;
    }

    function light(forward) {
      lit = forward;
      if (lit === null) return unmarked();
      const { plot, width } = measure();
      const left = (lit - 1) * width;
      const before = ui.scroller.scrollLeft;
      if (left < before || left + width > before + plot) {
        scrollTo(left - (plot - width) / 2);
        schedule(AT_ONCE);
      }
      placeBand();
    }

    function place([, slot, x, value]) {
      const chart = ui.chart.getBoundingClientRect();
      const [axis, wide] = slot === null ? ["yaxis2", BAR] : ["yaxis", SLOT];
      const [middle, top] = [chart.left + xOf(x), chart.top + yOf(axis, value)];
      if (slot !== null) return new DOMRect(middle - wide / 2, top - wide / 2, wide, wide);
      return new DOMRect(middle - wide / 2, top, wide, chart.top + yOf(axis, 0) - top);
    }

    function enter(point) {
      hovered = point[0];
      placeBand();
      ui.chart.classList.add("mars-plot-hit");
      onHover({ forward: point[0], slot: point[1] }, place(point));
    }

    function leave() {
      if (hovered === null) return;
      hovered = null;
      unmarked();
      ui.chart.classList.remove("mars-plot-hit");
      onHover(null);
    }

    // Dots are about to move: without this, Plotly would take the next one under the pointer for
    // the one before.
    function release() {
      if (hovered !== null) Plotly.Fx.unhover(ui.chart);
      leave();
    }

    function listen() {
      listening = true;
      ui.chart.on("plotly_hover", ({ points: [{ customdata }] }) => enter(customdata));
      ui.chart.on("plotly_unhover", leave);
      ui.chart.on("plotly_click", ({ event, points: [{ customdata }] }) => {
        // a finger that scrolls is no click; after one that taps, the browser sends a mouse's too
        if (event.type === "touchstart") return;
        if (hovered === null) enter(customdata);
        onPick(customdata[0]);
      });
    }

    ui.scroller.addEventListener("scroll", () => {
      const { scrollLeft, scrollWidth, clientWidth } = ui.scroller;
      if (scrollLeft === placed) return;
      placed = null;
      following = scrollWidth - clientWidth - scrollLeft < LEAST;
      schedule(AT_ONCE);
    });
    new ResizeObserver(() => {
      ui.view.style.width = `${ui.scroller.clientWidth}px`;
      schedule(AT_ONCE);
    }).observe(ui.scroller);
    // further down the page, out of sight, it costs nothing
    new IntersectionObserver((entries) => {
      visible = entries.at(-1).isIntersecting;
      schedule(AT_ONCE);
    }).observe(root);
    // light or dark is a class of some ancestor
    const themed = new MutationObserver(() => schedule(AT_ONCE));
    for (let node = root; node; node = node.parentElement) {
      themed.observe(node, { attributeFilter: ["class"] });
    }
    return { reset, add: (record) => record.row || take(run, record), draw, light };
  };
})();
