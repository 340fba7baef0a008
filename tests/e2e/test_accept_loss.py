"""Records that retention dropped before they were read: up stops and says so, and goes on when told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from millstream.adapters.sqlite import open_sqlite

SCRIPT = "from millstream.cli import main; main()"


def millstream(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_a_loss_stops_up_and_is_a_gap_once_accepted(tmp_path: Path, root: Path) -> None:
    """Exit 3 names the mend; with --accept-loss the run goes on, and audit lists what is missing."""
    runs = str(root / "examples" / "data" / "runs.ndjson")
    assert millstream(tmp_path, "import", runs).returncode == 0
    assert millstream(tmp_path, "up", "--until-idle").returncode == 0
    assert millstream(tmp_path, "import", str(root / "examples" / "data" / "chats.jsonl")).returncode == 0
    embedded = open_sqlite(tmp_path / ".millstream" / "log.db")
    end = embedded.log.bounds("telemetry")[1]
    embedded.log.trim("telemetry", 0, end)
    embedded.close()

    stopped = millstream(tmp_path, "up", "--until-idle")
    assert stopped.returncode == 3
    assert "--accept-loss" in stopped.stderr
    went_on = millstream(tmp_path, "up", "--until-idle", "--accept-loss")
    assert went_on.returncode == 0, went_on.stderr
    assert "accepted the loss of telemetry:0" in went_on.stderr
    books = json.loads(millstream(tmp_path, "audit", "--json").stdout)
    assert [(gap["topic"], gap["end"]) for gap in books["gaps"]] == [("telemetry", end)]
