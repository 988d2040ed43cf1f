// The strip that a recording is replayed with: play, a bar for every forward, time, speed.

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const SPEED_KEYS = { "<": -1, ">": 1 };

const seconds = (ms) => `${(ms / 1000).toFixed(ms < 99_950 ? 1 : 0)} s`;

// tracks: the timeline of each lane, drawn one under the other over the same time.
const drawTracks = (canvas, tracks, end, position, colours) => {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [width * scale, height * scale];
  const pen = canvas.getContext("2d");
  if (!pen || !end) return;
  pen.scale(scale, scale);
  const room = height / tracks.length;
  const most = Math.max(2, ...tracks.flatMap(({ passes }) => passes.map(({ tokens }) => tokens)));
  const x = (ms) => (ms / end) * width;
  tracks.forEach(({ passes }, row) => {
    let several = 0;
    for (const { start, end: over, tokens } of passes) {
      const edge = tokens > 1 ? colours.edges[several++ % TINTS] : colours.mute;
      const tall = Math.max(2, (tokens / most) * (room - 4));
      const wide = Math.max(1, x(over) - x(start) - 1);
      pen.globalAlpha = start < position ? 1 : 0.28;
      pen.fillStyle = edge;
      pen.fillRect(x(start), (row + 1) * room - tall - 1, wide, tall);
    }
  });
  pen.globalAlpha = 1;
  pen.fillStyle = colours.ink;
  pen.fillRect(Math.min(width - 2, Math.max(0, x(position) - 1)), 0, 2, height);
};

const stripColours = (root) => {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(`--mars-${name}`).trim();
  const edges = Array.from({ length: TINTS }, (_, i) => colour(`edge-${i}`));
  return { ink: colour("ink"), mute: colour("faint"), edges };
};

// onMove(position, playing): position in ms. What it plays is given to load().
const createStrip = (root, onMove) => {
  let [tracks, stops, end] = [[], [], 0];
  const play = button("", "mars-play", () => (playback.playing ? playback.pause() : playback.play()));
  const canvas = make("canvas", "mars-track");
  const range = make("input", "mars-scrub");
  Object.assign(range, { type: "range", min: 0, step: "any", ariaLabel: "Position in the recording" });
  const time = make("span", "mars-time");
  const speed = make("select", "mars-tempo");
  speed.append(...SPEEDS.map((times) => new Option(`${times}×`, times, times === 1, times === 1)));
  speed.ariaLabel = "Speed of the replay";
  const node = make("div", "mars-strip", play, make("div", "mars-tracks", canvas, range), time, speed);
  node.hidden = true;

  const show = () => drawTracks(canvas, tracks, end, playback.position, stripColours(root));
  const playback = createPlayback((position, playing) => {
    play.textContent = playing ? "❚❚" : "▶";
    play.ariaLabel = playing ? "Pause" : "Play";
    root.dataset.playing = playing ? "on" : "off";
    range.value = position;
    const forward = countUpTo(stops, position + 1e-6);
    range.setAttribute("aria-valuetext", `${seconds(position)}, forward ${forward}`);
    time.textContent = `${seconds(position)} / ${seconds(end)}`;
    show();
    onMove(position, playing);
  });
  const step = (by) => {
    const here = countUpTo(stops, playback.position + 1e-6);
    playback.pause();
    playback.seek(by > 0 ? (stops[here] ?? end) : (stops[here - 2] ?? 0));
  };
  range.addEventListener("input", () => {
    playback.pause();
    playback.seek(Number(range.value));
  });
  range.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    const faster = SPEED_KEYS[event.key];
    if (by) step(by);
    else if (event.key === " ") play.click();
    else if (faster) {
      speed.selectedIndex = Math.min(SPEEDS.length - 1, Math.max(0, speed.selectedIndex + faster));
      playback.speed = Number(speed.value);
    } else return;
    event.preventDefault();
  });
  speed.addEventListener("change", () => (playback.speed = Number(speed.value)));
  new ResizeObserver(show).observe(canvas);
  new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["class"] });
  new MutationObserver(show).observe(document.body, { attributeFilter: ["class"] });

  return {
    node,
    playback,
    play: () => playback.play(),
    // Show what was there after `ms`, at rest.
    seek(ms) {
      playback.pause();
      playback.seek(ms);
    },
    get length() { return end; },
    get position() { return playback.position; },
    // lanes: their timelines. It is shown at the end, at rest.
    load(lanes) {
      tracks = lanes;
      end = Math.max(0, ...lanes.map((lane) => lane.end));
      stops = [...new Set(lanes.flatMap(({ passes }) => passes.map((pass) => pass.end)))]
        .sort((a, b) => a - b);
      range.max = end;
      node.hidden = !end;
      node.style.setProperty("--tracks", lanes.length);
      playback.load(end, end);
    },
    // The recording is shown to its end, and then there is none.
    unload() {
      if (end) playback.seek(end);
      playback.clear();
      root.dataset.playing = "off";
      [tracks, stops, end] = [[], [], 0];
      node.hidden = true;
    },
  };
};
