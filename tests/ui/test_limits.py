"""What a public page refuses: by its handlers, through the endpoint, and what is uploaded."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import replace

import anyio
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

import app
from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.race.settings import BatchRaceConfig, RaceConfig, new_tokens
from mars_core.ui.conversation import conversation
from mars_core.ui.demo import build_demo, launch
from mars_core.ui.limits import NO_LIMITS, PUBLIC
from mars_core.ui.live import Run
from tests.ui.scripted import EOS, ScriptedEngine, ready

SAID = conversation("Why?")
BREAK = {"prompt": "break"}


def run(config, prompts=1):
    return Run.of([SAID] * prompts, config)


def refused(asked, waiting=0, limits=PUBLIC):
    with pytest.raises(MarsError) as caught:
        limits.check(asked, waiting)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_work_counts_lanes_repeats_and_prompts():
    decode = DecodeConfig(max_new_tokens=10)
    assert new_tokens(decode) == 10
    assert new_tokens(RaceConfig(decode, ("ar", "mars", "verified"), repeats=4)) == 120
    assert new_tokens(BatchRaceConfig(decode, lanes=("ar", "cursor"), repeats=3), 5) == 300


def test_what_is_too_much():
    decode = DecodeConfig(max_new_tokens=256)
    PUBLIC.check(run(decode), 0)
    PUBLIC.check(run(RaceConfig(decode, repeats=3)), 0)
    assert "256 tokens at most" in refused(run(replace(decode, max_new_tokens=257)))
    assert "4,608" in refused(run(RaceConfig(decode, repeats=6)))
    assert "would be" in refused(run(BatchRaceConfig(decode), 20))
    assert "lane original" in refused(run(RaceConfig(decode, ("ar", "original"), repeats=1)))
    assert "try again" in refused(run(decode), PUBLIC.in_line)
    assert "4,001" in refused(Run.of([conversation("x" * 4001)], decode))
    history = [
        {"role": "user", "content": "x" * 3000},
        {"role": "assistant", "content": "y" * 1500},
    ]
    assert "new chat" in refused(Run.of([conversation("Why?", history)], decode))


def test_without_limits_everything_goes():
    NO_LIMITS.check(run(RaceConfig(DecodeConfig(max_new_tokens=5000), repeats=20)), 1000)


class Breaking(ScriptedEngine):
    """Has an error in it that names a file."""

    def generate(self, messages, config, control=None):
        if messages[-1].content == "break":
            raise RuntimeError("/secret/place")
        return super().generate(messages, config, control)


@pytest.fixture(scope="module")
def address():
    demo = build_demo(ready(Breaking([["Hi"], [" there", EOS]])), limits=PUBLIC)
    yield launch(demo, "127.0.0.1", None, PUBLIC, mcp=True)
    demo.close()


def ask_as_tool(address, name, arguments):
    """The answer to an MCP client."""

    async def ask():
        async with (
            streamablehttp_client(f"{address}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            if name is None:
                return await session.list_tools()
            return await session.call_tool(name, arguments)

    return anyio.run(ask)


too_much = pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("/generate", {"prompt": "Why?", "max_new_tokens": 300}, "256 tokens"),
        ("/generate", {"prompt": "x" * 5000}, "4,000 characters"),
        ("/race", {"prompt": "Why?", "repeats": 20}, "tokens in one run"),
        ("/race", {"prompt": "Why?", "lanes": ["original"]}, "lane original"),
        ("/batch", {"prompts": ["Why?"] * 60, "max_new_tokens": 200}, "tokens in one run"),
        ("/generate", {"prompt": "Why?", "mode": "sweep"}, "one of"),
    ],
)


@too_much
def test_the_endpoint_refuses_it_too(address, name, arguments, words):
    page = Client(address, verbose=False)
    with pytest.raises(AppError, match=words) as caught:
        page.predict(**arguments, api_name=name)
    assert "/" not in str(caught.value).replace("tokens/", "")


def test_what_fits_is_answered_and_no_model_can_be_chosen(address):
    page = Client(address, verbose=False)
    assert '"type":"done"' in page.predict("Why?", max_new_tokens=9, api_name="/generate")
    config = urllib.request.urlopen(f"{address}config").read().decode()
    assert "load-model" not in config
    assert set(page.view_api(return_format="dict")["named_endpoints"]) == {
        "/generate", "/race", "/batch",
    }  # fmt: skip


@too_much
def test_a_tool_refuses_it_too(address, name, arguments, words):
    (tool,) = (t.name for t in ask_as_tool(address, None, {}).tools if t.name.endswith(name[1:]))
    answer = ask_as_tool(address, tool, arguments)
    assert answer.isError
    (said,) = answer.content
    assert words in said.text


def test_tools_are_the_endpoints_and_answer(address):
    tools = {tool.name: tool for tool in ask_as_tool(address, None, {}).tools}
    assert [name.rpartition("_")[2] for name in tools] == ["generate", "race", "batch"]
    name = next(iter(tools))
    assert "Answer a prompt" in tools[name].description
    assert "request" not in tools[name].inputSchema["properties"]
    answer = ask_as_tool(address, name, {"prompt": "Why?", "max_new_tokens": 9})
    assert not answer.isError
    assert '"type":"done"' in answer.content[0].text


def test_no_error_names_a_file_of_the_server(address):
    with pytest.raises(AppError) as caught:
        Client(address, verbose=False).predict("break", api_name="/generate")
    assert "secret" not in str(caught.value)
    answer = ask_as_tool(address, next(iter(ask_as_tool(address, None, {}).tools)).name, BREAK)
    assert answer.isError
    assert "secret" not in answer.content[0].text


@pytest.mark.parametrize("path", ["/etc/passwd", "app.py", "../app.py"])
def test_no_file_of_the_server_is_served(address, path):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{address}gradio_api/file={path}")
    assert caught.value.code in (403, 404)


def test_a_large_upload_is_refused(address):
    request = urllib.request.Request(f"{address}recording", b"x" * (PUBLIC.upload + 1))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 400
    assert caught.value.read().decode() == "A recording has at most 24 MiB here."


def test_a_space_is_public(monkeypatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    plain = app.parse_arguments([])
    assert (plain.public, plain.host) == (False, "127.0.0.1")
    assert app.parse_arguments(["--public"]).public
    monkeypatch.setenv("SPACE_ID", "somebody/mars-studio")
    space = app.parse_arguments([])
    assert (space.public, space.host) == (True, "0.0.0.0")
    assert not app.parse_arguments(["--no-public"]).public
