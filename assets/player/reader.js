// Reading token by token, with the pointer or the arrow keys: the card of the token that is read,
// and the pass that is pointed at in the plot.

// tokens: all that are drawn. onRead(token or null): which one is read.
const createReader = (stream, card, tokens, onRead) => {
  let read = -1; // index of the token whose card is open
  let lit = []; // nodes of the pass that is pointed at in the plot

  const hide = () => {
    for (const node of tokens[read]?.nodes ?? []) node.classList.remove("mars-picked");
    for (const node of lit) node.classList.remove("mars-lit");
    if (read >= 0) onRead(null);
    [read, lit] = [-1, []];
    card.hide();
  };
  const show = (index) => {
    const entry = tokens[index];
    if (index === read || !entry) return;
    hide();
    read = index;
    for (const node of marked(entry)) node.classList.add("mars-picked");
    card.show(tokenCard(entry), marked(entry)[0].getBoundingClientRect());
    onRead(entry);
  };
  const onKey = (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!move || !tokens.length) return;
    event.preventDefault();
    const index = Math.min(tokens.length - 1, Math.max(0, read + move));
    tokens[index].nodes[0].scrollIntoView({ block: "nearest" });
    show(index);
  };
  stream.addEventListener("pointerover", ({ target }) => {
    const node = target.closest("[data-token]");
    if (node) show(Number(node.dataset.token));
    else hide();
  });
  stream.addEventListener("pointerleave", hide);
  stream.addEventListener("blur", hide);
  stream.addEventListener("keydown", onKey);

  return {
    hide,
    // pass: { record, entries }; the card of its slot (null: of the pass) is shown at `place`
    light(pass, slot, place) {
      hide();
      lit = pass.entries.flatMap(marked);
      for (const node of lit) node.classList.add("mars-lit");
      card.show(cardAt(pass, slot, tokens.slice(pass.entries.at(-1).index + 1)), place);
    },
  };
};
