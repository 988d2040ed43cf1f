// The conversation: turns of a question and its answer, from the messages of a header.

// whitespace alone says nothing; so the server sees it, for which these controls are whitespace too
const says = (text) => /[^\s\x1c-\x1f\x85]/.test(text);

// Messages of the turns that were answered.
const messagesOf = (turns) =>
  turns
    .filter(({ question, answer }) => says(question) && says(answer))
    .flatMap(({ question, answer }) => [
      { role: "user", content: question },
      { role: "assistant", content: answer },
    ]);

// What a header's messages say: { system, asked: [{ question, answer }] }, the last one unanswered.
const turnsAsked = (messages) => {
  let system = "";
  const asked = [];
  for (const { role, content } of messages) {
    if (role === "system") system = content;
    else if (role === "user") asked.push({ question: content, answer: "" });
    else if (asked.length) asked.at(-1).answer = content;
  }
  if (!asked.length) asked.push({ question: "", answer: "" });
  return { system, asked };
};

// place: where the conversation goes. onEdit(turn): the reader wants to change its question.
const createTurns = (place, onEdit) => {
  const tokens = []; // of all turns, as they were drawn
  const turns = [];
  let edited = null;
  const system = make("div", "mars-system");
  const list = make("div", "mars-turns");
  const note = make("p", "mars-editing",
    "Editing: the prompt box has this text; Generate replaces it and what follows. ",
    button("Cancel", "mars-cancel", () => {
      const { node } = edited;
      edit(null);
      node.querySelector(".mars-edit").focus();
    }));
  place.append(system, list);

  const draw = ({ question, answer }) => {
    const text = Object.assign(make("div", "mars-text"), { dir: "auto" });
    if (answer) text.append(make("span", "mars-chunk mars-plain", answer));
    const turn = { question, answer, text, first: tokens.length };
    const buttons = button("Edit", "mars-edit", () => onEdit(turn));
    const asked = make("div", "mars-question", ...clamped("mars-asked", question), buttons);
    turn.node = make("article", "mars-turn", ...(question ? [asked] : []), text);
    list.append(turn.node);
    turns.push(turn);
  };
  const cutAt = (kept) => {
    const gone = turns.splice(kept);
    for (const { node } of gone) node.remove();
    if (gone.length) tokens.length = gone[0].first;
  };
  const drawSystem = (text) => {
    if (text === system.dataset.text) return;
    system.dataset.text = text;
    system.replaceChildren(...(text ? clamped("", `System: ${text}`) : []));
  };
  const edit = (turn) => {
    edited?.node.classList.remove("mars-edited");
    note.remove();
    edited = turn;
    turn?.node.classList.add("mars-edited");
    turn?.node.prepend(note);
  };
  return {
    tokens,
    edit,
    get edited() { return edited; },
    get last() { return turns.at(-1); },
    get count() { return turns.length; },
    clear() {
      edit(null);
      cutAt(0);
      drawSystem("");
    },
    // Returns the turn to be answered. Of those before it, what is drawn as the messages say stays.
    begin(messages) {
      edit(null);
      const { system: text, asked } = turnsAsked(messages);
      const stays = ({ question, answer }, i) =>
        i < asked.length - 1 && question === asked[i].question && answer === asked[i].answer;
      const gone = turns.findIndex((turn, i) => !stays(turn, i));
      if (gone >= 0) cutAt(gone);
      asked.slice(turns.length).forEach(draw);
      drawSystem(text);
      return turns.at(-1);
    },
    history: () => messagesOf(edited ? turns.slice(0, turns.indexOf(edited)) : turns),
    again() {
      const last = turns.at(-1);
      return last ? { prompt: last.question, history: messagesOf(turns.slice(0, -1)) } : null;
    },
    asText: () => [
      ...(system.dataset.text ? [`System: ${system.dataset.text}`] : []),
      ...turns.flatMap(({ question, answer }) => [`User: ${question}`, `Assistant: ${answer}`]),
    ].join("\n\n"),
  };
};
