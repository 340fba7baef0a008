"""Integrity: manifests, splits and interfaces, from the manifest and from the buffer's own decisions."""

import msgspec

from millstream.deploy.integrity import ManifestFacts, ManifestRollout, admitted_facts, problems
from millstream.events import Interface
from millstream.policy import Training, TrainingRequested
from millstream.ports import Message
from millstream.rollout import Position, RolloutAdmitted, RolloutFacts
from millstream.topics import BUFFER_EVENTS


def training(*rollouts: str) -> Training:
    """A finished training of these rollouts."""
    return Training(
        request=TrainingRequested(
            id="t", lineage="policy", parent=1, rollout_ids=rollouts, algorithm="sft", seed=0, namespace="n", reason="r"
        ),
        manifest="m.json",
    )


def manifest(*rollouts: tuple[str, str | None], **fields) -> ManifestFacts:
    """A manifest that lists rollouts with their splits."""
    return ManifestFacts(rollouts=tuple(ManifestRollout(id=r, split=s) for r, s in rollouts), **fields)


TRAIN = {"a": RolloutFacts(split="train"), "b": RolloutFacts(split="train")}


def test_all_in_order() -> None:
    """Train rollouts, listed as asked, of a matching interface: nothing to say."""
    assert problems(training("a", "b"), manifest(("a", "train"), ("b", "train")), TRAIN, Interface(tools="x")) == ()


def test_held_out_and_report_worlds_are_found() -> None:
    """By the manifest or by the buffer: either is enough, and both are named."""
    by_manifest = problems(training("a", "b"), manifest(("a", "train"), ("b", "report")), TRAIN, Interface())
    assert by_manifest == ("1 trained rollouts come from report worlds, says the manifest",)
    seen = {"a": RolloutFacts(split="held_out"), "b": RolloutFacts(split="train")}
    by_buffer = problems(training("a", "b"), manifest(("a", None), ("b", None)), seen, Interface())
    assert by_buffer == ("1 trained rollouts come from held_out worlds, says the buffer decisions",)


def test_rollouts_that_nobody_admitted_or_listed() -> None:
    """A manifest of other rollouts than were asked for, and rollouts the buffer never took."""
    found = problems(training("a", "c"), manifest(("a", "train"), ("b", "train")), TRAIN, Interface())
    assert "differ in 2 rollouts" in found[0]
    assert "1 trained rollouts were never admitted to the buffer, first c" in found[1]


def test_interfaces_differ_only_where_both_are_known() -> None:
    """An unknown part matches any; a known one must agree, on the manifest and on each rollout."""
    serving = Interface(tools="x", template="t")
    assert problems(training("a"), manifest(("a", None), interface=Interface(tools="x")), TRAIN, serving) == ()
    other = {"a": RolloutFacts(split="train", interface=Interface(template="u"))}
    found = problems(training("a"), manifest(("a", None), interface=Interface(tools="y")), other, serving)
    assert [f.split(":")[1].split()[0] for f in found] == ["template", "tools"]


def test_a_training_without_a_manifest() -> None:
    """Nothing to check: that alone is out of order, and the place is named."""
    assert "no manifest that can be read (at 'm.json')" in problems(training("a"), None, TRAIN, Interface())[0]


def test_facts_come_from_the_buffers_decisions(log) -> None:
    """What the buffer knew when it admitted a rollout is found by its id, and only of those asked for."""

    def admitted(rollout: str) -> bytes:
        return msgspec.json.encode(
            RolloutAdmitted(
                id=f"d-{rollout}",
                namespace="n",
                rollout_id=rollout,
                trajectory_id=rollout,
                trajectory_revision=1,
                content_hash="h",
                position=Position("t", 0, 0),
                group="g",
                reward=1.0,
                advantage=0.5,
                priority=0.0,
                facts=RolloutFacts(split="train", family=rollout),
            )
        )

    log.append(BUFFER_EVENTS.name, [Message("g", admitted("a") + b"\n" + admitted("b")), Message("g", admitted("c"))])
    found = admitted_facts(log, ["b", "c", "z"])
    assert {key: facts.family for key, facts in found.items()} == {"b": "b", "c": "c"}
