"""The page, wired in Gradio. Everything it shows is prepared in `view.py` and drawn by the player.

How a run reaches the browser: one `gr.HTML` whose template is static. Its value is the end of the
growing trace; Gradio sends only the new suffix of a string that grows, the template does not change
so nothing is rendered again, and `watch` hands the value to the player.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

import gradio as gr
from gradio.events import api

from mars_core.errors import MarsError
from mars_core.paths import assets_dir
from mars_core.ui import view
from mars_core.ui.controls import Rail, rail
from mars_core.ui.handlers import Generates, Handlers

# every listener that runs the model shares this queue of one
MODEL = "model"
PLAYER_TEMPLATE = '<div class="mars-root"></div>'
PLAYER_GLUE = """
const root = element.querySelector(".mars-root");
const player = createPlayer(root);
const narrow = matchMedia("(max-width: 820px)");
root.addEventListener("mars-state", (event) => {
  document.body.dataset.mars = event.detail;
  if (event.detail === "running" && narrow.matches) root.scrollIntoView({ block: "start" });
});
document.body.dataset.mars = root.dataset.state;
root.addEventListener("mars-gap", () => trigger("gap"));
watch("value", () => player.feed(props.value));
player.feed(props.value);
window.marsPlayer = player;
"""

# while a number is being typed it may be out of range or nothing at all (then: as before)
TAU_IN_RANGE = """(mode, tau) => {
  const typed = typeof tau === "number" && Number.isFinite(tau);
  window.marsTau = typed ? Math.min(1, Math.max(0, tau)) : (window.marsTau ?? 1);
  return [mode, window.marsTau];
}"""


def build_demo(engine: Generates) -> gr.Blocks:
    """The page for a loaded engine; `launch` serves it."""
    facts = model_facts(engine.loaded)
    with gr.Blocks(title="MARS Studio", analytics_enabled=False, fill_width=True) as demo:
        with gr.Row(elem_id="studio"):
            with gr.Column(scale=0, min_width=320, elem_id="rail"):
                controls = rail(facts)
            with gr.Column(min_width=320, elem_id="stage"):
                player = gr.HTML(
                    "",
                    html_template=PLAYER_TEMPLATE,
                    js_on_load=_player_source() + PLAYER_GLUE,
                    apply_default_css=False,
                    elem_id="player",
                )
                gr.HTML(view.notices_html(facts), apply_default_css=False)
        _wire(demo, Handlers(engine), controls, player)
    return demo


def _wire(demo: gr.Blocks, handlers: Handlers, controls: Rail, player: gr.HTML) -> None:
    """Attach the listeners."""
    inputs = controls.inputs
    hidden: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    # not queued, and never dropped because an earlier call is still under way
    at_once: dict[str, Any] = {"queue": False, "trigger_mode": "multiple", **hidden}
    asked = gr.on(
        [controls.generate.click, inputs.prompt.submit],
        handlers.ask,
        list(inputs),
        player,
        **at_once,
    )
    asked.then(
        handlers.run,
        list(inputs),
        player,
        trigger_mode="multiple",
        concurrency_id=MODEL,
        concurrency_limit=1,
        **hidden,
    )
    player.gap(handlers.whole, None, player, queue=False, **hidden)
    controls.stop.click(handlers.stop, None, None, **at_once)
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
    api(handlers.generate, api_name="generate", concurrency_id=MODEL, concurrency_limit=1)
    demo.unload(handlers.leave)


def model_facts(loaded: Any) -> view.ModelFacts:
    """What the page tells of a `LoadedModel`."""
    return view.ModelFacts(
        name=loaded.name,
        trained=loaded.trained,
        block_size=loaded.block_size,
        dtype=loaded.dtype_name,
        device=str(getattr(loaded.device, "type", loaded.device)),
        parameters=loaded.parameters,
        dtype_reason=loaded.dtype_reason,
    )


def _player_source() -> str:
    return (assets_dir() / "player" / "player.js").read_text(encoding="utf-8")


def launch_options() -> dict[str, Any]:
    """What `launch` needs for the look. Everything is inline: the page asks no other server."""
    assets = assets_dir()
    sheets = (assets / "player" / "player.css", assets / "page.css")
    css = "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    theme = gr.themes.Base(
        primary_hue="zinc",
        neutral_hue="zinc",
        font=["ui-sans-serif", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "monospace"],
        radius_size=gr.themes.sizes.radius_lg,
    )
    # not `css=`: Gradio would prefix its rules, and `.dark` is set outside of what it prefixes
    return {"theme": theme, "head": f"<style>{css}</style>"}


def launch(demo: gr.Blocks, host: str, port: int | None) -> str:
    """Start serving the page in the background, never shared; returns its address.

    port: None or 0 takes a free one. Raises MarsError where it cannot listen there.
    """
    check_address(host, port or 0)
    _, address, _ = demo.launch(
        server_name=host,
        server_port=port or None,
        share=False,
        run_history=False,
        footer_links=["api"],
        quiet=True,  # Gradio's own words would advertise public links
        prevent_thread_lock=True,
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
