"""Put a Space together: everything that is pushed to Hugging Face, and nothing else.

    python spaces/build.py OUT
    hf repos create NAME --type space --space-sdk gradio
    hf upload NAME OUT . --type space

OUT is a new folder, or one that this made before. `--zero-gpu` makes the same for ZeroGPU.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CARD = ROOT / "spaces" / "README.md"
SHIPPED = (
    "LICENSE",
    "app.py",
    "pyproject.toml",  # by which the program knows its assets
    "mars_core/**/*.py",
    "assets/page.css",
    "assets/presets.json",
    "assets/adapters/*/*",
    "assets/player/*",
    "assets/traces/*",
)
# what the hub takes only through its store for large files, and what else is no text
LARGE = ("*.safetensors", "*.gz")
MOST_BYTES = 10 * 2**20  # of a file that does not go there
MOST_IN_ALL = 2**30  # of a Space
# the newest torch that ZeroGPU offers
ZERO_GPU_TORCH = "torch>=2.8,<=2.11.0"


class BuildError(Exception):
    """What has to be changed, in a sentence."""


def build(out: Path, *, zero_gpu: bool = False) -> list[Path]:
    """Write the folder; returns its files, relative. Raises BuildError."""
    _clear(out)
    for pattern in SHIPPED:
        for source in sorted(path for path in ROOT.glob(pattern) if path.is_file()):
            target = out / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    (out / "requirements.txt").write_text("\n".join(requirements(zero_gpu)) + "\n")
    (out / "README.md").write_text(card(zero_gpu), encoding="utf-8")
    (out / ".gitattributes").write_text(
        "".join(f"{name} filter=lfs diff=lfs merge=lfs -text\n" for name in LARGE)
    )
    check_sizes(out)
    return _files(out)


def requirements(zero_gpu: bool) -> list[str]:
    """The project's own, without Gradio, whose version is the card's `sdk_version`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [line for line in project["dependencies"] if _name(line) != "gradio"]
    if zero_gpu:
        wanted = [ZERO_GPU_TORCH if _name(line) == "torch" else line for line in wanted]
    return wanted


def card(zero_gpu: bool) -> str:
    """The Space's README, whose front matter says how it is run."""
    text = CARD.read_text(encoding="utf-8")
    return text.replace("cpu-basic", "zero-a10g") if zero_gpu else text


def front_matter(text: str) -> dict[str, object]:
    """What a README says of its Space, between its first two lines of dashes."""
    _, matter, _ = text.split("---\n", 2)
    return dict(yaml.safe_load(matter))


def check_sizes(out: Path) -> None:
    """Raise BuildError for what the hub would refuse."""
    sizes = {path: (out / path).stat().st_size for path in _files(out)}
    for path, size in sizes.items():
        if size > MOST_BYTES and not any(path.match(name) for name in LARGE):
            raise BuildError(f"{path} has {size:,} bytes, {MOST_BYTES:,} at most: add it to LARGE")
    if sum(sizes.values()) > MOST_IN_ALL:
        raise BuildError(f"{sum(sizes.values()):,} bytes in all, {MOST_IN_ALL:,} at most")


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _files(out: Path) -> list[Path]:
    found = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    return sorted(path for path in found if path.parts[0] != ".git")


def _clear(out: Path) -> None:
    """Make an empty folder of `out`, keeping a `.git`; only what was built here is removed."""
    if out.is_file():
        raise BuildError(f"{out} is a file: name a folder")
    there = [path for path in out.iterdir() if path.name != ".git"] if out.exists() else []
    if there and not _built_before(out):
        raise BuildError(f"{out} has something else in it: name a new folder")
    for path in there:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    out.mkdir(parents=True, exist_ok=True)


def _built_before(out: Path) -> bool:
    readme = out / "README.md"
    return readme.is_file() and readme.read_text(encoding="utf-8") in (card(False), card(True))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Doc, allow_abbrev=False)
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--zero-gpu", action="store_true", help="for a Space on ZeroGPU")
    args = parser.parse_args(arguments)
    try:
        files = build(args.out, zero_gpu=args.zero_gpu)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 2
    size = sum((args.out / path).stat().st_size for path in files)
    print(f"{args.out}: {len(files)} files, {size / 1e6:.1f} MB")
    return 0


Doc = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    sys.exit(main())
