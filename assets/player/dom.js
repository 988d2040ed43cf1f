// Small things every part of the player uses.

// Strings among the children become text nodes: whatever they hold, they are not parsed.
const make = (tag, className, ...children) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
};

const SVG = "http://www.w3.org/2000/svg";
const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const button = (label, className, onClick) => {
  const node = make("button", `mars-button ${className}`, label);
  node.type = "button";
  node.addEventListener("click", onClick);
  return node;
};

// settings of a trace may be anything: what is no number reads as NaN
const short = (number) => String(Number(Number(number).toFixed(2)));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const MODES = { one: "one token", verified: "verified" };
const setting = ({ mode, tau }) => MODES[mode] ?? `tau ${short(tau)}`;

// Text of several lines that shows its first ones (how many: CSS) until "Show all" is pressed.
// Of a very long one the rest is not even laid out before that.
const clamped = (() => {
  const START = 2000;
  const overflows = ({ scrollHeight, clientHeight }) => scrollHeight > clientHeight + 1;
  return (className, text) => {
    const body = Object.assign(make("p", className, text.slice(0, START)), { dir: "auto" });
    const more = button("Show all", "mars-more", () => {
      const open = body.classList.toggle("mars-open");
      body.textContent = open ? text : text.slice(0, START);
      more.textContent = open ? "Show less" : "Show all";
      more.ariaExpanded = String(open);
    });
    Object.assign(more, { hidden: true, ariaExpanded: "false" });
    new ResizeObserver(() => {
      if (body.classList.contains("mars-open")) return;
      more.hidden = text.length <= START && !overflows(body);
    }).observe(body);
    return [body, more];
  };
})();

// Put text on the clipboard; false where the browser refuses. Outside of a secure context (a page
// served over plain http) only the old way is there.
const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement;
    const area = Object.assign(make("textarea", "mars-hidden", text), { readOnly: true });
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
    return copied;
  }
};

// Copy text, and let the button say for a moment how that went; tell(words) hears it too.
const copyBy = async (button, text, tell = () => {}) => {
  const label = (button.dataset.label ??= button.textContent);
  const words = (await copyText(text)) ? "Copied" : "Could not copy";
  button.textContent = words;
  tell(`${words}.`);
  setTimeout(() => {
    button.textContent = label;
    tell("");
  }, 1500);
};
