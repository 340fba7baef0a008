"""`millstream up` beside an MLflow server: there, late, and refusing."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request

import pytest
from services.mlflow_server import MlflowServer, TroubledServer

pytestmark = pytest.mark.services

QUICK = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


@pytest.fixture
def mill(mill, root, examples):
    """A mill with a base, and runs in its log."""
    mill.env |= QUICK
    mill.settings("")
    assert mill.run("import", examples / "runs.ndjson").returncode == 0
    mill.track = lambda url: mill.settings(
        f'[policy]\nbase = "{root}/examples/finqa/base"\n[storage]\ntracking = "{url}"\n'
    )
    return mill


def alias(server, name):
    """The version behind an alias, asked of the server itself; None: there is none."""
    words = urllib.parse.urlencode({"name": "policy", "alias": name})
    try:
        with urllib.request.urlopen(f"{server.url}/api/2.0/mlflow/registered-models/alias?{words}", timeout=10) as page:
            return int(json.load(page)["model_version"]["version"])
    except urllib.error.HTTPError:
        return None


def test_a_server_that_comes_late_is_waited_for(mill, tmp_path, wait_until):
    """Without MLflow the runs are graded and buffered all the same; when it is there the base is registered in it."""
    server = MlflowServer(tmp_path / "server")
    mill.track(server.url)
    with mill.up() as running:
        wait_until(lambda: mill.json("rollouts", "list")["total"] == 6)
        assert mill.json("policies", "list")["items"] == []
        assert f"MLflow at {server.url}" in running.told()
        server.start(90)
        try:
            wait_until(lambda: mill.json("policies", "list")["items"])
            wait_until(lambda: alias(server, "champion") == 1)
        finally:
            server.stop()
    assert "Traceback" not in running.told()


def test_refused_credentials_end_it_with_3(mill):
    """Waiting would not help: one line names the address and the mend."""
    with TroubledServer(401) as server:
        mill.track(server.url)
        done = mill.run("up")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 3
    assert f"MLflow at {server.url}" in last
    assert "MLFLOW_TRACKING_USERNAME" in last
    assert "Traceback" not in done.stderr
