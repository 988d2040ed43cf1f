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
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import api

from mars_core.errors import MarsError
from mars_core.export.player import PLAYER_FILES, player_text, style_element
from mars_core.models.progress import LatestProgress
from mars_core.paths import assets_dir
from mars_core.switching import Switcher
from mars_core.ui import links, view
from mars_core.ui.controls import Picker, Rail, rail
from mars_core.ui.handlers import Handlers
from mars_core.ui.limits import NO_LIMITS, Limits
from mars_core.ui.line import Line
from mars_core.ui.model_handlers import ModelHandlers
from mars_core.ui.plots import confidence_figure
from mars_core.ui.routes import routes

# Every listener that runs the model shares this queue. They take turns in `Handlers.line`, which
# can tell each its place; beyond this many, Gradio holds them back. Each holds a thread, and
# sliders, Stop and downloads need some as well.
MODEL = "model"
MOST_WAITING = 64
QUEUE_SECONDS, PROGRESS_SECONDS = 0.05, 0.5
THREADS = 96
UPLOADS_KEPT = (3600, 3600)  # looked through so often, and so old: seconds
RECORDED = "A recording. Press Race to run it on this machine, or write a prompt of your own."
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
const askServer = (path, body) =>
  fetch(new URL(path, document.baseURI), body === undefined ? {} : { method: "POST", body });
const studio = createStudio(root, { plotly, figure: FIGURE, server: askServer });
const narrow = matchMedia("(max-width: 820px)");
root.addEventListener("mars-state", (event) => {
  const asked = document.body.dataset.mars === "waiting"; // and no recording that plays
  document.body.dataset.mars = studio.state;
  const begins = asked && event.detail === "running";
  if (begins && narrow.matches) root.scrollIntoView({ block: "start" });
});
document.body.dataset.mars = studio.state;
for (const name of ["gap", "again", "edit", "over"]) {
  root.addEventListener(`mars-${name}`, () => trigger(name));
}
watch("value", () => studio.feed(props.value));
studio.feed(props.value);
window.marsPlayer = studio.player;
window.marsStudio = studio;
"""
# the conversation before this prompt takes the place of the (hidden) history field
WITH_HISTORY = """(prompt, history, ...settings) =>
  [prompt, window.marsPlayer.history(), ...settings]"""
LAST_TURN = """(prompt, history, ...settings) => {
  const last = window.marsPlayer.again();
  return [last.prompt, last.history, ...settings];
}"""
# without a prompt the question that is shown is raced
RACED = """(prompt, history, ...settings) =>
  [prompt.trim() ? prompt : window.marsStudio.question, null, ...settings]"""
# what differs from the defaults; an address cannot hold the conversation
COPY_LINK = """(...values) => {
  const query = new URLSearchParams();
  NAMES.forEach((name, i) => {
    const value = Array.isArray(values[i]) ? values[i].join() : String(values[i] ?? "");
    const needed = ["prompts", "batch_lanes"].includes(name);
    if (value !== DEFAULTS[name] && (value.trim() || !needed)) query.set(name, value);
  });
  const link = new URL(`?${query}`, document.baseURI);
  window.marsStudio.copy(document.querySelector("#link"), String(link));
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


def build_demo(
    engine: Future[Any],
    name: str = "",
    recording: str = "",
    switcher: Switcher | None = None,
    limits: Limits = NO_LIMITS,
    loading: LatestProgress | None = None,
) -> gr.Blocks:
    """The page for an engine, which may still be on its way; `launch` serves it.

    name, loading: how the model is called until it is there, and how far it is. recording: what is
    shown at first, JSON Lines. switcher: lets visitors choose another model; None: nobody can.
    limits: of what one may ask.
    """
    model = ModelHandlers(engine, Line(), name, loading, switcher)
    handlers = Handlers(model, limits)
    ready = engine.done()  # asked once: it may become so while the page is built
    head, notices = model.shown()
    with gr.Blocks(
        title="MARS Studio",
        analytics_enabled=False,
        fill_width=True,
        delete_cache=UPLOADS_KEPT,  # nothing of ours: Gradio takes files from anybody
    ) as demo:
        with gr.Row(elem_id="studio"):
            with gr.Column(scale=0, min_width=320, elem_id="rail"):
                controls = rail(head, switcher.base.model if switcher else None)
            with gr.Column(min_width=320, elem_id="stage"):
                player = _player(recording and view.shown_recording(recording, RECORDED))
                below = gr.HTML(notices, apply_default_css=False)
        if switcher or not ready:
            demo.load(
                model.opened,
                None,
                [controls.head, below],
                show_progress="hidden",
                api_visibility="private",
                concurrency_limit=MOST_WAITING,
            )
        shown = [controls.head, below]
        _wire(demo, handlers, controls, player, shown)
        if controls.picker:
            _wire_model(demo, model, controls.picker, shown)
    return demo


def build_replay_demo(recordings: Mapping[str, str]) -> gr.Blocks:
    """A page without a model, which shows recordings: these, by name, and what is opened."""
    shown = {name: view.shown_recording(lines, "", name) for name, lines in recordings.items()}
    with gr.Blocks(title="MARS Studio", analytics_enabled=False, fill_width=True) as demo:
        with gr.Row(elem_id="studio"):
            with gr.Column(scale=0, min_width=320, elem_id="rail"):
                gr.HTML(view.head_html("recordings only, no model"), apply_default_css=False)
                with gr.Row(elem_id="presets"):
                    chips = {
                        name: gr.Button(name, size="sm", min_width=0, elem_classes="chip")
                        for name in shown
                    }
            with gr.Column(min_width=320, elem_id="stage"):
                _player(next(iter(shown.values()), ""))
        for name, chip in chips.items():
            chip.click(None, None, None, js=f"() => marsStudio.feed({json.dumps(shown[name])})")
    return demo


def _player(value: str) -> gr.HTML:
    """The stage; value: what it shows at first."""
    return gr.HTML(
        value,
        html_template=PLAYER_TEMPLATE,
        js_on_load=_player_source(),
        apply_default_css=False,
        elem_id="player",
    )


def _wire(
    demo: gr.Blocks, handlers: Handlers, controls: Rail, player: Any, shown: list[gr.HTML]
) -> None:
    """Attach the listeners; shown: what tells of the model that is there."""
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
    raced = controls.race.click(
        handlers.ask_race, [*inputs, *controls.race_inputs], player, js=RACED, **at_once
    )
    prompts, *of_batches = controls.batch_inputs
    batched = controls.batch.click(
        handlers.ask_batch,
        [prompts, inputs.system, *inputs[3:], *of_batches],
        player,
        **at_once,
    )
    for accepted in (asked, again, raced, batched):
        ran = accepted.then(handlers.run, None, player, trigger_mode="multiple", **queued, **hidden)
        if controls.picker:  # somebody else may have changed the model meanwhile
            ran.then(handlers.model.shown, None, shown, concurrency_limit=8, **hidden)
    player.edit(None, None, inputs.prompt, js=EDITED)
    # a run may end while the whole of it is under way, and then that is not the whole
    player.gap(handlers.whole, None, player, queue=False, trigger_mode="always_last", **hidden)
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
    linked = _linked(controls)
    controls.link.click(None, list(linked.values()), None, js=_copy_link(linked))
    demo.load(
        handlers.linked,
        None,
        [player, *linked.values()],
        queue=False,
        **hidden,
    )
    api(handlers.generate, api_name="generate", **queued)
    api(handlers.race, api_name="race", **queued)
    api(handlers.batch, api_name="batch", **queued)
    demo.unload(handlers.leave)


def _wire_model(
    demo: gr.Blocks, model: ModelHandlers, picker: Picker, shown: list[gr.HTML]
) -> None:
    """Attach the listeners of the choice of a model; shown: what tells of the one that is there."""
    *chosen, choice, load = picker
    quietly: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    # the choice is not set again once the model is there: somebody may have begun to choose
    opened = demo.load(model.chosen, None, chosen, concurrency_limit=8, **quietly)
    opened.then(model.details, None, choice, concurrency_limit=8, **quietly)
    gr.on(
        [picker.model.input, picker.adapter.blur, picker.quantize.input],
        model.weigh,
        chosen,
        choice,
        concurrency_limit=8,
        trigger_mode="always_last",
        **quietly,
    )
    load.click(model.switch, chosen, [*shown, choice], **quietly)


def _linked(controls: Rail) -> dict[str, Component]:
    """What a link can set, by its names there."""
    inputs = controls.inputs
    more = (*controls.race_inputs, *controls.batch_inputs)
    components = (inputs.prompt, inputs.system, *inputs[3:], *more)
    return dict(zip(links.NAMES, components, strict=True))


def _copy_link(linked: Mapping[str, Component]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return ",".join(value)
        return f"{value:g}" if isinstance(value, (int, float)) else str(value or "")

    defaults = {name: shown(component.value) for name, component in linked.items()}
    script = COPY_LINK.replace("NAMES", json.dumps(list(linked)))
    return script.replace("DEFAULTS", json.dumps(defaults))


def _player_source() -> str:
    """The player's files in one scope, and the lines that tie it to the page."""
    figure = f"const FIGURE = {json.dumps(confidence_figure())};"
    return "\n".join([player_text(PLAYER_FILES), figure, PLAYER_GLUE])


def launch_options() -> dict[str, Any]:
    """What `launch` needs for the look. Everything is inline: the page asks no other server."""
    page_sheet = (assets_dir() / "page.css").read_text(encoding="utf-8")
    theme = gr.themes.Base(
        primary_hue="zinc",
        neutral_hue="zinc",
        font=["ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "monospace"],
        radius_size=gr.themes.sizes.radius_lg,
    )
    # not `css=`: Gradio would prefix its rules, and `.dark` is set outside of what it prefixes
    return {"theme": theme, "head": style_element(page_sheet)}


def launch(
    demo: gr.Blocks,
    host: str,
    port: int | None,
    limits: Limits = NO_LIMITS,
    *,
    mcp: bool = False,
) -> str:
    """Start serving the page in the background, never shared; returns its address.

    port: None or 0 takes a free one. limits: of what is uploaded. mcp: serve the endpoints as tools
    of the Model Context Protocol too. Raises MarsError where it cannot listen there.
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
        mcp_server=mcp,
        run_history=False,
        footer_links=["api"],
        quiet=True,  # Gradio's own words would advertise public links
        prevent_thread_lock=True,
        max_threads=THREADS,
        max_file_size=limits.upload,
        app_kwargs={"routes": routes(limits.upload)},
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
