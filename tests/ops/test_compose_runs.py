"""Our services of docker-compose.yml outside of containers: each command and each health check as it stands, in the
order of the file, on a real Kafka, and Redis by the file's own command. Only places are translated: host names,
ports, and the folders that a container has.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from services.fixtures import need
from services.kafka_node import KafkaNode, missing_for_kafka
from services.processes import free_port
from services.redis_server import missing_for_redis

from millstream.bootstrap import Runtime
from millstream.loading import load

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

READY_S = 90
MILLSTREAM = [sys.executable, "-c", "from millstream.cli import main; main()"]


class Outside:
    """The services of the file as processes. ``places``: what stands in the file → what it is here."""

    def __init__(self, folder: Path, root: Path, services: dict, places: dict[str, str], token: str) -> None:
        self.folder, self.root, self.services, self.token = folder, root, services, token
        self.places = places
        self.running: dict[str, subprocess.Popen] = {}
        self.ports = {name: free_port() for name in services}
        dockerfile = (root / "Dockerfile").read_text(encoding="utf-8")
        self.entrypoint = re.findall(r'"([^"]+)"', re.findall(r"^ENTRYPOINT \[(.*)\]$", dockerfile, re.MULTILINE)[-1])
        (folder / "token").write_text(token, encoding="utf-8")

    def here(self, text: str, name: str) -> str:
        """A word of the file with the places of this machine in it."""
        own = {"/run/secrets/token": str(self.folder / "token"), "0.0.0.0": "127.0.0.1",
               "127.0.0.1:9464": f"127.0.0.1:{self.ports[name]}"}  # fmt: skip
        for there, here in {**self.places, **own}.items():
            text = text.replace(there, here)
        return text

    def environment(self, name: str) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MILLSTREAM_")}
        clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
        told = {key: self.here(str(value), name) for key, value in self.services[name]["environment"].items()}
        if "MILLSTREAM_METRICS__PORT" in told:
            told["MILLSTREAM_METRICS__PORT"] = str(self.ports[name])
        return clean | told

    def command(self, name: str) -> list[str]:
        """Entrypoint and command, as the container would run them."""
        one = self.services[name]
        default = self.entrypoint if one["image"].startswith("millstream:") else []
        words = [self.here(word, name) for word in [*one.get("entrypoint", default), *one["command"]]]
        return [*MILLSTREAM, *words[1:]] if words[0] == "millstream" else words

    def start(self, name: str) -> None:
        """Run a service and wait for what others wait for: its health, or its end."""
        with (self.folder / f"{name}.txt").open("wb") as told:
            process = subprocess.Popen(
                self.command(name), cwd=self.folder, env=self.environment(name), stdout=told, stderr=told,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.running[name] = process
        if "healthcheck" not in self.services[name]:
            assert process.wait(READY_S) == 0, self.told(name)
            del self.running[name]
            return
        deadline = time.monotonic() + READY_S
        while not self.healthy(name):
            assert process.poll() is None, self.told(name)
            assert time.monotonic() < deadline, f"{name} is not healthy: {self.said}\n{self.told(name)}"
            time.sleep(0.3)

    def healthy(self, name: str) -> bool:
        """Run the health check once."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        words = [self.here(word, name) for word in words]
        words = ["sh", "-c", words[0]] if kind == "CMD-SHELL" else words
        if words[0] == "millstream-probe":
            words = [sys.executable, str(self.root / "ops" / "docker" / "probe.py"), *words[1:]]
        done = subprocess.run(
            words, env=self.environment(name), capture_output=True, text=True, timeout=15, check=False
        )
        self.said = done.stderr
        return done.returncode == 0

    def told(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8", errors="replace")[-3000:]

    def metrics(self, name: str) -> str:
        """What Prometheus would be told."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[name]}/metrics", headers={"Authorization": f"Bearer {self.token}"}
        )
        return urllib.request.urlopen(request, timeout=10).read().decode()

    def stop(self, name: str) -> int:
        """End a service as Compose does; its exit code."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def close(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def in_order(services: dict) -> list[str]:
    """The services so that each comes after what it waits for."""
    order: list[str] = []

    def add(name: str) -> None:
        for needed in services[name].get("depends_on", {}):
            add(needed)
        if name not in order:
            order.append(name)

    for name in services:
        add(name)
    return order


@pytest.fixture
def outside(tmp_path, root, services):
    """Everything but Kafka still to be started; Kafka runs in place of its image."""
    need("; ".join(filter(None, (missing_for_kafka(), missing_for_redis()))))
    config = tmp_path / "config"
    config.mkdir()
    shutil.copy(root / "ops" / "compose" / "millstream.toml", config / "millstream.toml")
    with (config / "millstream.toml").open("a", encoding="utf-8") as settings:
        base = root / "examples" / "finqa" / "base"
        settings.write(
            f'\n[policy]\nbase = "{base}"\n[gate]\nevaluation = "millstream.examples.finqa.evaluation:evaluate"\n'
        )
    for folder in ("data", "mlflow", "redis"):
        (tmp_path / folder).mkdir()
    node = KafkaNode(tmp_path / "kafka")
    redis_port, mlflow_port, gateway_port, proxy_port = (free_port() for _ in range(4))
    places = {
        "kafka://kafka:9092": node.url,
        "@redis:6379": f"@127.0.0.1:{redis_port}",
        "redis-server --dir /data": f"redis-server --port {redis_port} --bind 127.0.0.1 --dir {tmp_path}/redis",
        "redis-cli ping": f"redis-cli -p {redis_port} ping",
        "http://mlflow:5000": f"http://127.0.0.1:{mlflow_port}",
        "127.0.0.1:5000": f"127.0.0.1:{mlflow_port}",
        "--port=5000": f"--port={mlflow_port}",
        "127.0.0.1:4318": f"127.0.0.1:{gateway_port}",
        "--port=4318": f"--port={gateway_port}",
        "127.0.0.1:8400": f"127.0.0.1:{proxy_port}",
        "--port=8400": f"--port={proxy_port}",
        "sqlite:////mlflow": f"sqlite:///{tmp_path}/mlflow",
        "=/mlflow": f"={tmp_path}/mlflow",
        "/config/": f"{config}/",
    }
    token = "a-token-that-is-long-enough"
    made = Outside(tmp_path, root, services, places, token)
    for one in services.values():
        if one.get("environment", {}).get("MILLSTREAM_STORAGE__DATA") == "/data":
            one["environment"]["MILLSTREAM_STORAGE__DATA"] = str(tmp_path / "data")
    made.settings = config / "millstream.toml"
    node.start()
    yield made
    made.close()
    node.kill()


def test_services_start_in_order_work_and_end(outside, root, wait_until):
    """Redis, the topics, MLflow, every worker: healthy in turn; runs go in and come out as rollouts; each worker
    tells metrics to who has the token; SIGTERM ends each with 0.
    """
    started = [
        name
        for name in in_order(outside.services)
        if name == "redis" or "millstream:" in outside.services[name]["image"]
    ]
    assert started.index("topics") < started.index("assemble")
    for name in started:
        outside.start(name)
    environment = {k: v for k, v in outside.environment("assemble").items() if k.startswith("MILLSTREAM_")}
    with Runtime(load(outside.settings, environ=environment)) as runtime:
        runtime.import_files([root / "examples" / "data" / "runs.ndjson"], kind="auto", lineage="", dry_run=False)
        wait_until(lambda: runtime.buffer().stats().rollouts == 6)
        wait_until(lambda: runtime.tracker.pointed("policy", "champion") == 1)
    workers = [name for name in started if outside.services[name]["command"][0] == "worker"]
    told = {
        "assemble": 'millstream_trajectories_total{reason="complete",status="complete"} 6.0',
        "grade": "millstream_event_to_grade_seconds_count 6.0",
        "buffer": 'millstream_buffer_rollouts{namespace="default"} 6.0',
        "gate": 'millstream_champion_version{lineage="policy"} 1.0',
    }
    assert set(told) <= set(workers)
    for name, line in told.items():
        wait_until(lambda name=name, line=line: line in outside.metrics(name))  # gauges are looked at now and then
    assert {name: outside.stop(name) for name in reversed(workers)} == dict.fromkeys(workers, 0)
