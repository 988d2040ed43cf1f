// When each record of a recording came, and what plays it by these times.

// times: per record, the ms of decoding that had passed when it was there (prefill takes no part).
// passes: of each forward { start, end, tokens }. end: ms of the whole.
const timelineOf = (records) => {
  let now = 0;
  const passes = [];
  const times = records.map(({ type, row, ms, tokens }) => {
    if (row || (type !== "step" && type !== "forward")) return now;
    const start = now;
    now += ms;
    passes.push({ start, end: now, tokens: tokens?.length ?? 0 });
    return now;
  });
  return { times, passes, end: now };
};

// How many of the sorted `times` are at most `now`.
const countUpTo = (times, now) => {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= now) low = middle + 1;
    else high = middle;
  }
  return low;
};

// A position that moves by itself while it plays. onMove(position, playing) tells every change.
const createPlayback = (onMove) => {
  let [position, end, speed] = [0, 0, 1];
  let playing = false;
  let last = 0; // when the position was last right
  const tell = () => onMove(position, playing);
  const frame = (now) => {
    if (!playing) return;
    position = Math.min(end, position + (now - last) * speed);
    last = now;
    if (position >= end) playing = false;
    else requestAnimationFrame(frame);
    tell();
  };
  const pause = () => {
    playing = false;
    tell();
  };
  return {
    get position() { return position; },
    get playing() { return playing; },
    // A recording of `length` ms, at `start`, at rest.
    load(length, start) {
      [end, position, playing] = [length, start, false];
      tell();
    },
    play() {
      if (playing || !end) return;
      if (position >= end) position = 0;
      [playing, last] = [true, performance.now()];
      requestAnimationFrame(frame);
      tell();
    },
    pause,
    // Nothing to play; nobody is told.
    clear: () => ([position, end, playing] = [0, 0, false]),
    seek(to) {
      position = Math.min(end, Math.max(0, to));
      last = performance.now();
      tell();
    },
    set speed(times) { speed = times; },
  };
};
