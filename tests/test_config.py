"""Bad settings are refused in one line that says what is allowed."""

import pytest

from mars_core.config import DecodeConfig
from mars_core.control import LiveControl
from mars_core.errors import MarsError


@pytest.mark.parametrize(
    "bad",
    [
        {"mode": "fast"},
        {"metric": "entropie"},
        {"tau": 1.01},
        {"tau": -0.1},
        {"tau": float("nan")},
        {"tau": "0.9"},
        {"block_size": 0},
        {"block_size": 2.5},
        {"block_size": 1000},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
        {"temperature": -1},
        {"temperature": float("inf")},
        {"top_p": 0},
        {"repetition_penalty": 0},
        {"no_repeat_ngram_size": -1},
        {"seed": -1},
        {"seed": 2**64},
        {"alternatives": 1000},
        {"stop": ("",)},
        {"stop": ("fine", "\ud800")},
        {"block_size": None},
    ],
)
def test_bad_settings(bad):
    with pytest.raises(MarsError) as caught:
        DecodeConfig(**bad)
    assert "\n" not in str(caught.value)
    name = next(iter(bad)).replace("_", " ").replace("top p", "top-p")
    assert name in str(caught.value)


def test_slots():
    assert DecodeConfig(block_size=4).slots == 4
    assert DecodeConfig(block_size=4, use_last_mask=True).slots == 5


def test_live_control_refuses_and_keeps_what_it_had():
    control = LiveControl(DecodeConfig(tau=0.5))
    with pytest.raises(MarsError, match="tau"):
        control.set(tau=2)
    with pytest.raises(MarsError, match="mode"):
        control.set(mode="fast", tau=0.1)
    assert control.read().tau == 0.5
    control.set(tau=0.25)
    control.stop()
    control.set(mode="one")
    settings = control.read()
    assert (settings.mode, settings.tau, settings.stop) == ("one", 0.25, True)
