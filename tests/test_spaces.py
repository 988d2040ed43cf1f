"""The Space's folder: complete, nothing else, and what its card says is true."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import gradio
import pytest
from packaging.requirements import Requirement

from mars_core.models import catalog

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("space_build", ROOT / "spaces" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("space") / "out"
    build.build(folder)
    return folder


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def by_name(lines):
    return {Requirement(line).name: Requirement(line) for line in lines}


def test_the_card_says_how_it_is_run(out):
    card = build.front_matter((out / "README.md").read_text(encoding="utf-8"))
    assert card["sdk"] == "gradio"
    assert (out / card["app_file"]).is_file()
    wanted = by_name(project()["dependencies"])["gradio"]
    assert card["sdk_version"] in wanted.specifier
    assert card["sdk_version"] == gradio.__version__  # what the tests ran with
    python = ".".join(card["python_version"].split(".")[:2])
    assert f"Programming Language :: Python :: {python}" in project()["classifiers"]
    assert card["license"] == project()["license"].lower()
    assert card["models"] == [catalog.find(catalog.DEFAULT_MODEL).hub_id]
    assert card["suggested_hardware"] == "cpu-basic"
    assert len(card["short_description"]) <= 60


def test_the_requirements_are_the_projects(out):
    wanted = by_name(project()["dependencies"])
    wanted.pop("gradio")
    assert by_name((out / "requirements.txt").read_text().splitlines()) == wanted


def test_on_zero_gpu_torch_is_one_that_is_offered(tmp_path):
    build.build(tmp_path / "out", zero_gpu=True)
    found = by_name((tmp_path / "out" / "requirements.txt").read_text().splitlines())
    wanted = by_name(project()["dependencies"])
    assert "2.11.0" in found["torch"].specifier
    assert "2.11.0" in wanted["torch"].specifier
    assert "2.12.0" not in found["torch"].specifier
    assert {n: r for n, r in found.items() if n != "torch"} == {
        n: r for n, r in wanted.items() if n not in ("torch", "gradio")
    }
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert build.front_matter(text)["suggested_hardware"] == "zero-a10g"


def test_nothing_but_the_program_and_what_it_shows(out):
    files = build._files(out)
    tops = {path.parts[0] for path in files}
    assert tops == {
        ".gitattributes", "LICENSE", "README.md", "app.py", "assets", "mars_core",
        "pyproject.toml", "requirements.txt",
    }  # fmt: skip
    assert {path.parts[1] for path in files if path.parts[0] == "assets"} == {
        "adapters", "page.css", "player", "presets.json", "traces",
    }  # fmt: skip
    assert not [path for path in files if "__pycache__" in path.parts]
    assert {path.suffix for path in files if path.parts[0] == "mars_core"} == {".py"}
    tracked = subprocess.run(
        ["git", "ls-files", "mars_core", "assets/traces", "assets/player", "assets/adapters"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {str(path) for path in files} >= {p for p in tracked if not p.endswith("TRACE.md")}


def test_it_runs_from_its_own_folder_alone(out):
    """The program and its assets are found there, not here."""
    code = (
        "import app, mars_core.paths\n"
        "from mars_core.export.recording import shipped_recordings\n"
        "from mars_core.models.adapter import chosen\n"
        "from mars_core.ui.presets import load_presets\n"
        "print(mars_core.paths.assets_dir(), len(shipped_recordings()), len(load_presets()))\n"
        "print(chosen('smollm2-135m', 'auto'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(out)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=out, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"{out / 'assets'} 2 12"
    assert second == str(out / "assets" / "adapters" / "smollm2-135m-mars")


def test_a_large_file_must_go_to_the_large_store(out, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "LARGE", ())
    with pytest.raises(build.BuildError, match=r"adapter_model\.safetensors"):
        build.build(tmp_path / "out")


def test_it_can_be_built_again_and_keeps_its_history(tmp_path):
    out = tmp_path / "out"
    first = build.build(out)
    (out / ".git").mkdir()
    (out / ".git" / "config").write_text("kept")
    (out / "mars_core" / "gone.py").write_text("")
    assert build.build(out, zero_gpu=True) == first
    assert (out / ".git" / "config").read_text() == "kept"
    assert not (out / "mars_core" / "gone.py").exists()


def test_a_folder_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert build.main([str(tmp_path)]) == 2
    assert "something else" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert build.main([str(tmp_path / "thesis.txt")]) == 2


def test_it_says_what_it_wrote(tmp_path, capsys):
    assert build.main([str(tmp_path / "out")]) == 0
    assert "files" in capsys.readouterr().out
