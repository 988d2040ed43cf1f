// The card of one token, of one slot that was rejected, or of one whole pass.

// Why a slot did not become text. Slots are read from the left, up to the first that is rejected.
const rejection = ({ slots, tau }, slot) => {
  if (tau >= 1) return "tau 1 takes one token per pass";
  const behind = slots.some((other) => other.slot < slot.slot && !other.accepted);
  if (behind) return "behind a rejected slot";
  if (slot.confidence < tau) return `below tau ${short(tau)}`;
  const likeliest = slot.alternatives?.[0];
  if (likeliest && likeliest.id !== slot.id) return "drawn, but not the likeliest token";
  return "the answer ended before it";
};

const placeLine = ({ forward, ms }, ...more) =>
  make("p", "", [`forward ${forward}`, ...more, `${ms.toFixed(0)} ms`].join(" · "));

// Confidence as a bar, with a mark where tau was; null: it was not compared with tau.
const meter = (confidence, tau) => {
  const bar = make("i");
  bar.style.width = `${confidence * 100}%`;
  const node = make("div", "mars-meter", bar);
  if (tau === null) return node;
  const mark = make("b");
  mark.style.left = `${tau * 100}%`;
  node.append(mark);
  return node;
};

const confidenceLines = (record, slot) => {
  let [rule, tau] = [`tau ${short(record.tau)}`, record.tau];
  if (slot.slot === 0) [rule, tau] = ["always accepted", null];
  else if (record.mode === "verified") [rule, tau] = ["proposed as a draft", null];
  else if (!slot.accepted) rule = `rejected: ${rejection(record, slot)}`;
  const words = `confidence ${slot.confidence.toFixed(3)}, ${rule}`;
  return [make("p", "", words), meter(slot.confidence, tau)];
};

const choiceLine = ({ token, hindsight }) => {
  if (token.source === "ar") return make("p", "", "AR’s own choice");
  if (token.source === "draft") return make("p", "", "AR’s own choice: it was asked");
  if (!hindsight) return make("p", "", "AR’s choice: not known, no later forward saw it");
  if (hindsight.ar_token === token.id) return make("p", "", "AR’s choice: the same");
  const other = `${quoted(hindsight.ar_text)} (${hindsight.ar_prob.toFixed(2)})`;
  return make("p", "mars-differs", `AR’s choice: ${other}`);
};

const alternativeList = ({ alternatives }) =>
  make("ol", "", ...(alternatives ?? []).map(({ text, prob }) => {
    const bar = make("i");
    bar.style.width = `${Math.round(prob * 100)}%`;
    return make("li", "", make("span", "", quoted(text)), make("b", "", prob.toFixed(3)), bar);
  }));

// Which mask proposed a draft, and how sure it was.
const draftLines = ({ token, record }) => {
  const draft = record.drafts?.[token.slot];
  if (token.source !== "draft" || !draft) return [];
  const { origin, prob } = draft;
  const by = origin ? `by mask ${origin.slot} of forward ${origin.forward}` : "by the draft model";
  const sure = prob == null ? "" : `, probability ${prob.toFixed(3)}`;
  return [make("p", "", `drafted ${by}${sure}`)];
};

const tokenCard = (entry) => {
  const { token, record, slot } = entry;
  return [
    make("strong", "", quoted(token.special || token.text)),
    placeLine(record, `${token.source === "draft" ? "draft" : "slot"} ${token.slot}`),
    ...draftLines(entry),
    ...(slot ? confidenceLines(record, slot) : []),
    choiceLine(entry),
    ...(slot ? [alternativeList(slot)] : []),
  ];
};

const rejectedCard = (record, slot) => [
  make("strong", "mars-rejected", quoted(slot.text)),
  placeLine(record, `slot ${slot.slot}`),
  ...confidenceLines(record, slot),
  alternativeList(slot),
];

const passCard = ({ record, entries }) => [
  make("strong", "", quoted(entries.map(({ token }) => token.special || token.text).join(""))),
  placeLine(record, setting(record), plural(entries.length, "token")),
];

// Tells a token that was drafted by this slot of this forward.
const isDraftOf = (forward, slot) => ({ token, record }) => {
  const { origin } = (token.source === "draft" && record.drafts?.[token.slot]) || {};
  return origin?.forward === forward && origin.slot === slot;
};

// What the card of a place of the plot says: a slot of a pass, null for the whole pass. later: the
// tokens behind this pass, among which its drafts are that were kept.
const cardAt = (pass, slot, later) => {
  if (slot === null) return passCard(pass);
  const entry = pass.entries.find(isAt(slot)) ?? later.find(isDraftOf(pass.record.forward, slot));
  if (entry) return tokenCard(entry);
  const rejected = pass.record.slots.find((other) => other.slot === slot);
  return rejected ? rejectedCard(pass.record, rejected) : passCard(pass);
};

// The box itself: shown beside `place`, a rectangle of the viewport, within `root`.
const createCard = (root) => {
  const node = Object.assign(make("div", "mars-tip"), { hidden: true });
  root.append(node);
  return {
    hide: () => (node.hidden = true),
    show(children, place) {
      node.replaceChildren(...children);
      node.hidden = false;
      const frame = root.getBoundingClientRect();
      const left = Math.min(place.left - frame.left, frame.width - node.offsetWidth);
      const high = node.offsetHeight + 8;
      const fits = place.bottom + high < window.innerHeight;
      node.style.left = `${Math.max(0, left)}px`;
      node.style.top = `${(fits ? place.bottom + 8 : place.top - high) - frame.top}px`;
    },
  };
};
