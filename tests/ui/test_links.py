"""Addresses that set the page up."""

import pytest

from mars_core.errors import MarsError
from mars_core.ui import links
from mars_core.ui.controls import BatchInputs, Inputs, RaceInputs
from mars_core.ui.links import settings_of_link
from tests.ui.scripted import ScriptedEngine, handlers_for, ready


def test_settings_have_their_types():
    found = settings_of_link(
        {
            "prompt": "Why?", "tau": "0.75", "mode": "tau", "block_size": "8", "seed": "3",
            "use_last_mask": "true", "drafts": "3", "lanes": "second,generate", "second_tau": ".5",
            "prompts": "One?\nTwo?", "batch_lanes": "cursor", "rows": "2", "cache_block": "8",
            "__theme": "dark", "other": "x",
        }
    )  # fmt: skip
    assert found == {
        "prompt": "Why?", "tau": 0.75, "mode": "tau", "block_size": 8, "seed": 3,
        "use_last_mask": True, "drafts": 3, "lanes": ("second", "generate"), "second_tau": 0.5,
        "prompts": "One?\nTwo?", "batch_lanes": ("cursor",), "rows": 2, "cache_block": 8,
    }  # fmt: skip
    assert settings_of_link({}) == {}
    assert settings_of_link({"mode": "one"}) == {"mode": "one"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"tau": "2"}, "tau"),
        ({"tau": "x"}, "the link's tau must be a number"),
        ({"tau": "nan"}, "tau"),
        ({"block_size": "4.5"}, "block_size must be a number"),
        ({"block_size": "9" * 5000}, "block_size must be a number"),
        ({"use_last_mask": "maybe"}, "true or false"),
        ({"mode": "fast"}, "mode"),
        ({"lanes": "slow"}, "lane"),
        ({"batch_lanes": "slow"}, "lane"),
        ({"batch_lanes": ""}, "two lanes"),
        ({"rows": "0"}, "rows"),
        ({"cache_block": "x"}, "cache_block must be a number"),
        ({"prompts": "\n"}, "write one a line"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": "x" * 300_000}, "characters"),
    ],
)
def test_what_the_page_would_refuse_is_refused(query, words):
    with pytest.raises(MarsError, match=words):
        settings_of_link(query)


def test_names_are_in_the_order_of_the_components():
    names = [name for name in Inputs._fields if name not in ("prompt", "history", "system")]
    assert [name.replace("max_tokens", "max_new_tokens") for name in names] == list(links.DECODE)
    assert RaceInputs._fields == links.RACE
    fields = [name.replace("batch_", "") for name in links.BATCH]
    assert list(BatchInputs._fields) == fields


class Request:
    def __init__(self, **query):
        self.query_params = query


def test_the_page_takes_what_the_link_says():
    handlers = handlers_for(ready(ScriptedEngine([])))
    line, prompt, system, mode, tau, *_ = handlers.linked(Request(prompt="Why?", tau="0.5"))
    assert (prompt, tau) == ("Why?", 0.5)
    for untouched in (line, system, mode):
        assert untouched == {"__type__": "update"}
    complaint, *rest = handlers.linked(Request(tau="2"))
    assert "This link does not work: tau is 2.0" in complaint
    assert all(value == {"__type__": "update"} for value in rest)
