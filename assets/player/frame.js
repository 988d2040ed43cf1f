// The parts of the player that are always there.

const emptyState = () => {
  const sample = Object.assign(make("p", "mars-sample"), { ariaHidden: "true" });
  const agreed = (text, confidence) => sampleToken(text, confidence, "mars-same");
  sample.append(
    samplePass(2, 0, sampleToken("Several", 0.97), agreed(" tokens", 0.92)), " ",
    samplePass(3, 1, sampleToken("in", 0.8), agreed(" one", 0.62), agreed(" pass", 0.45)), " ",
    sampleToken("then", 0.99), " ", sampleToken("one", 0.99),
  );
  return make(
    "div", "mars-empty", sample,
    make("p", "", "Write a prompt and press Generate: the answer appears here token by token, " +
      "and every forward pass that produced several tokens is tinted and bracketed."),
    make("p", "", "Move tau while it runs: towards “fast” for longer brackets, " +
      "towards “exact” for what one-token decoding would say."),
  );
};

const numberList = (values) => {
  const list = make("dl", "mars-numbers");
  for (const [key, label] of Object.entries(NUMBERS)) {
    values[key] = make("dd", "", "–");
    list.append(make("div", `mars-number mars-${key}`, make("dt", "", label), values[key]));
  }
  values.since = make("dd", "mars-since");
  values.rate.after(values.since);
  return list;
};

const spacesToggle = (root) => {
  const toggle = button("Show spaces", "mars-spaces", () => {
    const on = toggle.ariaPressed !== "true";
    toggle.ariaPressed = String(on);
    root.dataset.spaces = on ? "on" : "off";
  });
  toggle.ariaPressed = "false";
  root.dataset.spaces = "off";
  return toggle;
};

// strip: what replays a run. menu: of exports. press: what the buttons do, by name.
const createFrame = (root, strip, menu, press) => {
  const values = {};
  const notice = Object.assign(make("p", "mars-notice"), { role: "alert" });
  const copyChat = button("Copy chat", "mars-chat", press.copyChat);
  const tools = make("div", "mars-tools", colourChoice(root), spacesToggle(root), copyChat,
    button("New chat", "mars-chat", press.newChat));
  const talk = make("div", "mars-talk");
  const copy = button("Copy", "mars-copy", press.copy);
  const after = make("div", "mars-after", copy, button("Regenerate", "mars-again", press.again));
  const stream = make("div", "mars-stream", emptyState(), talk, after);
  const label = "Conversation; arrow keys step through the generated tokens";
  Object.assign(stream, { tabIndex: 0, role: "region", ariaLabel: label });
  const status = make("p", "mars-status");
  const follow = button("Latest ↓", "mars-follow", press.follow);
  const bar = make("div", "mars-bar", status, follow, button("Save trace", "mars-save", press.save),
    menu);
  const card = make("div", "mars-card", notice, tools, stream, strip, bar);
  const chart = make("div", "mars-chart");
  const live = Object.assign(make("div", "mars-hidden mars-live"), { ariaLive: "polite" });
  root.classList.add("mars");
  const facts = make("div");
  root.replaceChildren(numberList(values), card, ...legendLists(), chart, facts, live);
  return { facts, values, notice, copyChat, talk, copy, stream, status, follow, chart, live };
};
