"""docker-compose.yml and Dockerfile, read: the schema of Compose, and the house rules for what runs in production.

compose-spec.json is the schema that github.com/compose-spec/compose-go v2.16.2 publishes (Apache-2.0).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from millstream.loading import known_keys, load

STAGES = ("assemble", "grade", "buffer", "trigger", "train", "gate")
ONE_SHOT = {"topics"}


def test_the_file_keeps_to_the_schema_of_compose(compose):
    """Every key and every shape is one that Compose knows."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text(encoding="utf-8"))
    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(compose)] == []


def test_every_service_of_the_loop_is_there(services):
    """Kafka, Redis, MLflow, the topics, the gateway, a worker for each stage, Prometheus, Grafana."""
    assert {"kafka", "redis", "mlflow", "topics", "gateway", *STAGES, "prometheus", "grafana"} <= set(services)
    for stage in STAGES:
        assert services[stage]["command"] == ["worker", stage]


def test_ports_are_on_loopback(services):
    """Nothing of it can be reached from another machine."""
    published = [port for one in services.values() for port in one.get("ports", ())]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_every_service_is_pinned_bounded_watched_and_restarted(services):
    """An exact version, a memory and a CPU limit, bounded logs, a health check, a restart policy; no privileges."""
    for name, one in services.items():
        assert re.search(r":(v?\d+\.\d+\.\d+|local)", one["image"]), name
        limits = one["deploy"]["resources"]["limits"]
        assert {"cpus", "memory"} <= set(limits), name
        assert set(one["logging"]["options"]) == {"max-size", "max-file"}, name
        assert "no-new-privileges:true" in one["security_opt"], name
        assert one["cap_drop"] == ["ALL"], name
        assert not {"privileged", "cap_add", "network_mode", "pid"} & set(one), name
        if name in ONE_SHOT:
            assert one["restart"].startswith("on-failure")
        else:
            assert one["restart"] == "unless-stopped"
            assert {"test", "interval", "timeout", "retries"} <= set(one["healthcheck"]), name


def test_secrets_come_from_the_environment_file(raw, root):
    """Each variable is in .env.example; a secret has no default and is empty there, so nothing starts without one."""
    example = (root / ".env.example").read_text(encoding="utf-8")
    told = dict(re.findall(r"^#? ?([A-Z_]+)=(.*)$", example, re.MULTILINE))
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", raw)) | set(re.findall(r"environment: ([A-Z_]+)$", raw, re.MULTILINE))
    assert asked - set(told) == {"MILLSTREAM_TAG", "KAFKA_CLUSTER_ID"}
    secrets = {name for name in told if name.endswith(("PASSWORD", "TOKEN"))}
    assert {name: told[name] for name in secrets} == dict.fromkeys(secrets, "")
    assert re.findall(r"\$\{\w*(?:PASSWORD|TOKEN):-", raw) == []
    assert ".env" in (root / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_settings_are_settings(ours, root):
    """Every MILLSTREAM_ variable is a setting of the type that its value has; the shipped settings file is one."""
    environment = {k: v for one in ours.values() for k, v in one["environment"].items() if k.startswith("MILLSTREAM_")}
    assert len(environment) > 10
    loaded = load(root / "ops" / "compose" / "millstream.toml", environ=environment)
    for name in environment:
        assert name.removeprefix("MILLSTREAM_").lower().replace("__", ".", 1) in known_keys()
    assert loaded.settings.metrics.enabled


def test_nothing_phones_home(ours, services):
    """The opt-outs of every library and program that would."""
    for name, one in ours.items():
        assert one["environment"]["DO_NOT_TRACK"] == "1", name
        assert one["environment"]["MLFLOW_DISABLE_TELEMETRY"] == "true", name
    grafana = services["grafana"]["environment"]
    for what in ("REPORTING_ENABLED", "CHECK_FOR_UPDATES", "CHECK_FOR_PLUGIN_UPDATES", "FEEDBACK_LINKS_ENABLED"):
        assert grafana[f"GF_ANALYTICS_{what}"] == "false"


def test_what_is_mounted_is_there(services, compose, root):
    """Files of the repository that exist, and volumes that are declared."""
    for name, one in services.items():
        for volume in one.get("volumes", ()):
            source = volume.split(":")[0]
            assert (root / source).exists() if source.startswith(".") else source in compose["volumes"], (name, volume)
        for option in one["security_opt"]:
            if option.startswith("seccomp="):
                assert (root / option.partition("=")[2]).is_file()


def test_what_a_service_needs_is_waited_for(services):
    """Every dependency exists and is waited for by its health, or by its end where it is a single run."""
    for name, one in services.items():
        for needed, how in one.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if needed in ONE_SHOT else "service_healthy"
            assert how["condition"] == wanted, (name, needed)
            assert needed in services


def test_prometheus_asks_every_worker(root):
    """The scrape configuration names the workers' services, their port and the token's file."""
    text = (root / "ops" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    assert set(re.search(r"names: \[(.*)\]", text)[1].split(", ")) == set(STAGES)
    assert "port: 9464" in text
    assert "credentials_file: /run/secrets/token" in text


def test_the_image_is_small_and_without_root(root):
    """The last stage ends as an ordinary user, brings no compiler, and what is copied is there and not ignored."""
    text = (root / "Dockerfile").read_text(encoding="utf-8")
    last = text.rsplit("\nFROM ", 1)[1]
    assert re.findall(r"^USER (\S+)", last, re.MULTILINE)[-1] == "10001:10001"
    assert "build-essential" not in text
    ignored = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (root / source).exists(), source
            assert any(source == kept or source.startswith(f"{kept}/") for kept in (i[1:] for i in ignored)), source


@pytest.mark.parametrize("room", ["capture", "streams", "graders", "trainer", "deploy", "console", "examples"])
def test_the_image_has_every_room(root, room):
    """The package's links lead to the rooms: each is copied."""
    assert f"COPY {room} ./{room}" in (root / "Dockerfile").read_text(encoding="utf-8")
