// A page that holds nothing but a recording: player or race, played from its own text.
//
// const replay = createReplay(root, text): text is JSON Lines. ready: everything is drawn;
// frames({ every, scale, most }) promises pictures as data URLs (every null: of the end alone).
const createReplay = (root, text) => {
  const race = text.startsWith('{"type":"race"');
  const view = race ? createRace(root, { still: true }) : createPlayer(root, { still: true });
  const count = text.trim().split("\n").length;
  feedRecording(view.feed, text, "recording");
  const url = async (canvas) => canvas.toDataURL("image/png");
  return {
    view,
    get ready() { return view.records.length === count && root.dataset.state !== "running"; },
    frames: async ({ every, scale, most }) => {
      if (every) return drawFrames(view, { every, scale, most }, url);
      view.seek(view.length);
      return [await url(await drawPicture(view.node, { scale }))];
    },
  };
};
