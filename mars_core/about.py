"""What a number depends on: which weights, on which machine, with which libraries."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from mars_core.models.load import LoadedModel
from mars_core.paths import PACKAGE

RECORDED_LIBRARIES = ("mars-studio", "torch", "transformers", "peft", "bitsandbytes")


def model_facts(loaded: LoadedModel) -> dict[str, Any]:
    """Which weights these are: the fields of `trace.ModelInfo`, as JSON has them."""
    return {
        "name": loaded.name,
        "source": loaded.source,
        "weights": loaded.weights,
        "adapter": loaded.adapter,
        "licence": loaded.licence,
        "architecture": type(loaded.model).__name__,
        "parameters": loaded.parameters,
        "quantization": loaded.quantization,
        "mask_token": loaded.mask_token,
        "mask_id": loaded.special.mask_id,
        "trained": loaded.trained,
        "block_size": loaded.block_size,
        "context_length": loaded.context_length,
    }


def conditions(loaded: LoadedModel) -> dict[str, Any]:
    """Everything a result depends on besides its settings, as JSON has it."""
    return {
        "model": model_facts(loaded),
        "dtype": loaded.dtype_name,
        "device": describe_device(loaded),
        "versions": library_versions(),
        "commit": commit(),
    }


def describe_device(loaded: LoadedModel) -> str:
    """Where and how it computes, e.g. "cpu, AMD EPYC, 2 threads, packed weights"."""
    threads = None if loaded.device.type == "cuda" else f"{torch.get_num_threads()} threads"
    packed = "packed weights" if loaded.packed else None
    compiled = "compiled" if loaded.compiled else None
    parts = (device_name(loaded.device), threads, packed, compiled)
    return ", ".join(part for part in parts if part)


def device_name(device: torch.device) -> str:
    """What computes, e.g. "cuda, NVIDIA H200" or "cpu, AMD EPYC"."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
    return f"{device.type}, {name}"


@cache
def processor_name() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@cache
def commit() -> str | None:
    """Which state of a checkout this is, "+" behind it where files were changed; else None."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=PACKAGE.parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


@cache
def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that can change a number."""
    found = {"python": platform.python_version()}
    for name in RECORDED_LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
