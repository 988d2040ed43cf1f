// One lane of a race: its name, its numbers, its text.

const LANE_NUMBERS = { seconds: "seconds", speed: "tokens/s", rate: "tokens/forward", forwards: "forwards" };

// What a lane came to by now. ms: how long it has been decoding, as the race's clock says.
const laneNumbers = (run, ms) => {
  const { tokens, forwards } = run?.totals ?? noTotals();
  const none = !forwards;
  return {
    seconds: run ? (ms / 1000).toFixed(2) : "–",
    speed: none || !ms ? "–" : ((tokens * 1000) / ms).toFixed(1),
    rate: none ? "–" : (tokens / forwards).toFixed(2),
    forwards: none ? "–" : forwards,
  };
};

// The list of a lane's numbers, and where the value of each is shown. labels: by their keys.
const laneValues = (labels) => {
  const values = {};
  const numbers = make("dl", "mars-lane-numbers");
  for (const [key, label] of Object.entries(labels)) {
    values[key] = make("dd", "", "–");
    numbers.append(make("div", `mars-lane-${key}`, make("dt", "", label), values[key]));
  }
  return { values, numbers };
};

const createLane = ({ name, about }) => {
  const { values, numbers } = laneValues(LANE_NUMBERS);
  const state = make("span", "mars-lane-state", "waits");
  const text = Object.assign(make("div", "mars-text"), { dir: "auto" });
  const stream = make("div", "mars-lane-stream", text);
  Object.assign(stream, { tabIndex: 0, role: "region", ariaLabel: `Text of ${name}` });
  const title = make("h3", "", name);
  const node = make("section", "mars-lane", make("header", "", title, state), make("p", "", about),
    numbers, stream);
  node.ariaLabel = name;
  const lane = {
    node,
    tokens: [],
    run: null,
    timeline: timelineOf([]),
    say(words, kind = "") {
      state.textContent = words;
      node.dataset.lane = kind;
    },
    show(ms) {
      const numbers = laneNumbers(lane.run, ms);
      for (const [key, value] of Object.entries(values)) value.textContent = numbers[key];
    },
    // The next record of the run that is measured.
    take(record) {
      if (record.type === "header") {
        lane.run = createRun(record, { text, answer: "", first: 0 }, lane.tokens);
      } else takeRecord(lane.run, record);
      stream.scrollTop = stream.scrollHeight;
      lane.show(lane.run.totals.ms);
    },
    // The run as it was after `position` ms.
    seek(position) {
      if (!lane.run) return;
      lane.run = drawnAt(lane.run, lane.timeline, position);
      stream.scrollTop = stream.scrollHeight;
      const over = position >= lane.timeline.end;
      lane.say(over ? "finished" : "", over ? "over" : "");
      lane.show(Math.min(position, lane.timeline.end));
    },
    close() {
      lane.timeline = timelineOf(lane.run?.records ?? []);
      return lane.timeline;
    },
  };
  return lane;
};
