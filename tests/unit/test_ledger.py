"""Following ``policy-events``: new events are folded, unreadable ones are counted and passed over."""

from pathlib import Path

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import PolicyPromoted, PolicyRegistered, TrainingClaimed, TrainingRequested
from millstream.ports import Message
from millstream.topics import POLICY_EVENTS


def test_the_reader_follows_the_log_and_its_time(tmp_path: Path) -> None:
    """Events appended later are seen at the next refresh, stamped with the log's time."""
    clock = ManualClock(5_000)
    embedded = open_sqlite(tmp_path / "log.db", clock=clock)
    reader = LedgerReader(embedded.log)
    assert reader.refresh().lineages == {}
    append_policy_events(embedded.log, [PolicyRegistered(id="r", lineage="a", version=1, uri="u", log_ms=99)])
    assert reader.refresh().lineages["a"].champion is None
    clock.advance(1_000)
    append_policy_events(
        embedded.log, [PolicyPromoted(id="p", lineage="a", version=1, expected_champion=None, reason="bootstrap")]
    )
    assert reader.refresh().lineages["a"].history == [(6_000, 1)]
    assert LedgerReader(embedded.log).refresh() == reader.ledger
    embedded.close()


def test_what_cannot_be_read_is_counted_and_passed_over(tmp_path: Path) -> None:
    """A kind of a newer version, bytes that are no JSON and a tombstone do not stop the fold."""
    embedded = open_sqlite(tmp_path / "log.db")
    embedded.log.append(
        POLICY_EVENTS.name,
        [
            Message("a", b'{"kind":"PolicyDreamed","id":"x","lineage":"a"}\n\xff\xfe'),
            Message("a", None),
            Message("a", b'{"kind":"PolicyRegistered","id":"r","lineage":"a","version":1,"uri":"u"}\n'),
        ],
    )
    reader = LedgerReader(embedded.log)
    assert 1 in reader.refresh().lineages["a"].versions
    assert reader.unreadable == 2
    assert reader.offset == 3
    embedded.close()


def test_a_takeover_counts_alike_for_readers_of_other_settings(tmp_path: Path) -> None:
    """A claim says how old its heartbeat may be: who knows no setting of the trainer folds the same as who does."""
    clock = ManualClock(0)
    embedded = open_sqlite(tmp_path / "log.db", clock=clock)
    request = TrainingRequested(
        id="t", lineage="a", parent=1, rollout_ids=(), algorithm="sft", seed=0, namespace="default", reason="test"
    )

    def claim(token: str) -> TrainingClaimed:
        return TrainingClaimed(id=token, lineage="a", training_id="t", token=token, timeout_ms=8_000)

    append_policy_events(embedded.log, [request, claim("first")])
    clock.advance(7_000)
    append_policy_events(embedded.log, [claim("too early")])
    clock.advance(2_000)
    append_policy_events(embedded.log, [claim("second")])
    ledgers = [LedgerReader(embedded.log, claim_timeout_ms=ms).refresh() for ms in (1, 60_000, 10**9)]
    assert [ledger.trainings["t"].token for ledger in ledgers] == ["second"] * 3
    embedded.close()
