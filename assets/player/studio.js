// The stage of the page: the conversation and the race, one of them in sight, and what is opened.
//
// const studio = createStudio(root, options), with the options of createPlayer. What it can do:
//   feed(text)   what the server sends: to the view it is for, which comes into sight
//   show(name)   "chat" or "race"
//   question     the last one that was asked or raced, "" if there is none
//   open(text)   a recording that the reader chose
//   copy(button, text)  puts it on the clipboard, and the button says so
//   player, race what createPlayer and createRace gave
// Events on root: those of player and race.
const VIEWS = { chat: "Chat", race: "Race" };

// Which view a text from the server is for.
const viewOf = (text) => {
  const first = JSON.parse(text.slice(0, text.indexOf("\n")));
  return first.view ?? (first.type === "race" ? "race" : "chat");
};

const isBusy = (state) => state === "running" || state === "waiting";

const createStudio = (root, options = {}) => {
  const places = { chat: make("div"), race: make("div") };
  const tabs = Object.entries(VIEWS).map(([name, label]) => {
    const tab = button(label, "mars-view", () => show(name));
    tab.dataset.view = name;
    return tab;
  });
  const file = Object.assign(make("input", "mars-hidden"), { type: "file", accept: ".jsonl", tabIndex: -1 });
  file.ariaLabel = "Recording to open";
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const text = await chosen.text();
    file.value = ""; // the same file may be chosen again
    studio.open(text);
  });
  const choose = button("Open recording …", "mars-open", () => file.click());
  const views = Object.assign(make("nav", "mars-views", ...tabs, file, choose), { ariaLabel: "Views" });
  for (const [name, place] of Object.entries(places)) place.dataset.place = name;
  root.classList.add("mars-studio");
  root.replaceChildren(make("div", "mars mars-head", views), places.chat, places.race);

  const player = createPlayer(places.chat, options);
  const race = createRace(places.race, options);

  function show(name) {
    for (const [other, place] of Object.entries(places)) place.hidden = other !== name;
    for (const tab of tabs) tab.ariaPressed = String(tab.dataset.view === name);
    root.dataset.view = name;
  }
  function feed(text) {
    if (!text?.includes("\n")) return;
    const name = viewOf(text);
    if (name !== root.dataset.view) show(name);
    ({ chat: player, race })[name].feed(text);
  }
  function complain(view, text) {
    feed(pageLine({ view, state: "error", text }));
  }

  let opened = 0;
  show("chat");
  const studio = {
    feed,
    show,
    // Show a recording, when the server has found nothing wrong with it.
    async open(text) {
      const here = root.dataset.view;
      if (isBusy(this.state)) return complain(here, "A run is going on: stop it first.");
      const answer = await options.server("recording", text).catch(() => null);
      const lines = await answer?.text();
      if (!answer?.ok) return complain(here, lines ?? "The server cannot be reached.");
      feedRecording(feed, lines, `opened ${++opened}`, viewOf(lines));
    },
    player,
    race,
    copy: copyBy,
    // The last question of the view in sight, else of the other.
    get question() {
      const header = race.records.find(({ type }) => type === "header");
      const raced = header?.prompt?.messages.at(-1)?.content;
      const asked = player.again()?.prompt;
      return (root.dataset.view === "race" ? raced ?? asked : asked ?? raced) ?? "";
    },
    // What the page is doing: a view that is busy says it, else the one in sight.
    get state() {
      const states = Object.values(places).map((place) => place.dataset.state);
      return states.find(isBusy) ?? places[root.dataset.view].dataset.state;
    },
  };
  return studio;
};
