"""The page, wired in Gradio. Everything it shows is prepared in `view.py` and drawn by the player.

How a run reaches the browser: one `gr.HTML` whose template is static. Its value is the end of the
growing trace; Gradio sends only the new suffix of a string that grows, the template does not change
so nothing is rendered again, and `watch` hands the value to the player. The conversation so far is
what the player shows, so it goes the other way with every prompt and the server keeps none.
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import gradio as gr
from gradio.events import api
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from mars_core.errors import MarsError
from mars_core.paths import assets_dir
from mars_core.ui import view
from mars_core.ui.controls import Rail, rail
from mars_core.ui.handlers import Handlers
from mars_core.ui.plots import confidence_figure, plotly_script

# Every listener that runs the model shares this queue. They take turns in `Handlers.line`, which
# can tell each its place; beyond this many, Gradio holds them back. Each holds a thread, and
# sliders, Stop and downloads need some as well.
MODEL = "model"
MOST_WAITING = 64
QUEUE_SECONDS, PROGRESS_SECONDS = 0.05, 0.5
THREADS = 96
PLAYER_FILES = (
    "dom.js", "text.js", "colours.js", "passes.js", "card.js", "run.js", "turns.js",
    "reader.js", "feed.js", "plot.js", "chart.js", "frame.js", "player.js",
)  # fmt: skip
PLAYER_SHEETS = ("colours.css", "player.css", "stream.css", "plot.css")
PLAYER_TEMPLATE = '<div class="mars-root"></div>'
PLAYER_GLUE = """
const root = element.querySelector(".mars-root");
const plotly = () => new Promise((resolve, reject) => {
  const script = document.createElement("script");
  script.src = new URL("plotly.js", document.baseURI);
  script.onload = () => resolve(window.Plotly);
  script.onerror = reject;
  document.head.append(script);
});
const player = createPlayer(root, { plotly, figure: FIGURE });
const narrow = matchMedia("(max-width: 820px)");
root.addEventListener("mars-state", (event) => {
  document.body.dataset.mars = event.detail;
  if (event.detail === "running" && narrow.matches) root.scrollIntoView({ block: "start" });
});
document.body.dataset.mars = root.dataset.state;
for (const name of ["gap", "again", "edit", "over"]) {
  root.addEventListener(`mars-${name}`, () => trigger(name));
}
watch("value", () => player.feed(props.value));
player.feed(props.value);
window.marsPlayer = player;
"""
# the conversation before this prompt takes the place of the (hidden) history field
WITH_HISTORY = """(prompt, history, ...settings) =>
  [prompt, window.marsPlayer.history(), ...settings]"""
LAST_TURN = """(prompt, history, ...settings) => {
  const last = window.marsPlayer.again();
  return [last.prompt, last.history, ...settings];
}"""
EDITED = """() => {
  document.querySelector("#prompt textarea").focus();
  return window.marsPlayer.editing;
}"""

# while a number is being typed it may be out of range or nothing at all (then: as before)
TAU_IN_RANGE = """(mode, tau) => {
  const typed = typeof tau === "number" && Number.isFinite(tau);
  window.marsTau = typed ? Math.min(1, Math.max(0, tau)) : (window.marsTau ?? 1);
  return [mode, window.marsTau];
}"""


def build_demo(engine: Future[Any], name: str = "") -> gr.Blocks:
    """The page for an engine, which may still be on its way; `launch` serves it.

    name: how the model is called until it is there.
    """
    handlers = Handlers(engine)
    ready = engine.done()  # asked once: it may become so while the page is built
    head, notices = handlers.model() if ready else (view.head_html(f"{name} · loading …"), "")
    with gr.Blocks(title="MARS Studio", analytics_enabled=False, fill_width=True) as demo:
        with gr.Row(elem_id="studio"):
            with gr.Column(scale=0, min_width=320, elem_id="rail"):
                controls = rail(head)
            with gr.Column(min_width=320, elem_id="stage"):
                player = gr.HTML(
                    "",
                    html_template=PLAYER_TEMPLATE,
                    js_on_load=_player_source(),
                    apply_default_css=False,
                    elem_id="player",
                )
                below = gr.HTML(notices, apply_default_css=False)
        if not ready:
            demo.load(
                handlers.model,
                None,
                [controls.head, below],
                show_progress="hidden",
                api_visibility="private",
                concurrency_limit=8,
            )
        _wire(demo, handlers, controls, player)
    return demo


def _wire(demo: gr.Blocks, handlers: Handlers, controls: Rail, player: Any) -> None:
    """Attach the listeners."""
    inputs = controls.inputs
    hidden: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    # not queued, and never dropped because an earlier call is still under way
    at_once: dict[str, Any] = {"queue": False, "trigger_mode": "multiple", **hidden}
    queued: dict[str, Any] = {"concurrency_id": MODEL, "concurrency_limit": MOST_WAITING}
    asked = gr.on(
        [controls.generate.click, inputs.prompt.submit],
        handlers.ask,
        list(inputs),
        [player, inputs.prompt],
        js=WITH_HISTORY,
        **at_once,
    )
    again = player.again(
        handlers.again, list(inputs), [player, inputs.seed], js=LAST_TURN, **at_once
    )
    for accepted in (asked, again):
        accepted.then(handlers.run, None, player, trigger_mode="multiple", **queued, **hidden)
    player.edit(None, None, inputs.prompt, js=EDITED)
    player.gap(handlers.whole, None, player, queue=False, **hidden)
    for stops in (controls.stop.click, player.over):
        stops(handlers.stop, None, None, **at_once)
    gr.on(
        # `change` too: a number typed beside the slider is brought into range without an `input`
        [inputs.tau.input, inputs.tau.change, inputs.mode.input],
        handlers.steer,
        [inputs.mode, inputs.tau],
        controls.note,
        js=TAU_IN_RANGE,
        queue=False,
        concurrency_limit=None,
        trigger_mode="always_last",
        **hidden,
    )
    api(handlers.generate, api_name="generate", **queued)
    demo.unload(handlers.leave)


def _player_source() -> str:
    """The player's files in one scope, and the lines that tie it to the page."""
    figure = f"const FIGURE = {json.dumps(confidence_figure())};"
    return "\n".join([player_text(PLAYER_FILES), figure, PLAYER_GLUE])


def player_text(names: Iterable[str]) -> str:
    """These files of the player, one after the other."""
    folder = assets_dir() / "player"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def launch_options() -> dict[str, Any]:
    """What `launch` needs for the look. Everything is inline: the page asks no other server."""
    page_sheet = (assets_dir() / "page.css").read_text(encoding="utf-8")
    css = f"{player_text(PLAYER_SHEETS)}\n{page_sheet}"
    theme = gr.themes.Base(
        primary_hue="zinc",
        neutral_hue="zinc",
        font=["ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "monospace"],
        radius_size=gr.themes.sizes.radius_lg,
    )
    # not `css=`: Gradio would prefix its rules, and `.dark` is set outside of what it prefixes
    return {"theme": theme, "head": f"<style>{css}</style>"}


def routes() -> list[Route]:
    """What the page asks for besides Gradio's own: plotly.js, from the package that ships it."""
    script = plotly_script()

    async def plotly_js(_request: Request) -> FileResponse:
        # another version has another ETag, and costs a question an hour
        return FileResponse(script, headers={"Cache-Control": "max-age=3600"})

    return [Route("/plotly.js", plotly_js)]


def launch(demo: gr.Blocks, host: str, port: int | None) -> str:
    """Start serving the page in the background, never shared; returns its address.

    port: None or 0 takes a free one. Raises MarsError where it cannot listen there.
    """
    check_address(host, port or 0)
    # By default (but on Windows) Gradio looks for work a thousand times a second and for progress a
    # hundred times: 6 % of a core, and whatever wakes up delays a forward that uses all of them.
    demo._queue.sleep_when_free = QUEUE_SECONDS
    demo._queue.progress_update_sleep_when_free = PROGRESS_SECONDS
    _, address, _ = demo.launch(
        server_name=host,
        server_port=port or None,
        share=False,
        run_history=False,
        footer_links=["api"],
        quiet=True,  # Gradio's own words would advertise public links
        prevent_thread_lock=True,
        max_threads=THREADS,
        app_kwargs={"routes": routes()},
        **launch_options(),
    )
    return str(address)


def check_address(host: str, port: int) -> None:
    """Raise MarsError unless one can listen there; Gradio calls every such failure a busy port."""
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        problem = "in use" if taken else f"not to be had ({error.strerror})"
        raise MarsError(
            f"port {port} of {host} is {problem}; choose another with --port or --host"
        ) from None
