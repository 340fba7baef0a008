"""A short run of bench/fuzz.py over every decoder; the long ones are by hand (docs/capture.md tells how many)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

INPUTS = 16 * 150


@pytest.mark.parametrize("seed", [1])
def test_no_decoder_breaks(root, seed):
    """Two thousand broken inputs: no exception out of a boundary, no hang, no memory that grows."""
    script = [sys.executable, str(root / "bench" / "fuzz.py"), "--inputs", str(INPUTS), "--seed", str(seed)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["inputs"], told["finds"]) == (INPUTS, 0)
    assert told["peak_mib"] < 500


def test_it_finds_what_is_there(root, tmp_path):
    """A decoder that breaks is named with its input, and the exit says so."""
    (tmp_path / "sitecustomize.py").write_text(
        "import millstream.streams.dead_letters as letters\n"
        "def read(text):\n"
        "    if text.endswith(chr(50)):\n"
        "        raise KeyError(text)\n"
        "letters.Origin.read = staticmethod(read)\n",
        encoding="utf-8",
    )
    script = [sys.executable, str(root / "bench" / "fuzz.py"), "letters", "--inputs", "300", "--save", str(tmp_path)]
    env = {"PYTHONPATH": f"{tmp_path}:{root}"}
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FOUND letters: KeyError" in done.stdout
    assert list(tmp_path.glob("letters-*"))
