// From the texts of tokens to what is drawn: parts of one token, atoms of a pass, lines of a pass.

// Kinds of parts: a word, a stretch of spaces, one tab or newline, and `control`: one character that
// is not seen (control, zero width, direction), and so may hide something. Those that shape the
// character before them belong to its word: variation selectors, the tags of a flag, and a joiner
// in an emoji or behind a mark. What a token begins with may join what the last one ended with.
const createCutter = (() => {
  const SEEN = "[^\\s\\p{Cc}\\p{DI}]";
  const TAG = "[\\u{e0020}-\\u{e007f}]";
  const SELECTOR = "[\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}]";
  const JOINS = "[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\p{M}\\ufe0f]";
  const UNIT = `(?:\\u{1f3f4}${TAG}*|${SEEN})${SELECTOR}?(?:(?<=${JOINS})\\u200d)?`;
  const PARTS = new RegExp(`(?:${UNIT})+|\\p{Zs}+|[^]`, "gu");
  const LAST = new RegExp(`(?:${UNIT})$`, "u");
  const kindOf = (part) => {
    if (part === "\n") return "newline";
    if (part === "\t") return "tab";
    if (/^\p{Zs}/u.test(part)) return "space";
    return /^[\s\p{Cc}\p{DI}]/u.test(part) ? "control" : "word";
  };
  return () => {
    let last = ""; // the character the text ends with, if the next one can join it
    return (text) => {
      const parts = (last + text).match(PARTS) || [];
      if (last) parts[0] = parts[0].slice(last.length);
      const joined = last && parts[0];
      last = LAST.exec(last + text)?.[0] ?? "";
      const kind = (part, i) => (joined && i === 0 ? "word" : kindOf(part));
      return parts.filter(Boolean).map((part, i) => ({ text: part, kind: kind(part, i) }));
    };
  };
})();

const codePoint = (character) =>
  `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

// A text as a label of one line, with everything in it to be seen.
const quoted = (text) => {
  const shown = { newline: () => "↵", tab: () => "→", control: codePoint };
  const parts = createCutter()(text);
  return `“${parts.map(({ kind, text: part }) => shown[kind]?.(part) ?? part).join("")}”`;
};

// Cut a pass into atoms, the parts of its tokens. Two more kinds: a special token, and `part`, a
// token that added no text because its character is still incomplete.
const atomsOf = (entries, cut) =>
  entries.flatMap((entry) => {
    const { special, text } = entry.token;
    if (special) return [{ kind: "special", entry, text: special }];
    if (!text) return [{ kind: "part", entry, text }];
    return cut(text).map((part) => ({ ...part, entry }));
  });

// Lines of a pass: { lead, core, tail, newlines, bracket }. Spaces at the edges stay outside the
// bracket (lead, tail), and so do newlines, so that neither a gap nor an empty line is ever tinted.
// Lines without a word get a bracket only where the pass has no word at all.
const linesOf = (() => {
  const isBlank = ({ kind }) => kind === "space" || kind === "tab";
  const isWord = ({ kind }) => kind === "word";
  const split = (atoms) => {
    const lines = [{ core: [], newlines: [] }];
    for (const atom of atoms) {
      if (atom.kind === "newline") lines.at(-1).newlines.push(atom);
      else {
        if (lines.at(-1).newlines.length) lines.push({ core: [], newlines: [] });
        lines.at(-1).core.push(atom);
      }
    }
    return lines;
  };
  return (atoms) => {
    const lines = split(atoms);
    const words = atoms.some(isWord);
    const blank = atoms.every(isBlank);
    for (const line of lines) {
      const { core, newlines } = line;
      [line.lead, line.tail] = [[], []];
      while (!blank && core.length && isBlank(core[0])) line.lead.push(core.shift());
      while (!blank && core.length && isBlank(core.at(-1))) line.tail.unshift(core.pop());
      line.bracket = words ? core.some(isWord) : core.length + newlines.length > 0;
    }
    return lines;
  };
})();
