// The colour modes: how values become marks, the choice among the modes, and a legend for each.
// The colours themselves are in colours.css.

const TINTS = 6;
const LEVELS = [2, 3, 4, 5, 8]; // tokens of one pass; the last ones stand for 5 to 7, and 8 or more
const CONFIDENCE_BINS = [0.3, 0.5, 0.7, 0.9]; // lower edges of the bins above the first

const levelOf = (count) => LEVELS.findLast((level) => count >= level) ?? 1;
const confidenceBin = (confidence) => CONFIDENCE_BINS.filter((edge) => confidence >= edge).length;

const COLOUR_MODES = {
  pass: "Pass",
  count: "Tokens per pass",
  confidence: "Confidence",
  agreement: "AR agreement",
};

const LEGENDS = (() => {
  const entry = (words, ...samples) => {
    for (const sample of samples) sample.ariaHidden = "true";
    return make("li", "", ...samples, make("span", "", words));
  };
  const word = (confidence, ar) => sampleToken("abc", confidence, ar);
  const pass = (count) => samplePass(count, 0, "abc");
  const plain = () => entry("one token in its pass", word(1));
  const wavy = () => entry("AR would have chosen another token here", word(1, "mars-odd"));
  const bracketed = () => entry("one forward pass, and its number of tokens", pass(3));
  // of verified decoding alone
  const drafts = () =>
    [
      entry("drafted for the next pass", draftNode("abc")),
      entry("AR did not agree", draftNode("abc", "mars-struck")),
    ].map((node) => (node.classList.add("mars-of-drafts"), node));
  return {
    pass: () => [bracketed(), plain(), wavy(), ...drafts()],
    count: () => [
      entry("tokens of one forward pass: 2, 3, 4, 5 to 7, 8 or more", ...LEVELS.map(pass)),
      plain(),
      wavy(),
      ...drafts(),
    ],
    confidence: () => [
      entry("at least 0.9", word(0.9)),
      entry("0.7 to 0.9", word(0.7)),
      entry("0.5 to 0.7", word(0.5)),
      entry("0.3 to 0.5", word(0.3)),
      entry("below 0.3", word(0)),
      bracketed(),
    ],
    agreement: () => [
      entry("AR’s own choice: the first token of a pass", word(1)),
      entry("agreed, seen one pass later", word(1, "mars-same")),
      entry("differs", word(1, "mars-odd")),
      entry("not known: no later pass saw it", word(1, "mars-unseen")),
      bracketed(),
    ],
  };
})();

// The legends of all modes; CSS shows the one that fits.
const legendLists = () =>
  Object.entries(LEGENDS).map(([mode, entries]) => {
    const list = make("ul", "mars-legend", ...entries());
    list.dataset.for = mode;
    return list;
  });

// "Colour by": one radio per mode. The choice is a data attribute of the root, and is remembered.
const colourChoice = (() => {
  const KEY = "mars-colour";
  let choices = 0; // two players on a page have a group of radios each
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden
    }
  };
  const remember = (mode) => {
    try {
      localStorage.setItem(KEY, mode);
    } catch {
      // then it holds until the page is closed
    }
  };
  return (root) => {
    choices += 1;
    const before = remembered();
    root.dataset.colour = Object.hasOwn(COLOUR_MODES, before) ? before : "pass";
    const options = Object.entries(COLOUR_MODES).map(([mode, label]) => {
      const input = make("input");
      Object.assign(input, { type: "radio", name: `mars-colour-${choices}`, value: mode });
      input.checked = mode === root.dataset.colour;
      input.addEventListener("change", () => remember((root.dataset.colour = mode)));
      return make("label", "", input, make("span", "", label));
    });
    return make("fieldset", "mars-colours", make("legend", "", "Colour by"), ...options);
  };
})();
