"""One claimed training in a thread of its own; it appends nothing to the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millstream.errors import MillstreamError, Unavailable
from millstream.policy import TrainingRequested, Version
from millstream.ports import Buffer
from millstream.rollout import RolloutId
from millstream.settings import TrainerSettings
from millstream.trainer.fulfilment import Abandoned, Admitted, Failure, Fulfilment, Made, Sources

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
"""How often work is tried when something outside does not answer."""


class Job:
    """A claimed training. `start` runs it in a thread, `outcome` tells once it is over."""

    def __init__(
        self, request: TrainingRequested, token: str, folder: Path, settings: TrainerSettings, *, since_ms: int
    ) -> None:
        self.request = request
        self.training_id = request.id
        self.token = token
        self.folder = folder
        self.settings = settings
        self.since_ms = since_ms
        self._thread: threading.Thread | None = None
        self._outcome: Made | Failure | None = None
        self._abandoned = threading.Event()

    @property
    def started(self) -> bool:
        """Whether the work has begun."""
        return self._thread is not None

    def outcome(self) -> Made | Failure | None:
        """What came of it, or None while it runs."""
        return self._outcome

    def abandon(self) -> None:
        """Stop before the next thing that others would see."""
        self._abandoned.set()

    def join(self) -> None:
        """Wait until the work is over."""
        if self._thread is not None:
            self._thread.join()

    def start(
        self,
        sources: Sources,
        buffer: Buffer,
        versions: Mapping[int, Version],
        leased: Sequence[RolloutId],
        admitted: Admitted,
    ) -> None:
        """Begin on the leased rollouts, in their order; `versions` are the lineage's, as the ledger has them."""
        work = Fulfilment(
            self.request, self.folder, self.settings, sources, dict(versions), admitted, self.check_standing
        )
        name = f"train-{self.training_id[:8]}"
        self._thread = threading.Thread(target=self._run, args=(work, buffer, leased), name=name, daemon=True)
        self._thread.start()

    def _run(self, work: Fulfilment, buffer: Buffer, leased: Sequence[RolloutId]) -> None:
        try:
            self._outcome = self._attempted(work, buffer, leased)
        except Abandoned:
            self._outcome = Failure("the claim was lost")
        except (MillstreamError, OSError, msgspec.ValidationError) as error:
            self._outcome = Failure(f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001 — a bug ends this training, not the worker
            _LOG.exception("training %s", self.training_id)
            self._outcome = Failure(f"internal error: {type(error).__name__}: {error}")

    def _attempted(self, work: Fulfilment, buffer: Buffer, leased: Sequence[RolloutId]) -> Made | Failure:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work.do(buffer.read(leased))
            except Unavailable as error:
                if attempt == _ATTEMPTS:
                    raise
                _LOG.warning("training %s, attempt %d: %s", self.training_id, attempt, error)
                if self._abandoned.wait(work.sources.retry_s):
                    break
        raise Abandoned

    def check_standing(self) -> None:
        """Raise when the claim is lost."""
        if self._abandoned.is_set():
            raise Abandoned
