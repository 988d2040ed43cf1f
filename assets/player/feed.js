// What comes in: a trace as it grows, or the page's own lines.
//
// The page's own lines have the type "page". One in front of a trace, {"state":"trace",run,at}, says
// that `at` lines of it are left out; if some of them are missing here, onGap asks for the whole.
// The others are a word of the page itself: {"state":...,"text":...}; they may follow the lines of a
// trace. A bare trace is known by its header.

const pageLine = (message) => `${JSON.stringify({ type: "page", ...message })}\n`;

// Give feed(text) a whole recording, named apart from others, for the view.
const feedRecording = (feed, lines, run, view) => {
  feed(pageLine({ view, state: "trace", run, at: 0 }) + lines);
  feed(pageLine({ view, state: "cut", text: "The recording ends before its run did." }));
};

const createFeed = ({ onRecords, onPage, onGap }) => {
  const AT_ONCE = 100; // lines
  let name = null; // which run is being read
  let taken = 0; // how many of its lines were read
  let deaf = false; // a run was called off before it had a name: whatever comes next is not wanted
  const unwanted = new Set();
  let queue = []; // lines that are not seen to yet

  const forget = () => ([name, taken, queue] = [null, 0, []]);
  // a whole long run at once would keep the page from answering for a while
  const drain = () => {
    const some = queue.splice(0, AT_ONCE);
    if (queue.length) setTimeout(drain);
    let records = [];
    const draw = () => {
      if (records.length) onRecords(records);
      records = [];
    };
    for (const line of some) {
      const record = JSON.parse(line);
      if (record.type !== "page") records.push(record);
      else {
        draw();
        onPage(record);
      }
    }
    draw();
  };
  const add = (lines) => {
    queue.push(...lines);
    if (queue.length === lines.length) drain();
  };
  const take = (lines, run, at) => {
    if (deaf) unwanted.add(run);
    if (unwanted.has(run)) return;
    if (run !== name && !at) [name, taken] = [run, 0];
    if (run !== name || at > taken) return onGap();
    const fresh = lines.slice(taken - at);
    taken += fresh.length;
    if (fresh.length) add(fresh);
  };
  return {
    forget,
    // Nothing more of the run that is read or, where one is `awaited`, of that one.
    refuse(awaited) {
      if (name !== null) unwanted.add(name);
      deaf = awaited;
      forget();
    },
    feed(text) {
      const lines = (text || "").split("\n").slice(0, -1);
      if (!lines.length) return;
      if (!lines[0].startsWith('{"type":"page"')) return take(lines, lines[0], 0);
      const [first] = lines;
      const message = JSON.parse(first);
      if (message.state === "waiting") deaf = false;
      if (message.state !== "trace") return add([first]);
      lines.shift();
      if (lines.length) take(lines, message.run, message.at);
    },
  };
};
