"""The Grafana board and the alarms, held to the metrics that exist; the alarms fire when they should."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess

import pytest
import yaml
from services.fixtures import need

from millstream import metrics

PARTS = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SAMPLES = {f"{one.name}{part}": one for one in metrics.ALL for part in PARTS[one.kind]}


def queries(root):
    """Every query of the board and of the alarms."""
    board = json.loads((root / "ops" / "grafana" / "board.json").read_text(encoding="utf-8"))
    drawn = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = yaml.safe_load((root / "ops" / "prometheus" / "alarms.yml").read_text(encoding="utf-8"))
    return drawn, {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}


def test_the_board_is_what_its_script_writes(root):
    """board.json is made, not edited (mend: python ops/grafana/write_board.py)."""
    spec = importlib.util.spec_from_file_location("write_board", root / "ops" / "grafana" / "write_board.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert writer.BOARD.read_text(encoding="utf-8") == writer.text()


def test_queries_name_metrics_and_labels_that_exist(root):
    """No panel and no alarm asks for what nothing tells, nor groups by a label that its metric lacks."""
    drawn, alarms = queries(root)
    for query in [*drawn, *alarms.values()]:
        named = set(re.findall(r"millstream_\w+", query))
        assert named <= SAMPLES.keys(), query
        known = {label for name in named for label in SAMPLES[name].labels} | {"instance", "job", "le"}
        asked = re.findall(r"(?:by|on) \(([^)]*)\)", query)
        matched = re.findall(r"[{,](\w+)[!=]", query)
        assert {label.strip() for part in asked for label in part.split(",")} | set(matched) <= known, query


def test_every_metric_is_drawn(root):
    """What is told can be seen."""
    text = " ".join(queries(root)[0])
    assert {one.name for one in metrics.ALL if one.name not in text} == set()


def test_alarms_are_explained(root):
    """docs/operations.md has a line for each alarm, and no other."""
    page = (root / "docs" / "operations.md").read_text(encoding="utf-8").split("| alarm |")[1]
    told = re.findall(r"^\| `(\w+)` \|", page.split("\n\n")[0], re.MULTILINE)
    assert told == list(queries(root)[1])


@pytest.mark.services
def test_alarms_fire_when_they_should(root):
    """Prometheus's own tool: the rules are sound, silent in a healthy hour, and all fire in a bad one."""
    tool = shutil.which("promtool") or ""
    need("" if tool else "promtool is not installed (Debian: prometheus)")
    folder = root / "ops" / "prometheus"
    for words in (["check", "rules", "alarms.yml"], ["test", "rules", "alarms_test.yml"]):
        done = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    told = (folder / "alarms_test.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'alertname="(\w+)"', told)) == set(queries(root)[1])
