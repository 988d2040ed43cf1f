// How a recording was made: everything its numbers depend on.

const FACTS = {
  Model: ({ model: { name, weights } }) => `${name} (${weights})`,
  Training: ({ model: { trained, block_size: size } }) =>
    trained ? `for MARS${size ? `, B = ${size}` : ""}` : "not for MARS",
  Adapter: ({ model }) => model.adapter,
  Licence: ({ model }) => model.licence,
  Device: ({ device, dtype }) => `${device}, ${dtype}`,
  Memory: ({ memory }) =>
    memory && Object.entries(memory).map(([name, bytes]) => `${name} ${bytesText(bytes)}`).join(", "),
  Settings: ({ settings: s }) =>
    `tau ${short(s.tau)}, B = ${s.block_size}${s.use_last_mask ? " + 1" : ""}, ` +
    `${s.temperature ? `temperature ${short(s.temperature)}, seed ${s.seed}` : "greedy"}, ` +
    `up to ${plural(s.max_new_tokens, "token")}`,
  Versions: ({ versions }) =>
    Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", "),
  Made: ({ created }) => created,
  Command: ({ command }) => command,
};

const bytesText = (bytes) =>
  bytes < 999.5e6 ? `${(bytes / 1e6).toFixed(bytes < 10e6 ? 1 : 0)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;

// header: of a trace; first: of the recording (a race has one of its own).
const factsOf = (header, first = header) => {
  const list = make("dl");
  for (const [label, tell] of Object.entries(FACTS)) {
    const text = label === "Command" ? first.command : tell(header);
    if (text) list.append(make("dt", "", label), make("dd", "", String(text)));
  }
  return make("details", "mars-facts", make("summary", "", "How this was measured"), list);
};
