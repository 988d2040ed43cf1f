"""The rail of controls: what to ask and how to decode."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import gradio as gr
from gradio.components import Component

from mars_core.config import DecodeConfig
from mars_core.models import catalog
from mars_core.race.settings import BatchRaceConfig, RaceConfig
from mars_core.ui import view
from mars_core.ui.presets import load_presets

BATCH_PROMPTS = 8  # to begin with


class Inputs(NamedTuple):
    """The components a run is made from, in the order of the handlers' arguments."""

    prompt: gr.Textbox
    history: gr.JSON
    system: gr.Textbox
    mode: gr.Radio
    tau: gr.Slider
    block_size: Component
    max_tokens: Component
    temperature: Component
    top_p: Component
    repetition_penalty: Component
    seed: Component
    metric: Component
    use_last_mask: Component
    drafts: Component


class RaceInputs(NamedTuple):
    """What a race is made from besides `Inputs`, in the order of `Handlers.ask_race`."""

    lanes: gr.CheckboxGroup
    second_tau: Component
    repeats: Component


class BatchInputs(NamedTuple):
    """What a race of batches is made from besides `Inputs`, as `Handlers.ask_batch` takes it."""

    prompts: gr.Textbox
    lanes: gr.CheckboxGroup
    rows: Component
    cache_block: Component


class Picker(NamedTuple):
    """Which model takes the place of the present one: first what `Handlers.switch` is given."""

    model: gr.Dropdown
    adapter: gr.Textbox
    quantize: gr.Dropdown
    choice: gr.HTML
    load: gr.Button


class Rail(NamedTuple):
    """Everything of the rail that listeners are attached to or that they change.

    picker: of the model; None where it cannot be changed.
    """

    inputs: Inputs
    race_inputs: RaceInputs
    batch_inputs: BatchInputs
    head: gr.HTML
    note: gr.HTML
    generate: gr.Button
    race: gr.Button
    batch: gr.Button
    stop: gr.Button
    link: gr.Button
    picker: Picker | None = None


def rail(head: str, model: str | None = None) -> Rail:
    """Left column: what to ask and how to decode, under `head` (HTML).

    model: which one can be changed for another; None where it cannot.
    """
    defaults = DecodeConfig()
    title = gr.HTML(head, apply_default_css=False)
    # one line to begin with: then Enter sends, and Shift+Enter is a new line
    prompt = gr.Textbox(
        label="Prompt",
        placeholder="Ask something short …",
        lines=1,
        max_lines=8,
        elem_id="prompt",
    )
    # what was said before: the player has it, and gives it along with every prompt
    history = gr.JSON(visible=False)
    with gr.Row(elem_id="presets"):
        for preset in load_presets():
            chip = gr.Button(preset.label, size="sm", min_width=0, elem_classes="chip")
            chip.click(None, None, prompt, js=f"() => {json.dumps(preset.prompt)}")
    mode = gr.Radio(
        [("One token", "one"), ("tau", "tau"), ("Verified", "verified")],
        value=defaults.mode,
        label="Tokens per pass",
        show_label=False,
        container=False,
        elem_id="mode",
    )
    tau = gr.Slider(0, 1, value=defaults.tau, step=0.01, label="tau", buttons=[], elem_id="tau")
    gr.HTML(
        '<div class="studio-ends" aria-hidden="true"><span>exact 1.0</span>'
        "<span>fast 0</span></div>",
        apply_default_css=False,
    )
    note = gr.HTML(
        view.note_html(defaults.mode, defaults.tau), apply_default_css=False, elem_id="note"
    )
    with gr.Row(elem_id="actions"):
        generate = gr.Button("Generate", variant="primary", min_width=0, elem_id="generate")
        race = gr.Button("Race", variant="secondary", min_width=0, elem_id="race")
        stop = gr.Button("Stop", variant="secondary", min_width=0, elem_id="stop")
    system, *settings = _settings(defaults)
    inputs = Inputs(prompt, history, system, mode, tau, *settings)
    race_inputs = _race_settings()
    batch_inputs, batch = _batch_settings()
    picker = None if model is None else _model_settings(model)
    link = gr.Button("Copy a link to these settings", size="sm", elem_id="link")
    return Rail(
        inputs, race_inputs, batch_inputs, title, note, generate, race, batch, stop, link, picker
    )  # fmt: skip


def _settings(defaults: DecodeConfig) -> tuple[Any, ...]:
    """The quieter settings: the system prompt, then the others in the order of `Inputs`."""
    with gr.Row(elem_id="sizes"):
        block_size = _number(defaults.block_size, "Block size")
        max_tokens = _number(defaults.max_new_tokens, "Max tokens")
    with gr.Accordion("More settings", open=False, elem_id="more"):
        system = gr.Textbox(
            label="System prompt",
            placeholder="Empty: the model's own",
            lines=1,
            max_lines=5,
            elem_id="system",
        )
        with gr.Row():
            temperature = _number(defaults.temperature, "Temperature", 0.1)
            top_p = _number(defaults.top_p, "Top-p", 0.01)
        with gr.Row():
            penalty = _number(defaults.repetition_penalty, "Repetition penalty", 0.05)
            seed = _number(defaults.seed, "Seed")
        metric = gr.Dropdown(
            [("Probability", "probability"), ("Margin", "margin"), ("Entropy", "entropy")],
            value=defaults.metric,
            label="Confidence compared with tau",
        )
        last = gr.Checkbox(defaults.use_last_mask, label="Use the last mask (up to B + 1 tokens)")
        drafts = _number(defaults.drafts, "Drafts per pass (verified)")
    return system, block_size, max_tokens, temperature, top_p, penalty, seed, metric, last, drafts


def _race_settings() -> RaceInputs:
    """Which lanes race, besides AR and MARS at the tau of the slider."""
    defaults = RaceConfig()
    with gr.Accordion("Race: lanes", open=False, elem_id="lanes"):
        lanes = gr.CheckboxGroup(
            [
                ("Verified", "verified"),
                ("MARS at another tau", "second"),
                ("Original weights", "original"),
                ("transformers generate", "generate"),
                ("Prompt lookup", "lookup"),
            ],
            value=list(defaults.lanes[2:]),
            label="Besides AR and MARS",
            show_label=False,
            container=False,
        )
        with gr.Row():
            second_tau = _number(defaults.second_tau, "The other tau", 0.05)
            repeats = _number(defaults.repeats, "Repeats")
    return RaceInputs(lanes, second_tau, repeats)


def _batch_settings() -> tuple[BatchInputs, gr.Button]:
    """Which prompts are answered many at once, and with which caches."""
    defaults = BatchRaceConfig()
    asked = [preset.prompt for preset in load_presets()][:BATCH_PROMPTS]
    with gr.Accordion("Batch: many prompts at once", open=False, elem_id="batch"):
        prompts = gr.Textbox(
            "\n".join(asked), label="Prompts, one a line", lines=5, max_lines=12, elem_id="prompts"
        )
        lanes = gr.CheckboxGroup(
            [
                ("Block cache", "block"),
                ("Cursor cache", "cursor"),
                ("Paced masks", "paced"),
                ("Verified", "verified"),
                ("No cache", "none"),
            ],
            value=list(defaults.lanes[1:]),
            label="Besides AR",
            show_label=False,
            container=False,
        )
        with gr.Row():
            rows = _number(defaults.rows, "Rows (prompts at once)")
            cache_block = _number(defaults.cache_block, "Tokens per cache block")
        batch = gr.Button("Race batches", size="sm", elem_id="race-batches")
    return BatchInputs(prompts, lanes, rows, cache_block), batch


def _model_settings(model: str) -> Picker:
    """Which model is loaded, and how its weights are kept."""
    with gr.Accordion("Model", open=False, elem_id="model"):
        name = gr.Dropdown(
            [(view.choice_label(entry), entry.name) for entry in catalog.CATALOG],
            value=model,
            label="Model, or a folder or hub id",
            allow_custom_value=True,
        )
        adapter = gr.Textbox(label="Adapter", placeholder="Empty: that of the model", lines=1)
        quantize = gr.Dropdown(
            [("As they are", "none"), ("8 bits (int8)", "int8"), ("4 bits (NF4)", "nf4")],
            value="none",
            label="Weights",
        )
        choice = gr.HTML(
            view.choice_html(view.FOR_EVERYBODY),
            apply_default_css=False,
            elem_id="choice",
        )
        load = gr.Button("Load", size="sm", elem_id="load-model")
    return Picker(name, adapter, quantize, choice, load)


def _number(value: float, label: str, step: float = 1) -> gr.Number:
    """A number field without limits of its own: Gradio would drop a value outside of them, with
    nothing to be seen, before anything here could say what is allowed."""
    return gr.Number(value, label=label, step=step, min_width=0)
