import msgspec
import pytest

from millstream.adapters.sqlite import open_sqlite
from millstream.ledger import append_policy_events
from millstream.policy import (
    AnyPolicyEvent,
    GateDecided,
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
)
from millstream.ports import Message
from millstream.settings import TrainerSettings, TriggerSettings
from millstream.streams.trigger import Trigger, request_by_hand

_EVENT = msgspec.json.Decoder(AnyPolicyEvent)


class Loop:
    """A buffering stage whose decisions a trigger reads, both on one clock."""

    def __init__(self, desk, **settings):
        self.desk = desk
        self.stage = desk.stage()
        settings = {"min_groups": 2, "min_informative": 1, **settings}
        self.trigger = Trigger(
            TriggerSettings(**settings), TrainerSettings(), lineage="policy", namespace="default", success_at=0.5
        )

    def grades(self, records):
        return [r for record in records for out in self.stage.feed(record) for r in self._decided(out)]

    def _decided(self, output):
        record = msgspec.structs.replace(self.desk.record(topic="buffer-events"), value=output.value)
        return self._requests(self.trigger.feed(record))

    def policy(self, *events):
        record = self.desk.policy(*events)
        requests = self._requests(self.trigger.feed(record))
        return requests + [r for out in self.stage.feed(record) for r in self._decided(out)]

    def _requests(self, outputs):
        return [_EVENT.decode(output.value) for output in outputs]

    def train(self, request, version, *, register=True):
        """Claim and finish a training."""
        made = [PolicyRegistered(id=f"r{version}", lineage="policy", version=version, uri="u", training_id=request.id)]
        return self.policy(
            request,
            TrainingClaimed(id=f"c{version}", lineage="policy", training_id=request.id, token="a"),
            *made[: int(register)],
            TrainingFinished(
                id=f"f{version}", lineage="policy", training_id=request.id, token="a", version=version, manifest="m"
            ),
        )


def champion(version, expected=None):
    return PolicyPromoted(
        id=f"p{version}", lineage="policy", version=version, expected_champion=expected, reason="test"
    )


def judged(version, verdict):
    return GateDecided(
        id=f"g{version}", lineage="policy", version=version, expected_champion=1, verdict=verdict, reasons=()
    )


@pytest.fixture
def loop(desk):
    loop = Loop(desk)
    loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    return loop


def test_enough_groups_ask_for_a_training(desk, loop):
    """Two groups, one informative: a request with every rollout, sorted, and a reason with the figures."""
    assert loop.grades(desk.group("a", [1.0, 0.0])) == []
    (request,) = loop.grades(desk.group("b", [1.0, 1.0]))
    assert request.parent == 1
    assert list(request.rollout_ids) == sorted(loop.stage.book.ledger.entries)
    assert "2 new groups (2 needed), 1 of them informative" in request.reason
    assert request.settings["algorithm"] == request.algorithm == "sft"


def test_equal_rewards_alone_do_not(desk, loop):
    """Groups at 0 % or 100 % teach nothing: none is informative."""
    assert loop.grades(desk.group("a", [1.0, 1.0]) + desk.group("b", [0.0, 0.0])) == []


def test_no_champion_no_training(desk):
    """Without a policy there is nothing to train."""
    loop = Loop(desk)
    assert loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0])) == []


def test_not_while_a_training_is_open_or_waits_for_its_gate(desk, loop):
    """Groups that come meanwhile count at once when the gate has refused, with the released ones."""
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    assert loop.grades(desk.group("c", [1.0, 0.0]) + desk.group("d", [1.0, 0.0])) == []
    assert loop.train(request, 2) == []
    (second,) = loop.policy(judged(2, "refuse"))
    assert set(second.rollout_ids) == set(loop.stage.book.ledger.entries)
    assert "2 new groups (2 needed), 2 of them informative (1 needed), 2 older groups still usable" in second.reason
    assert second.id != request.id


def test_a_verdict_to_promote_waits_for_the_promotion(desk, loop):
    """Between the verdict and the promotion nothing is asked for the old champion."""
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    loop.grades(desk.group("c", [1.0, 0.0]) + desk.group("d", [1.0, 0.0]))
    loop.train(request, 2)
    assert loop.policy(judged(2, "promote")) == []
    (second,) = loop.policy(champion(2, expected=1))
    assert second.parent == 2


def test_only_new_groups_count_towards_the_next(desk, loop):
    """After a failed training its rollouts are usable again, but one new group is not enough."""
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    failed = TrainingFailed(id="x", lineage="policy", training_id=request.id, token="a", reason="nan")
    claim = TrainingClaimed(id="c", lineage="policy", training_id=request.id, token="a")
    assert loop.policy(request, claim, failed) == []
    assert loop.grades(desk.group("c", [1.0, 0.0])) == []
    (second,) = loop.grades(desk.group("d", [1.0, 0.0]))
    assert len(second.rollout_ids) == 8


def test_a_stale_policy_version_does_not_count(desk):
    """With max_staleness 0 only the champion's own runs train it."""
    loop = Loop(desk, max_staleness=0)
    loop.policy(
        PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"),
        PolicyRegistered(id="r2", lineage="policy", version=2, uri="u"),
        champion(2),
    )
    old = desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0])
    assert loop.grades(old) == []
    fresh = desk.group("c", [1.0, 0.0], policy_version=2) + desk.group("d", [1.0, 0.0], policy_version=2)
    (request,) = loop.grades(fresh)
    assert len(request.rollout_ids) == 4


def test_the_cap_takes_whole_groups_of_the_highest_priority(desk):
    """Of three groups with room for two, the one without advantage stays behind."""
    loop = Loop(desk, min_groups=3, max_rollouts=4)
    loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    groups = desk.group("dull", [1.0, 1.0]) + desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0])
    (request,) = loop.grades(groups)
    entries = loop.stage.book.ledger.entries
    assert {entries[i].task_id for i in request.rollout_ids} == {"a", "b"}


def test_a_chain_goes_on_from_its_candidate(desk):
    """The second round starts from the first's candidate, parent still the champion, without a gate."""
    loop = Loop(desk, chain=True)
    loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    assert request.start_from is None
    loop.train(request, 2)
    later = desk.group("c", [1.0, 0.0], policy_version=2) + desk.group("d", [1.0, 0.0], policy_version=2)
    (second,) = loop.grades(later)
    assert (second.parent, second.start_from) == (1, 2)
    assert len(second.rollout_ids) == 4


def test_the_same_evidence_is_the_same_request(desk):
    """The id is a hash of what is asked: two triggers that read the same log ask the same."""
    requests = []
    for _ in range(2):
        desk.offset, desk.ms = 0, 1_000_000
        loop = Loop(desk)
        loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
        requests += loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    assert requests[0] == requests[1]


def test_a_restart_asks_nothing_twice(desk, loop):
    """Restored from its snapshot after a request, and shown the request again, it stays silent."""
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    restored = Trigger(loop.trigger.settings, TrainerSettings(), lineage="policy", namespace="default")
    restored.restore(loop.trigger.snapshot())
    assert restored.snapshot() == loop.trigger.snapshot()
    assert list(restored.feed(desk.policy(request))) == []


def test_an_unreadable_record_is_counted(desk, loop):
    """Bytes that are no decision or policy event change nothing."""
    for topic in ("buffer-events", "policy-events"):
        loop.trigger.feed(msgspec.structs.replace(desk.record(topic=topic), value=b"\xff\n"))
    assert loop.trigger.state.undecodable == 2


def test_families_that_teach_nothing_are_left_out(desk):
    """Four solved groups of one family and one mixed of another: the request has the mixed one alone and says
    why; the solved ones count as new, never as informative.
    """
    loop = Loop(desk, min_groups=5, learnable_runs=8)
    loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    for n in range(4):
        assert loop.grades(desk.group(f"s{n}", [1.0, 0.9], family="sum")) == []
    (request,) = loop.grades(desk.group("m", [1.0, 0.0], family="mixed"))
    assert len(request.rollout_ids) == 2
    assert "5 new groups (5 needed), 1 of them informative" in request.reason
    assert "4 groups left out, they teach nothing: sum (always 1)" in request.reason


def test_only_solved_families_ask_for_nothing(desk):
    """However many groups there are; the first mixed one asks."""
    loop = Loop(desk, min_groups=5, learnable_runs=8)
    loop.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    for n in range(12):
        assert loop.grades(desk.group(f"s{n}", [1.0, 0.9], family="sum")) == []
    (request,) = loop.grades(desk.group("m", [1.0, 0.0], family="mixed"))
    assert len(request.rollout_ids) == 2


class ByHand:
    """The stage and a log of its own, in which requests are asked for by hand."""

    def __init__(self, desk, log):
        self.desk, self.log, self.stage = desk, log, desk.stage()

    def fill(self, records):
        for record in records:
            for out in self.stage.feed(record):
                self.log.append(out.topic, [Message(out.key, out.value, out.headers)])

    def policy(self, *events):
        append_policy_events(self.log, events)
        self.fill([self.desk.policy(*events)])

    def ask(self):
        return request_by_hand(self.log, TriggerSettings(), TrainerSettings(), "policy", "default")

    def ended(self, request, failed):
        """It is claimed, and it fails, or not."""
        name, token = request.id, f"token-{request.id}"
        common = {"lineage": "policy", "training_id": name, "token": token}
        self.policy(request, TrainingClaimed(id=f"c-{name}", **common))
        if failed:
            self.policy(TrainingFailed(id=f"f-{name}", reason="the disk was full", **common))


@pytest.fixture
def by_hand(desk, tmp_path):
    log, store = open_sqlite(tmp_path / "log.db")
    made = ByHand(desk, log)
    made.policy(PolicyRegistered(id="r1", lineage="policy", version=1, uri="u"), champion(1))
    made.fill(desk.group("a", [1.0, 0.0]))
    yield made
    store.file.close()


def test_what_failed_is_asked_for_again_by_hand(by_hand):
    """The same rollouts, free again, under an id of their own each time; asked for twice before it ends is once."""
    told = []
    for _ in range(3):
        request = by_hand.ask()
        assert by_hand.ask().id == request.id
        by_hand.ended(request, failed=True)
        told.append(request)
    assert len({request.id for request in told}) == 3
    assert len({request.rollout_ids for request in told}) == 1


def test_what_failed_is_not_asked_for_again_by_itself(desk, loop):
    """Its rollouts go into the next training, once as many new groups have come as always."""
    (request,) = loop.grades(desk.group("a", [1.0, 0.0]) + desk.group("b", [1.0, 0.0]))
    common = {"lineage": "policy", "training_id": request.id, "token": "a"}
    asked = loop.policy(request, TrainingClaimed(id="c", **common))
    asked += loop.policy(TrainingFailed(id="f", reason="not finite", **common))
    assert asked == []
    assert loop.grades(desk.group("c", [1.0, 0.0])) == []
    (second,) = loop.grades(desk.group("d", [1.0, 0.0]))
    assert set(request.rollout_ids) < set(second.rollout_ids)
