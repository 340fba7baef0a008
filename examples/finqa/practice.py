"""Practice: the serving policy plays training tasks, some attempts each, and the SDK tells what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millstream.capture.client import Client
from millstream.codec import digest
from millstream.deploy.remote import Caller
from millstream.events import Interface
from millstream.examples.finqa import work
from millstream.examples.finqa.playing import Play, PlayedRun
from millstream.examples.finqa.recording import Served, record_run
from millstream.examples.finqa.settings import LOOP
from millstream.examples.finqa.tasks import draw_tasks
from millstream.policy import Version

FLUSH_S = 60.0


class Practice:
    """An agent of one lineage. ``files``: where a version's lie; ``halves``: how many children share a round."""

    def __init__(
        self,
        caller: Caller,
        client: Client,
        interface: Interface,
        seed: int,
        files: Callable[[str, int], Path],
        halves: int = 2,
    ) -> None:
        self.caller = caller
        self.client = client
        self.interface = interface
        self.seed = seed
        self.files = files
        self.halves = halves

    def round(self, lineage: str, version: Version, number: int) -> int:
        """Play one round with a version and tell its runs in the order of the tasks; how many."""
        name = f"{self.seed}-{lineage}-{number}"
        tasks = draw_tasks("train", LOOP.practice.worlds, LOOP.practice.tasks, name)
        runs = self._play([task.task_id for task in tasks], str(self.files(lineage, version.version)), name)
        served = Served(
            lineage=lineage,
            version=version.version,
            temperature=LOOP.temperature,
            group_size=LOOP.attempts,
            interface=self.interface,
        )
        for played in runs:
            identity = digest("practice", name, version.version, played.task_id, played.attempt)
            record_run(self.client.start_run, played, served, identity)
        self.client.flush(FLUSH_S)
        return len(runs)

    def _play(self, task_ids: Sequence[str], folder: str, seed: str) -> list[PlayedRun]:
        share = -(-len(task_ids) // self.halves)
        parts = [tuple(task_ids[start : start + share]) for start in range(0, len(task_ids), share)]
        requests = [
            Play(
                policy_dir=folder,
                task_ids=part,
                attempts=LOOP.attempts,
                temperature=LOOP.temperature,
                seed=seed,
                batch_size=LOOP.batch_size,
            )
            for part in parts
        ]
        with ThreadPoolExecutor(len(requests)) as pool:
            answers = list(pool.map(lambda r: self.caller.call("play", work.encode(r)), requests))
        return [played for answer in answers for played in work.decode(answer)]
