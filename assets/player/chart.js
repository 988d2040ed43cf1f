// The plot's place under the stream. It is loaded when the page has nothing else to do; until then,
// and where there is none, what it is told goes nowhere.

// options: { plotly, figure } as of createPlayer. records(): of the run that is drawn.
const createChart = (holder, { plotly, figure }, records, listeners) => {
  let plot = null;
  const load = async () => {
    const place = make("div");
    holder.replaceChildren(place);
    try {
      plot = createPlot(place, { Plotly: await plotly(), figure, ...listeners });
      for (const record of records()) plot.add(record);
      plot.draw();
    } catch (error) {
      console.warn(error);
      plot = null;
      const words = "The plot could not be loaded; everything else works without it.";
      holder.replaceChildren(make("p", "mars-quiet", words));
    }
  };
  holder.hidden = !(plotly && figure); // its room is kept from the beginning: nothing jumps later
  if (!holder.hidden) (window.requestIdleCallback ?? setTimeout)(load);
  return {
    reset: () => plot?.reset(),
    add: (record) => plot?.add(record),
    draw: () => plot?.draw(),
    light: (forward) => plot?.light(forward),
  };
};
