"""The start of the app: quick help, one-line errors, and its assets wherever it is installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from gradio_client import Client

import app
from mars_core.errors import MarsError
from mars_core.paths import assets_dir
from tests.tiny import tiny_checkpoint

ROOT = Path(app.__file__).parent


def test_help_needs_no_torch():
    code = (
        "import sys, app\n"
        "try: app.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'gradio', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--host" in done.stdout
    assert "127.0.0.1" in done.stdout


def test_an_unknown_model_is_one_line_and_code_2(capsys, tmp_path):
    assert app.main(["--model", "nosuch", "--models-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("app.py: ")
    assert "nosuch" in error


def test_it_serves_and_answers(tmp_path):
    """The whole program, as it is started, with a tiny model."""
    folder = tiny_checkpoint(tmp_path / "tiny", mask=True)
    command = [sys.executable, "app.py", "--model", str(folder), "--port", "0"]
    command += ["--device", "cpu", "--dtype", "float32"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            (address,) = re.findall(r"http://\S+", next_line(process.stderr, "MARS Studio: "))
            assert "tiny: float32" in next_line(process.stderr, "tiny: ")
            page = Client(address, verbose=False)
            answer = page.predict("Hello!", max_new_tokens=5, api_name="/generate")
            assert '"type":"done"' in answer.splitlines()[-1]
        finally:
            process.terminate()


def test_recordings_alone_need_no_torch():
    """The page is there, and what is shown on it, without a model."""
    code = (
        "import sys, urllib.request, app\n"
        "from mars_core.ui import demo\n"
        "def stop(self): raise KeyboardInterrupt\n"
        "demo.gr.Blocks.block_thread = stop\n"
        "real = demo.launch\n"
        "def launch(page, host, port, *limits, **more):\n"
        "    address = real(page, host, port)\n"
        "    text = urllib.request.urlopen(address + 'config').read().decode()\n"
        "    assert 'recordings only' in text and '\"generate\"' not in text\n"
        "    return address\n"
        "demo.launch = launch\n"
        "assert app.main(['--replay-only', '--port', '0']) == 130\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def next_line(stream, beginning):
    return next(line for line in stream if line.startswith(beginning))


def test_assets_of_a_checkout_of_a_wheel_and_of_neither(tmp_path):
    package = tmp_path / "mars_core"
    package.mkdir()
    with pytest.raises(MarsError, match="checkout"):
        assets_dir(package)
    (package / "_assets").mkdir()
    assert assets_dir(package) == package / "_assets"
    # somebody else's "assets" beside an installed package is not ours
    (tmp_path / "assets").mkdir()
    assert assets_dir(package) == package / "_assets"
    (tmp_path / "pyproject.toml").touch()
    assert assets_dir(package) == tmp_path / "assets"
