"""A worker's first look at the cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.services


def test_a_worker_on_missing_topics_ends_with_the_command_that_mends_it(kafka_node, prefix, tmp_path):
    """One line and exit 3."""
    (tmp_path / "millstream.toml").write_text(
        f'[storage]\nlog = "{kafka_node.url}"\nstate = "sqlite:///state.db"\n[kafka]\nnamespace = "{prefix}"\n'
    )
    command = [sys.executable, "-c", "from millstream.cli import main; main()", "worker", "assemble"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"millstream: {kafka_node.url} lacks the topics {prefix}.telemetry, ")
    assert last.endswith("; `millstream topics create` mends it")
    assert "Traceback" not in done.stderr
