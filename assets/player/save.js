// Files for the reader to keep.

const download = (blob, name) => {
  const link = Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

// As they came: no number of a trace is too large for JavaScript.
const jsonLines = (records) => records.map((record) => `${JSON.stringify(record)}\n`);

const fileName = (records, kind, ending) =>
  `mars-${kind}-${records[0].created.replace(/[^0-9A-Za-z]+/g, "-")}.${ending}`;

const saveLines = (records, kind) =>
  download(new Blob(jsonLines(records), { type: "application/jsonl" }), fileName(records, kind, "jsonl"));

const blobOf = (canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"));

// What a recording can become. Each promises a blob; kind: "trace" or "race"; view as for
// drawFrames; server(path, body) promises a response, and say(words) tells how far it is.
const EXPORTS = {
  html: {
    label: "Web page",
    async make({ records, server }) {
      const shell = await (await server("replay.html")).text();
      const lines = jsonLines(records).join("").replaceAll("<", "\\u003c");
      return new Blob([shell.replace("__RECORDING__", () => lines)], { type: "text/html" });
    },
  },
  csv: {
    label: "Table of slots",
    make: async ({ records, server }) => (await server("export/csv", jsonLines(records).join(""))).blob(),
  },
  png: {
    label: "Picture",
    alone: true,
    make: async ({ view }) => blobOf(await drawPicture(view.node)),
  },
  webp: { label: "Animation, WebP", make: (context) => animated(context, "webp") },
  gif: { label: "Animation, GIF", make: (context) => animated(context, "gif") },
};

const animated = async ({ view, server, say }, kind) => {
  const MS = 100;
  const position = view.position;
  const form = new FormData();
  const told = (done, count) => say(`Drawing picture ${done} of ${count} …`);
  const frames = await drawFrames(view, { every: MS, scale: 1, most: 400 }, blobOf, told);
  view.seek(position);
  for (const frame of frames) form.append("frame", frame);
  say("Putting the pictures together …");
  return (await server(`export/${kind}`, form)).blob();
};

// A menu of them. what(): { records, kind, view } at the time; server: null where there is none,
// and then only what needs none is offered. say(words): where progress and failure are told.
const exportMenu = (what, server, say) => {
  const asked = async (path, body) => {
    const answer = await server(path, body).catch(() => null);
    if (!answer?.ok) throw new Error(answer ? await answer.text() : "the server cannot be reached");
    return answer;
  };
  const items = Object.entries(EXPORTS)
    .filter(([, { alone }]) => alone || server)
    .map(([ending, { label, make: made }]) =>
      button(label, "mars-export", async () => {
        menu.open = false;
        const { records, kind, view } = what();
        try {
          say("Making the file …");
          download(await made({ records, view, server: asked, say }), fileName(records, kind, ending));
          say("");
        } catch (error) {
          say(`That did not work: ${error.message}`);
        }
      }));
  const menu = make("details", "mars-menu", make("summary", "mars-button", "Export"), make("div", "", ...items));
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (!menu.contains(relatedTarget)) menu.open = false;
  });
  menu.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") menu.open = false;
  });
  return menu;
};
