"""Which run a call belongs to: the conversations that are open, in bounded memory.

A call goes on with the run that it names. One that names none goes on with the run whose last answer its messages
extend, or that its ``previous_response_id`` or ``conversation`` names; or with the run in which the very same request
failed before. Everything else begins a run: also a second continuation of one answer, which is a branch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from millstream.capture.proxy.naming import chain
from millstream.dialects.openai_calls import Asked
from millstream.dialects.told import Message
from millstream.events import EndReason, new_id


class Run(Struct, kw_only=True, eq=False):
    """An open run. ``named``: by its caller. ``times``: how often each message was told in it; ``last``: the name of
    its last event; ``unanswered``: calls of its tools without a result; ``touched_s``: when its last call ended.
    ``reason`` and ``error``: how it ends if nothing more comes.
    """

    id: str
    named: bool = False
    flags: tuple[str, ...] = ()
    begun: bool = False
    times: dict[str, int] = field(default_factory=dict)
    last: str = ""
    unanswered: set[str] = field(default_factory=set)
    touched_s: float = 0.0
    answer: str = ""
    reason: EndReason = "done"
    error: str = ""
    known_by: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """How many things are remembered of it."""
        return len(self.times) + len(self.known_by)


class Answer(Struct, eq=False):
    """An answer of a run that a request may go on from; ``taken``: one did."""

    run: Run
    taken: bool = False


class Found(Struct, frozen=True):
    """The run of a call. ``whole``: the call tells the conversation from its beginning; ``prompt``: the hash of it."""

    run: Run
    whole: bool
    prompt: str


class Conversations:
    """The open runs. Not thread-safe; calls are shown in the order in which they end. ``answers`` and ``failures`` are
    known by hashes of conversations (answers also by the ids of responses), ``named`` ones by their conversation's id.
    """

    def __init__(self, remember: int) -> None:
        """``remember``: how many messages and answers are known again, of all runs together."""
        self._remember = remember
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self.answers: dict[str, list[Answer]] = {}
        self.failures: dict[str, Run] = {}
        self.named: dict[str, Run] = {}
        self._size = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """The open runs, the one that waited longest first."""
        return iter(list(self._runs.values()))

    def find(self, asked: Asked, trajectory: str = "") -> Found:
        """The run of a call, a new one where there is none. ``trajectory``: the id that the caller gave."""
        links = list(chain(asked.messages, f"{asked.previous} {asked.conversation}".strip()))
        prompt = links[-1] if links else ""
        whole = not (asked.previous or asked.conversation)
        if trajectory:
            run = self._runs.get(trajectory) or Run(id=trajectory, named=True)
            self._take_answer(run, self._answer_before(asked, links))
        else:
            run = self._continued(asked, links)
        self._runs[run.id] = run
        self._runs.move_to_end(run.id)
        return Found(run, whole, prompt)

    def _continued(self, asked: Asked, links: Sequence[str]) -> Run:
        prompt = links[-1] if links else ""
        if (failed := self.failures.pop(prompt, None)) is not None:
            return failed
        if asked.conversation:
            return self.named.get(asked.conversation) or Run(id=new_id())
        answer = self._answer_before(asked, links)
        if answer is None:
            return Run(id=new_id(), flags=("earlier_unknown",) if asked.previous else ())
        if answer.taken:
            return Run(id=new_id(), flags=("branch",))
        answer.taken = True
        return answer.run

    def _answer_before(self, asked: Asked, links: Sequence[str]) -> Answer | None:
        """The answer that a call goes on from: of several with the same words one that none went on from yet, the
        oldest; the longest conversation where several fit.
        """
        names = [asked.previous] if asked.previous else reversed(links)
        known = next((self.answers[name] for name in names if name in self.answers), [])
        return next((one for one in known if not one.taken), known[-1] if known else None)

    def _take_answer(self, run: Run, answer: Answer | None) -> None:
        if answer is not None and answer.run is run:
            answer.taken = True

    def answered(self, found: Found, asked: Asked, turns: Sequence[Message], response_id: str) -> None:
        """A call got its answer: what extends it goes on with its run."""
        *_, name = ["", *chain(turns, found.prompt)]
        answer = Answer(found.run)
        for known in {name, response_id} - {""}:
            self.answers.setdefault(known, []).append(answer)
            found.run.known_by.add(known)
        if asked.conversation:
            self.named[asked.conversation] = found.run
            found.run.known_by.add(asked.conversation)

    def failed(self, found: Found) -> None:
        """A call got no answer, or half of one: the same request again goes on with its run."""
        if found.prompt:
            self.failures[found.prompt] = found.run
            found.run.known_by.add(found.prompt)

    def grown(self, run: Run, before: int) -> list[Run]:
        """Take account of a run that was of size ``before``; those that had to be forgotten for it."""
        self._size += run.size - before
        gone = []
        while self._size > self._remember and len(self._runs) > 1:
            oldest = next(iter(self._runs.values()))
            self.over(oldest)
            self.forgotten += 1
            gone.append(oldest)
        return gone

    def restore(
        self, run: Run, answers: Iterable[tuple[Iterable[str], Answer]], failed: Iterable[str], named: Iterable[str]
    ) -> None:
        """Take a run back that was open before, with its answers by their names, failed requests and conversations."""
        self._runs[run.id] = run
        for names, answer in answers:
            for name in names:
                self.answers.setdefault(name, []).append(answer)
        self.failures |= dict.fromkeys(failed, run)
        self.named |= dict.fromkeys(named, run)
        self.grown(run, 0)

    def over(self, run: Run) -> None:
        """Forget a run."""
        if self._runs.pop(run.id, None) is None:
            return
        self._size -= run.size
        for name in run.known_by:
            left = [one for one in self.answers.pop(name, ()) if one.run is not run]
            if left:
                self.answers[name] = left
            for table in (self.failures, self.named):
                if table.get(name) is run:
                    del table[name]
