// One pass as it is drawn: atoms, bracket, number, and the marks that CSS turns into colours.
//
// The marks hold for every colour mode at once, so that changing the mode draws nothing again:
// data-tint and data-level of a bracket, data-confidence of a word, and the classes mars-same,
// mars-odd and mars-unseen of a word that came from a mask.

const drawAtom = ({ kind, text, entry }) => {
  const node = make("span", `mars-token mars-${kind}`, kind === "newline" ? "" : text);
  node.dataset.token = entry.index;
  if (kind === "control") node.dataset.label = codePoint(text);
  if (kind === "space" && text.length > 1) node.style.setProperty("--spaces", text.length);
  entry.nodes.push(node);
  return kind === "newline" ? [node, "\n"] : [node];
};

// The nodes of a token that carry its marks: not its spaces, unless it has nothing else.
const marked = ({ nodes }) => {
  const words = nodes.filter((node) => !node.matches(".mars-space, .mars-tab"));
  return words.length ? words : nodes;
};

const markToken = (entry) => {
  const bin = entry.slot && confidenceBin(entry.slot.confidence);
  for (const node of marked(entry)) {
    if (entry.slot) node.dataset.confidence = bin;
    if (entry.token.source === "slot") node.classList.add("mars-unseen");
  }
};

const markHindsight = (entry, hindsight) => {
  entry.hindsight = hindsight;
  const found = hindsight.ar_token === entry.token.id ? "mars-same" : "mars-odd";
  for (const node of marked(entry)) node.classList.replace("mars-unseen", found);
};

// The number is drawn by CSS: it is not part of the text that a person selects and copies.
const counter = (count) => {
  const node = make("span", "mars-count");
  node.dataset.count = count;
  return node;
};

const RIGHT_TO_LEFT = /^\P{L}*[\p{sc=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}\p{sc=Adlm}]/u;

const bracket = (count, tint, ...children) => {
  const node = make("span", "mars-run", ...children);
  if (RIGHT_TO_LEFT.test(node.textContent)) node.classList.add("mars-rtl");
  node.dataset.tint = tint % TINTS;
  node.dataset.level = levelOf(count);
  return node;
};

// The first and the last bracket of a pass close it, and the last one has its number.
const closePass = (runs, count) => {
  runs[0].classList.add("mars-first");
  runs.at(-1).classList.add("mars-last");
  runs.at(-1).append(counter(count));
};

// A pass of several tokens; `tint` counts these in a run.
const drawPass = (atoms, count, tint, into) => {
  const runs = [];
  const free = (some) => some.forEach((atom) => into.append(...drawAtom(atom)));
  for (const { lead, core, tail, newlines, bracket: has } of linesOf(atoms)) {
    free(lead);
    if (has) {
      runs.push(bracket(count, tint, ...[...core, ...newlines].map((atom) => drawAtom(atom)[0])));
      if (!core.some(({ kind }) => kind === "word")) runs.at(-1).classList.add("mars-bare");
      into.append(runs.at(-1));
    } else free(core);
    free(tail);
    if (has) into.append("\n".repeat(newlines.length));
    else free(newlines);
  }
  closePass(runs, count);
};

// A draft is no part of the text, so CSS draws it.
const draftNode = (text, name = "") => {
  const node = Object.assign(make("span", `mars-draft ${name}`), { ariaHidden: "true" });
  node.dataset.text = text.replaceAll("\n", "↵");
  return node;
};

// What masks propose for the next forward, behind the text, and what AR has just refused of the
// last proposals, struck through in front of what it says instead. The next record takes both away.
const drawDrafts = ({ slots }, refused, entries, into) => {
  const struck = refused.map(({ text }) => draftNode(text, "mars-struck"));
  const own = entries.find(({ token }) => token.source === "ar");
  own?.nodes[0]?.before(...struck);
  const proposed = slots.filter(({ accepted }) => !accepted).map(({ text }) => draftNode(text));
  if (own) into.append(...proposed);
  return [...struck, ...proposed];
};

// Where the next pass of an answer goes. What is appended has the browser lay out its whole block
// again, so a long answer is cut into blocks: at a newline or, where none comes for long, where the
// last line begins as it is laid out now.
const chunkOf = (() => {
  const FULL = 150; // nodes
  const LONG = 500;
  const startsLine = (node) => {
    const before = [...node.previousElementSibling.getClientRects()].at(-1);
    const here = node.getClientRects()[0];
    return before && here && here.top >= before.bottom;
  };
  const lastLine = ({ firstElementChild, lastElementChild, lastChild }) => {
    let node = lastElementChild;
    while (node !== firstElementChild && !startsLine(node)) node = node.previousElementSibling;
    if (node === firstElementChild) return null;
    const line = document.createRange();
    line.setStartBefore(node);
    line.setEndAfter(lastChild);
    return line;
  };
  return (text) => {
    const last = text.lastElementChild;
    const nodes = last?.childElementCount ?? 0;
    const ended = !last || (nodes > FULL && last.lastChild.textContent.endsWith("\n"));
    const line = !ended && nodes > LONG ? lastLine(last) : null;
    if (!ended && !line) return last;
    const chunk = make("span", "mars-chunk", line?.extractContents() ?? "");
    text.append(chunk);
    return chunk;
  };
})();

// Passes that are only examples; ar: the class of what AR would have chosen.
const sampleToken = (text, confidence, ar = "") => {
  const node = make("span", `mars-key ${ar}`, text);
  node.dataset.confidence = confidenceBin(confidence);
  return node;
};

const samplePass = (count, tint, ...children) => {
  const run = bracket(count, tint, ...children);
  closePass([run], count);
  return run;
};
