"""A page with nothing but the player's files, Plotly and a plot, and records to feed it."""

from mars_core.export.player import PLAYER_FILES, PLAYER_SHEETS, player_text
from mars_core.trace import ControlRecord, SlotRecord, StepRecord, TokenRecord
from mars_core.ui.plots import confidence_figure, plotly_script
from tests.browser.harness import WAIT_MS

PAGE = f"""<!doctype html><meta charset="utf-8"><style>{player_text(PLAYER_SHEETS)}</style>
<body style="margin: 20px"></body>"""
MOUNT = """([source, figure]) => {
  document.body.className = "";
  document.body.innerHTML = '<div class="mars"><div id="plot"></div></div>';
  Object.assign(window, { hits: [], picks: [], reacts: 0 });
  const react = (...all) => { window.reacts += 1; return Plotly.react(...all); };
  const createPlot = new Function(source + "; return createPlot;")();
  window.plot = createPlot(document.querySelector("#plot"), {
    Plotly: { ...Plotly, react },
    figure,
    onHover: (hit, rect) => window.hits.push(hit && { ...hit, rect: rect.toJSON() }),
    onPick: (forward) => window.picks.push(forward),
  });
}"""
CHART = "document.querySelector('.mars-plot-chart')"
SCROLL = "document.querySelector('.mars-plot-scroll')"
DOTS, BARS, WORDS = ".scatterlayer .point", ".barlayer .point path", ".shapelayer text"
REJECTED, ACCEPTED = (f".scatterlayer .trace:nth-child({n}) .point" for n in (2, 3))


def open_sheet(browser, **context):
    """A page with Plotly that keeps a list of what must not happen."""
    page = browser.new_page(viewport={"width": 900, "height": 600}, **context)
    page.set_default_timeout(WAIT_MS)
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda request: page.wrong.append(request.url))
    page.on("console", lambda message: page.wrong.append(message.text))
    page.set_content(PAGE)
    page.add_script_tag(path=plotly_script())
    return page


def mount(page):
    page.evaluate(MOUNT, [player_text(PLAYER_FILES), confidence_figure()])


def step(forward, confidences, accepted=1, mode="tau", tau=0.9, row=0):
    """A forward with these confidences, of which the first `accepted` became tokens."""
    tokens = [TokenRecord(id=7, text="a", source="slot", slot=i) for i in range(accepted)]
    slots = [
        SlotRecord(slot=i, id=7, text="a", prob=0.5, confidence=value, accepted=i < accepted)
        for i, value in enumerate(confidences)
    ]
    return StepRecord(
        type="step", row=row, forward=forward, mode=mode, tau=tau, fed=4, position=forward, ms=10,
        slots=tuple(slots), tokens=tuple(tokens),
    )  # fmt: skip


def move(forward, tau, mode="tau"):
    return ControlRecord(type="control", row=0, forward=forward, mode=mode, tau=tau)


def plain(first, last, slots=4, **settings):
    return [step(n, [0.9] * slots, 1 + n % 2, **settings) for n in range(first, last + 1)]


def add(page, records):
    """Give records to the plot and ask for a redraw, as the player does."""
    lines = ",".join(record.model_dump_json() for record in records)
    page.evaluate(
        "text => { JSON.parse(text).forEach((record) => plot.add(record)); plot.draw(); }",
        f"[{lines}]",
    )


def show(page, records):
    """The same, and wait until the last forward is in the chart."""
    add(page, records)
    last = max(record.forward for record in records if record.type == "step")
    shown(page, last)


def settled(page, condition="true"):
    """Wait until the chart is where it was scrolled to, and `condition` of its bars' x holds."""
    page.wait_for_function(
        f"""() => {{
          const x = {CHART}.data?.find((trace) => trace.name === "tokens").x;
          if (!x || !({condition})) return false;
          const {{ xaxis, margin }} = {CHART}.layout;
          const [from, to] = xaxis.range;
          const width = ({SCROLL}.clientWidth - margin.l - margin.r) / (to - from);
          return Math.abs((from - 0.5) * width - {SCROLL}.scrollLeft) < 1;
        }}"""
    )


def shown(page, forward):
    settled(page, f"x.includes({forward})")


def trace(page, name):
    return page.evaluate(f"name => {CHART}.data.find((trace) => trace.name === name)", name)


def ink(page, name):
    """A colour of the player's sheet, as it is in the page's theme."""
    return page.evaluate(
        """name => {
          const probe = document.createElement("i");
          probe.style.color = `var(--mars-${name})`;
          document.querySelector(".mars").append(probe);
          const { color } = getComputedStyle(probe);
          probe.remove();
          return color;
        }""",
        name,
    )


def boxes(page, selector):
    return page.eval_on_selector_all(
        f".mars-plot-chart {selector}",
        "nodes => nodes.map((node) => node.getBoundingClientRect().toJSON())",
    )


def fills(page, selector):
    return page.eval_on_selector_all(
        f".mars-plot-chart {selector}", "nodes => nodes.map((node) => getComputedStyle(node).fill)"
    )


def middle(box):
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def point_at(page, box):
    page.mouse.move(*middle(box))
    page.wait_for_function("hits.at(-1)")
    return page.evaluate("hits.at(-1)")
