"""The train worker: requests in `policy-events` become versions, one at a time.

request → claim → wait for the lease → manifest → train (in a child process) → register → TrainingFinished. `step`
never blocks for long: the work runs in a thread, and only this object appends events. A worker that is killed leaves a
claim whose heartbeat ages; the next one takes it over, finds what was already made, and does nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from millstream.codec import digest
from millstream.events import new_id
from millstream.failpoints import BEFORE_FINISH, reach
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import (
    AnyPolicyEvent,
    PolicyRegistered,
    Training,
    TrainingClaimed,
    TrainingFailed,
    TrainingFinished,
    TrainingHeartbeat,
)
from millstream.ports import Buffer, Log, Tracker
from millstream.settings import TrainerSettings
from millstream.trainer.fulfilment import Failure, Made, Sources
from millstream.trainer.job import Job
from millstream.trainer.manifest import admissions
from millstream.trainer.orders import Caller

_LOG = logging.getLogger(__name__)


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Who the worker is, where it works, how long it waits for a lease before it gives a training up."""

    folder: Path
    name: str = "train"
    lease_timeout_s: float = 600.0
    call_timeout_s: float | None = None
    retry_s: float = 1.0


class TrainWorker:
    """Trains the lineages it has settings for. Not thread-safe: `step` belongs to one caller."""

    def __init__(
        self,
        log: Log,
        buffers: Mapping[str, Buffer],
        tracker: Tracker,
        caller: Caller,
        lineages: Mapping[str, TrainerSettings],
        settings: WorkerSettings,
        graders: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        """`buffers` by namespace, `lineages` by name. `graders`: those that the reward of each lineage is made of;
        while an alarm about one of them stands, what was asked for is not begun.
        """
        self.log = log
        self.buffers = buffers
        self.lineages = lineages
        self.settings = settings
        self.graders = graders
        self.sources = Sources(tracker, caller, settings.call_timeout_s, settings.retry_s)
        timeout_s = max((trainer.claim_timeout_s for trainer in lineages.values()), default=60.0)
        self.reader = LedgerReader(log, claim_timeout_ms=round(timeout_s * 1000))
        self.job: Job | None = None
        self._beaten_ms = 0

    @property
    def busy(self) -> bool:
        """Whether a training is under way here."""
        return self.job is not None

    def step(self) -> bool:
        """One poll: whether anything happened. Raises `Unavailable` when the log does not answer."""
        ledger = self.reader.refresh()
        if self.job is None:
            return self._claim(ledger.trainings)
        return self._tend(self.job, ledger.trainings[self.job.training_id])

    def pending(self) -> bool:
        """Whether a training of these lineages is not finished yet."""
        trainings = self.reader.refresh().trainings.values()
        return any(t.request.lineage in self.lineages and t.state in ("requested", "claimed") for t in trainings)

    def close(self) -> None:
        """Forget the work under way (its claim ages and is taken over)."""
        if self.job is not None:
            self.job.abandon()
            self.job = None

    def _claim(self, trainings: Mapping[str, Training]) -> bool:
        now = self.log.now_ms()
        training = next((t for t in trainings.values() if self._free(t, now)), None)
        if training is None:
            return False
        request, token = training.request, new_id()
        self._append(
            TrainingClaimed(
                id=digest("claimed", request.id, token),
                lineage=request.lineage,
                training_id=request.id,
                token=token,
                worker=self.settings.name,
                timeout_ms=round(self.lineages[request.lineage].claim_timeout_s * 1000),
            )
        )
        standing = self.reader.refresh().trainings[request.id]
        if standing.state == "claimed" and standing.token == token:
            self._beaten_ms = now
            folder = self.settings.folder / request.id
            self.job = Job(request, token, folder, self.lineages[request.lineage], since_ms=now)
        return True

    def _free(self, training: Training, now_ms: int) -> bool:
        lineage = training.request.lineage
        if lineage not in self.lineages:
            return False
        if self.reader.ledger.graders.stopping(lineage, self.graders.get(lineage, frozenset())) is not None:
            return False
        old = now_ms - training.beat_ms >= self.reader.ledger.timeout_ms(training)
        return training.state == "requested" or (training.state == "claimed" and old)

    def _tend(self, job: Job, training: Training) -> bool:
        if training.state != "claimed" or training.token != job.token:
            _LOG.warning("training %s was taken over; its work here is dropped", job.training_id)
            self.close()
            return True
        if not job.started:
            return self._await_lease(job) or self._beat(job)
        outcome = job.outcome()
        if outcome is None:
            return self._beat(job)
        self.job = None
        reach(BEFORE_FINISH)
        self._append(*self._told(job, outcome))
        return True

    def _await_lease(self, job: Job) -> bool:
        buffer = self.buffers.get(job.request.namespace)
        if buffer is None:
            return self._give_up(job, f"no buffer for namespace {job.request.namespace!r}")
        lease = buffer.lease(job.training_id)
        if lease is not None and lease.token == job.token:
            if not lease.rollout_ids:
                return self._give_up(job, "none of the requested rollouts may be used any more")
            versions = self.reader.ledger.lineage(job.request.lineage).versions
            job.start(self.sources, buffer, versions, lease.rollout_ids, admissions(self.log, lease.rollout_ids))
            return True
        if self.log.now_ms() - job.since_ms > self.settings.lease_timeout_s * 1000:
            return self._give_up(job, f"the buffer gave no lease within {self.settings.lease_timeout_s:g} s")
        return False

    def _give_up(self, job: Job, why: str) -> bool:
        self.job = None
        self._append(*self._told(job, Failure(why)))
        return True

    def _beat(self, job: Job) -> bool:
        now = self.log.now_ms()
        if now - self._beaten_ms < job.settings.heartbeat_s * 1000:
            return False
        self._beaten_ms = now
        beat = digest("heartbeat", job.training_id, job.token, now)
        self._append(
            TrainingHeartbeat(id=beat, lineage=job.request.lineage, training_id=job.training_id, token=job.token)
        )
        return True

    def _told(self, job: Job, outcome: Made | Failure) -> tuple[AnyPolicyEvent, ...]:
        request = job.request
        if isinstance(outcome, Failure):
            _LOG.warning("training %s failed: %s", request.id, outcome.reason)
            return (
                TrainingFailed(
                    id=digest("failed", request.id, job.token),
                    lineage=request.lineage,
                    training_id=request.id,
                    token=job.token,
                    reason=outcome.reason,
                ),
            )
        registered = PolicyRegistered(
            id=digest("registered", request.lineage, outcome.version),
            lineage=request.lineage,
            version=outcome.version,
            uri=outcome.uri,
            parent=request.parent if request.start_from is None else request.start_from,
            training_id=request.id,
            run_id=outcome.run_id,
            content_hash=outcome.content_hash,
        )
        finished = TrainingFinished(
            id=digest("finished", request.id, outcome.version),
            lineage=request.lineage,
            training_id=request.id,
            token=job.token,
            version=outcome.version,
            manifest=outcome.manifest,
            metrics=outcome.metrics,
        )
        return registered, finished

    def _append(self, *events: AnyPolicyEvent) -> None:
        append_policy_events(self.log, events)
