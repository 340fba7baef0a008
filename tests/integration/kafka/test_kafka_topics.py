"""Topics: made once, compared with the settings, checked before a worker starts."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from msgspec import structs

from millstream.adapters.kafka_topics import KafkaTopics
from millstream.cli import main
from millstream.errors import Stuck
from millstream.topics import ALL

pytestmark = pytest.mark.services


def altered(topics, topic, **configs):
    resource = ConfigResource(
        ConfigResourceType.TOPIC, topics.cluster.topic(topic), {k.replace("_", "."): v for k, v in configs.items()}
    )
    told = topics.client.admin().alter_configs([resource])
    assert set(told["topic"].values()) == {"OK"}
    deadline = time.monotonic() + 20
    while any(topics._configs([resource.name])[resource.name][key] != value for key, value in resource.configs.items()):
        assert time.monotonic() < deadline


def state_of(states, topic):
    return next(state for state in states if state.topic == topic)


@pytest.fixture
def none_yet(cluster):
    """The namespace without topics."""
    with closing(KafkaTopics(cluster)) as found:
        yield found
        found.delete(*(topic.name for topic in ALL))


def test_topics_are_made_once_as_the_settings_say(none_yet):
    """Made: partitions, retention, log time; made again: the same ids and nothing to do."""
    assert [state.id for state in none_yet.states()] == [""] * len(ALL)
    made = none_yet.create()
    assert {state.done for state in made} == {("created",)}
    assert {state.differences for state in made} == {()}
    assert {state.topic: state.partitions for state in made} == {topic.name: 1 if topic.single else 2 for topic in ALL}
    configs = none_yet._configs([none_yet.cluster.topic("telemetry")])[none_yet.cluster.topic("telemetry")]
    assert configs["message.timestamp.type"] == "LogAppendTime"
    assert configs["retention.ms"] == "2592000000"
    again = none_yet.create()
    assert [(state.id, state.done) for state in again] == [(state.id, ()) for state in made]


def test_what_differs_is_told_and_set_only_when_asked(topics):
    """A retention that somebody raised by hand stays, until `--apply`."""
    altered(topics, "telemetry", retention_ms="999")
    (found,) = state_of(topics.create(), "telemetry").differences
    assert (found.key, found.found, found.wanted, found.wrong) == ("retention.ms", "999", "2592000000", False)
    topics.check()
    changed = state_of(topics.create(apply=True), "telemetry")
    assert (changed.differences, changed.done) == ((), ("retention.ms",))


@pytest.mark.parametrize(("key", "value"), [("message.timestamp.type", "CreateTime"), ("cleanup.policy", "compact")])
def test_what_is_wrong_keeps_workers_from_starting_until_it_is_mended(topics, key, value):
    """Producers' clocks and compaction break promises: the check names the command that mends them."""
    altered(topics, "trajectories", **{key: value})
    with pytest.raises(Stuck, match=rf"{key}={value}.*millstream topics create"):
        topics.check()
    assert state_of(topics.create(), "trajectories").done == (key,)
    topics.check()


def test_missing_topics_are_named_with_the_mend(none_yet):
    """Before `topics create` no worker starts."""
    with pytest.raises(Stuck, match=r"lacks the topics .*telemetry.*millstream topics create"):
        none_yet.check()


def test_a_partition_count_is_never_changed(topics):
    """Other settings leave it as it is and tell the difference."""
    more = structs.replace(topics.cluster, settings=structs.replace(topics.cluster.settings, partitions=8))
    with closing(KafkaTopics(more)) as found:
        state = state_of(found.create(apply=True), "telemetry")
    assert state.partitions == 2
    assert [(d.key, d.found, d.wanted, d.wrong) for d in state.differences] == [("partitions", "2", "8", False)]


def test_more_copies_than_there_are_brokers_is_told(none_yet):
    """The cluster's own words, and the setting."""
    three = structs.replace(none_yet.cluster, settings=structs.replace(none_yet.cluster.settings, replication=3))
    with closing(KafkaTopics(three)) as found, pytest.raises(Stuck, match=r"see \[kafka\] replication"):
        found.create()


@pytest.fixture
def run(cluster, kafka_node, tmp_path, monkeypatch, capsys):
    """A command of the command line on the namespace: its exit code, standard output and error."""
    (tmp_path / "millstream.toml").write_text(
        f'[storage]\nlog = "{kafka_node.url}"\nstate = "sqlite:///state.db"\n'
        f'[kafka]\nnamespace = "{cluster.settings.namespace}"\nreplication = 1\nmin_insync = 1\npartitions = 2\n'
        "timeout_s = 3\n"
    )
    monkeypatch.chdir(tmp_path)

    def command(*args):
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        out = capsys.readouterr()
        return ended.value.code, out.out, out.err

    return command


def test_the_commands_make_and_list_topics(run, none_yet):
    """`topics list` says what is missing, `topics create` makes it, also as JSON."""
    code, out, _ = run("topics", "list")
    assert code == 0
    assert out.count("missing") == len(ALL)
    code, out, _ = run("topics", "create", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "millstream.topics/1"
    assert [item["done"] for item in document["items"]] == [["created"]] * len(ALL)
    assert "missing" not in run("topics", "list")[1]


def test_a_broker_that_is_away_is_one_line_and_exit_3(run, none_yet, monkeypatch):
    """The address, the cause and the mend."""
    monkeypatch.setenv("MILLSTREAM_STORAGE__LOG", "kafka://127.0.0.1:1")
    code, out, err = run("topics", "list")
    assert (code, out) == (3, "")
    assert err == (
        "millstream: kafka://127.0.0.1:1 does not answer: Connection refused; "
        "is it running, and is [storage] log right?\n"
    )


def test_doctor_looks_at_the_cluster(run, none_yet):
    """Missing topics are a failure with the mend; with them the log and the state are in order."""

    def checks():
        code, out, _ = run("doctor", "--json")
        return code, {check["name"]: check for check in json.loads(out)["checks"]}

    code, before = checks()
    assert (code, before["log"]["level"]) == (1, "fail")
    assert before["log"]["mend"] == "`millstream topics create` mends it"
    assert "state" not in before
    none_yet.create()
    _, after = checks()
    assert (after["log"]["level"], after["state"]["level"]) == ("ok", "ok")


def test_the_embedded_log_needs_no_topics_made(run, none_yet, monkeypatch):
    """The command says so."""
    monkeypatch.setenv("MILLSTREAM_STORAGE__LOG", "sqlite:///log.db")
    code, _, err = run("topics", "create")
    assert code == 2
    assert "makes its own topics" in err
