"""Promotion, rollback and retirement by hand, each one event that names the champion it expects."""

import pytest

from millstream.deploy.promotion import promote, retire, rollback
from millstream.errors import Conflict, SettingsError
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import PolicyPromoted


class Interloper:
    """A log in which somebody else promotes a version just before each append."""

    def __init__(self, log, version: int) -> None:
        self.log, self.version = log, version

    def __getattr__(self, name: str):
        return getattr(self.log, name)

    def append(self, *args, **kwargs) -> int:
        standing = LedgerReader(self.log).refresh().lineages["policy"].champion
        append_policy_events(
            self.log,
            [
                PolicyPromoted(
                    id="other", lineage="policy", version=self.version, expected_champion=standing, reason="first"
                )
            ],
        )
        return self.log.append(*args, **kwargs)


def test_promote_and_roll_back(log, base, candidate) -> None:
    """2 is promoted, then the previous one serves again; the history keeps all three moves."""
    base(log), candidate(log, 2)
    assert promote(log, "policy", 2, "looks good").version == 2
    assert rollback(log, "policy", "it was not").version == 1
    lineage = LedgerReader(log).refresh().lineages["policy"]
    assert [v for _, v in lineage.history] == [1, 2, 1]
    assert lineage.previous == 2


def test_roll_back_to_a_named_version(log, base, candidate) -> None:
    """--to goes further back, but only to a version that served."""
    base(log), candidate(log, 2), candidate(log, 3)
    promote(log, "policy", 2, "")
    with pytest.raises(SettingsError, match="did not serve before; those that did: 1"):
        rollback(log, "policy", "", to=3)
    promote(log, "policy", 3, "")
    assert rollback(log, "policy", "", to=1).version == 1


def test_what_is_asked_for_must_exist(log, base, candidate) -> None:
    """Every refusal names what is there."""
    with pytest.raises(SettingsError, match="known: none yet"):
        promote(log, "policy", 2, "")
    base(log), candidate(log, 2)
    with pytest.raises(SettingsError, match="no version 7; known: 1, 2"):
        promote(log, "policy", 7, "")
    with pytest.raises(SettingsError, match="champion already"):
        promote(log, "policy", 1, "")
    with pytest.raises(SettingsError, match="no earlier champion"):
        rollback(log, "policy", "")
    with pytest.raises(SettingsError, match="no lineage 'polisy'; known: policy"):
        retire(log, "polisy", 1, "")


def test_retire(log, base, candidate) -> None:
    """A candidate is retired, the champion never."""
    base(log), candidate(log, 2)
    assert retire(log, "policy", 2, "superseded").stage == "retired"
    with pytest.raises(SettingsError, match="serves; promote another"):
        retire(log, "policy", 1, "")


def test_m08_the_slower_promoter_is_told(log, base, candidate) -> None:
    """M08: between the look and the write somebody promotes 3; the write does not count and says so."""
    base(log), candidate(log, 2), candidate(log, 3)
    with pytest.raises(Conflict, match="moved to version 3"):
        promote(Interloper(log, 3), "policy", 2, "slow")
    assert LedgerReader(log).refresh().lineages["policy"].champion == 3


def test_retiring_what_was_just_promoted_is_told(log, base, candidate) -> None:
    """A version that becomes champion meanwhile is not retired."""
    base(log), candidate(log, 2)
    with pytest.raises(Conflict, match="not retired"):
        retire(Interloper(log, 2), "policy", 2, "")
