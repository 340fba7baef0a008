"""Kafka, Redis, MLflow and the data directory are backed up under a running system, lost at once, and put back: by
the commands of docs/production.md, as they stand there.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from services.fixtures import need
from services.kafka_node import KafkaNode, missing_for_kafka
from services.mlflow_server import MlflowServer
from services.redis_server import RedisServer, missing_for_redis
from trainable import blocks, runs, settings

from millstream.partition import partition_of

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


@pytest.fixture
def servers(tmp_path):
    """A node, a Redis and an MLflow of this test's own, started."""
    need(missing_for_kafka() or missing_for_redis() or ("" if shutil.which("sqlite3") else "sqlite3 is not installed"))
    made = (
        KafkaNode(tmp_path / "kafka"),
        RedisServer(tmp_path / "redis", "--appendfsync", "always"),
        MlflowServer(tmp_path / "mlflow"),
    )
    for one in made:
        one.start(90)
    yield made
    for one in made:
        one.kill()


def told(mill, *words, code=0):
    """What a command prints as JSON."""
    done = mill.run(*words, "--json")
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


def send(mill, turn):
    log = mill.fresh_log()  # a producer from before the restore is one whose sequence the node does not know
    for message in runs(turn):
        log.append("telemetry", [message], partition_of(message.key, log.partitions("telemetry")))


def test_everything_is_lost_and_put_back(servers, works, wait, root, tmp_path):
    """`audit` balances, versions can be explained and made again, and what came after the backup comes once more."""
    kafka, redis, mlflow = servers
    redis_block, kafka_block, mlflow_block, restore = blocks(root / "docs" / "production.md", "Backup and restore")
    mill = works(kafka=kafka, redis=redis, partitions=2, more=settings(root))
    data = mill.folder / ".millstream"
    mill.env["MILLSTREAM_STORAGE__TRACKING"] = mlflow.url
    folders = {
        "REDIS_DIR": tmp_path / "redis",
        "KAFKA_DIR": tmp_path / "kafka" / "data",
        "MLFLOW_DIR": tmp_path / "mlflow",
        "DATA": data,
    }

    def do(block):
        env = {name: str(folder) for name, folder in folders.items()}
        env |= {"BACKUP": str(tmp_path / "backup"), "REDIS_URL": redis.url, "PATH": mill.env["PATH"]}
        subprocess.run(["sh", "-eu", "-c", block], env=env, check=True, stdout=subprocess.DEVNULL)

    def trained(version):
        return any(one["version"] == version for one in told(mill, "policies", "list")["items"])

    up = mill.start_command("up")
    send(mill, 0)
    wait(lambda: trained(2), up.told)
    wait(mill.settled, up.told)
    do(redis_block)
    kafka.stop()
    do(kafka_block)
    kafka.start()
    do(mlflow_block)
    send(mill, 1)
    wait(lambda: trained(3), up.told)
    wait(mill.settled, up.told)

    up.kill()
    up.wait()
    for server in servers:
        server.kill()
    for folder in folders.values():
        shutil.rmtree(folder)
    do(restore)
    for server in servers:
        server.start(90)

    assert told(mill, "audit")["balanced"]
    assert trained(2)
    assert not trained(3)
    assert "training" in mill.run("why", "2").stdout
    assert mill.run("rebuild", "2", "--verify").returncode == 0
    send(mill, 1)
    done = mill.run("up", "--until-idle")
    assert done.returncode == 0, done.stderr
    assert trained(3)
    report = told(mill, "audit")
    assert report["balanced"]
    assert report["caught_up"]
