"""Asking a judge until it has given a verdict that can be read, and saying what that took.

One verdict: from the cache when the same question was answered before; else at most ``tries`` replies are read,
and each call is repeated with backoff while the endpoint is away, all within a deadline. What comes of it is a
verdict or a `JudgeFault` with its kind: never a number that the judge did not give.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, field, structs

from millstream import metrics
from millstream.codec import digest
from millstream.errors import GraderError, SettingsError, Unavailable
from millstream.grade import FailedKind
from millstream.graders.hosted.faults import Spent
from millstream.graders.judges.budget import Budget
from millstream.graders.judges.graded_text import NOTICE
from millstream.graders.judges.pace import Pace
from millstream.graders.judges.reading import Unreadable
from millstream.judging import Ask, Busy, Endpoint, Form, Memory, Rejected, Reply
from millstream.settings import JudgeSettings

T = TypeVar("T")
FORMS: Final[tuple[Form, ...]] = ("json_schema", "json_object", "none")
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 20.0
CHARACTERS_A_TOKEN: Final = 4
"""For endpoints that do not count tokens: a guess, and said to be one."""
ASKING: Final = 1
"""Raised when the same question is put in other words: part of the cache's keys and of epochs."""
PRICED_TOKENS: Final = 1_000_000
"""Prices are those of so many tokens."""
CACHED, GUESSED, REPEATED = "cached", "cost_guessed", "asked_again"
"""Notes of a grade: its verdict was remembered, its cost is a guess, the first reply could not be read."""


class Question(Struct, frozen=True, kw_only=True):
    """What a judge is asked. ``schema`` is the JSON it must answer, ``wants`` the same in words; ``parameters``
    are the sampling's, by their names in the chat API.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    schema: Mapping[str, Any]
    wants: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Verdict(Struct, Generic[T], frozen=True, kw_only=True):
    """What was read, and what it took."""

    value: T
    spent: Spent


class JudgeFault(GraderError):
    """No verdict: its kind as a grade, its flag in a hosted answer, and what was spent all the same."""

    def __init__(self, message: str, *, kind: FailedKind, flag: str, spent: Spent) -> None:
        super().__init__(message)
        self.kind, self.flag, self.spent = kind, flag, spent


def checked(settings: JudgeSettings) -> JudgeSettings:
    """The same. Raises `SettingsError` for a budget that nothing would count against."""
    if settings.budget_per_day and not (settings.price_input or settings.price_output):
        raise SettingsError(
            "[judge] budget_per_day needs prices to count with: set price_input and price_output (of a million tokens)"
        )
    return settings


class Judge:
    """An endpoint with its settings. Safe for many threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: JudgeSettings,
        memory: Memory,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``now`` and ``wall`` in seconds: the one that only goes on, and the one with a date."""
        self._endpoint, self.settings, self._memory = endpoint, settings, memory
        self._now, self._sleep = now, sleep
        self._pace = Pace(settings.concurrency, settings.requests_per_minute, now=now, sleep=sleep)
        self._jitter = random.Random(0)
        self._form: Form = "json_schema" if settings.structured == "auto" else settings.structured
        self.budget = Budget(memory, settings.budget_per_day, now=wall)
        self.meter: metrics.Meter = metrics.Unmetered()

    def ask(self, question: Question, read: Callable[[str], T]) -> Verdict[T]:
        """The verdict that ``read`` makes of a reply; it raises `Unreadable` for one that it can't use.

        Raises `JudgeFault`.
        """
        question = structs.replace(question, model=self.settings.model or question.model)
        try:
            verdict = self._judged(question, read)
        except JudgeFault as fault:
            self.meter.add(metrics.JUDGE_VERDICTS, (question.model, fault.kind))
            raise
        outcome = "cached" if CACHED in verdict.spent.notes else "given"
        self.meter.add(metrics.JUDGE_VERDICTS, (question.model, outcome))
        return verdict

    def _judged(self, question: Question, read: Callable[[str], T]) -> Verdict[T]:
        key = digest("verdict", ASKING, self.settings.base_url, msgspec.json.encode(question, order="deterministic"))
        kept = self._recalled(key, read)
        if kept is not None:
            return kept
        progress = _Progress(ends=self._now() + self.settings.deadline_s)
        for _ in range(self.settings.tries):
            reply = self._replied(question, progress)
            self._count(question.model, reply, progress)
            try:
                value = read(_usable(reply, progress))
            except Unreadable as error:
                progress.told = str(error)
                continue
            self._keep(key, reply)
            return Verdict(value=value, spent=progress.spent)
        told = f"{progress.told} (after {progress.replies} replies)"
        raise progress.fault(told, "unparsable", "model_grader_parse_error")

    def _recalled(self, key: str, read: Callable[[str], T]) -> Verdict[T] | None:
        """What was answered before; a reply that is not read any more is asked for again."""
        try:
            kept = self._memory.recall(key)
            reply = None if kept is None else msgspec.json.decode(kept, type=Reply)
            if reply is not None:
                return Verdict(value=read(reply.text), spent=Spent(model=reply.model, notes=(CACHED,)))
        except (Unavailable, msgspec.MsgspecError, Unreadable):
            pass
        return None

    def _keep(self, key: str, reply: Reply) -> None:
        with contextlib.suppress(Unavailable):  # a cache that is away costs money, not verdicts
            self._memory.keep(key, msgspec.json.encode(reply))

    def _replied(self, question: Question, progress: _Progress) -> Reply:
        """One reply, however often the endpoint must be asked for it. Raises `JudgeFault`."""
        calls = 0
        while True:
            form = self._form
            try:
                return self._called(_asked(question, form, progress.told), progress)
            except Rejected as error:
                if not (error.form and self.settings.structured == "auto"):
                    raise progress.fault(str(error)) from None
                if self._form == form:
                    self._form = FORMS[FORMS.index(form) + 1]
            except Busy as error:
                calls += 1
                wait = error.wait_s or self._backoff(calls)
                if calls > self.settings.retries or self._now() + wait >= progress.ends:
                    told = f"{error} (asked {calls} time{'s' * (calls > 1)})"
                    raise progress.fault(told, "timeout" if error.slow else "infrastructure") from None
                self._sleep(wait)

    def _called(self, ask: Ask, progress: _Progress) -> Reply:
        """One call, at its turn."""
        progress.characters = len(msgspec.json.encode(ask.messages))
        try:
            if self.budget.exhausted:
                raise progress.fault(
                    f"the judge's budget of {self.settings.budget_per_day:g} for {self.budget.day} is spent"
                )
        except Unavailable as error:
            raise progress.fault(f"the judge's spending can't be read, so nothing is spent: {error}") from None
        with self._pace.turn(progress.ends - self._now()) as mine:
            left = progress.ends - self._now()
            if not mine or left <= 0:
                raise progress.fault(f"no turn to ask the judge within {self.settings.deadline_s:g} s", "timeout")
            return self._metered(ask, min(left, self.settings.timeout_s))

    def _metered(self, ask: Ask, timeout_s: float) -> Reply:
        begun, outcome = self._now(), "rejected"
        try:
            reply = self._endpoint.complete(ask, timeout_s)
            outcome = "answered"
        except Busy as error:
            outcome = "slow" if error.slow else "busy"
            raise
        finally:
            self.meter.add(metrics.JUDGE_CALLS, (ask.model, outcome))
            self.meter.observe(metrics.JUDGE_SECONDS, [self._now() - begun])
        return reply

    def _backoff(self, calls: int) -> float:
        """Seconds before another try: doubled each time, with jitter so that many callers do not come at once."""
        return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (calls - 1)) * self._jitter.uniform(0.5, 1.0))

    def _count(self, model: str, reply: Reply, progress: _Progress) -> None:
        """Tokens and cost of a reply, whether it can be read or not."""
        asked, said = reply.input_tokens, reply.output_tokens
        guessed = asked < 0 or said < 0
        if guessed:
            asked, said = progress.characters // CHARACTERS_A_TOKEN, len(reply.text) // CHARACTERS_A_TOKEN
        cost = (asked * self.settings.price_input + said * self.settings.price_output) / PRICED_TOKENS
        progress.add(reply.model, asked + said, cost, (GUESSED,) if guessed and cost else ())
        self.meter.add(metrics.JUDGE_TOKENS, (model, "input"), asked)
        self.meter.add(metrics.JUDGE_TOKENS, (model, "output"), said)
        self.meter.add(metrics.JUDGE_COST, (model,), cost)
        try:
            self.budget.spend(cost)
        except Unavailable as error:
            if self.settings.budget_per_day:
                raise progress.fault(f"the judge's spending can't be written: {error}") from None


class _Progress(Struct, kw_only=True):
    """One question on its way to a verdict: what was spent, and what was wrong with the last reply."""

    ends: float
    spent: Spent = Spent()
    told: str = ""
    replies: int = 0
    characters: int = 0
    """How long the last question was."""

    def add(self, model: str, tokens: int, cost: float, notes: tuple[str, ...]) -> None:
        """Count a reply."""
        self.replies += 1
        again = (REPEATED,) if self.replies > 1 else ()
        self.spent = Spent(
            model=model or self.spent.model,
            tokens=self.spent.tokens + tokens,
            cost=self.spent.cost + cost,
            notes=tuple(dict.fromkeys((*self.spent.notes, *notes, *again))),
        )

    def fault(
        self, told: str, kind: FailedKind = "infrastructure", flag: str = "model_grader_server_error"
    ) -> JudgeFault:
        """No verdict, and why."""
        return JudgeFault(told[:1000], kind=kind, flag=flag, spent=self.spent)


def _asked(question: Question, form: Form, told: str) -> Ask:
    """The question as it is sent: what is wanted stands with the instructions, what was wrong at the end."""
    wants = f"{NOTICE}\n\n{question.wants}"
    first, *rest = question.messages
    if first["role"] == "system":
        messages = [{**first, "content": _joined(first["content"], wants)}, *rest]
    else:
        messages = [{"role": "system", "content": wants}, first, *rest]
    if told:
        again = f"Your last reply could not be used: {told[:300]}. {question.wants}"
        messages.append({"role": "user", "content": again})
    return Ask(
        model=question.model,
        messages=tuple(messages),
        schema=question.schema,
        form=form,
        parameters=question.parameters,
    )


def _joined(content: Any, wants: str) -> Any:
    return f"{content}\n\n{wants}" if isinstance(content, str) else [*content, {"type": "text", "text": wants}]


def _usable(reply: Reply, progress: _Progress) -> str:
    """The text of a reply that is whole. Raises `JudgeFault` for a refusal, `Unreadable` for a cut reply."""
    if reply.refusal or reply.finish == "content_filter":
        told = f"the judge refused: {reply.refusal[:300] or 'its content filter ended the reply'}"
        raise progress.fault(told, "unparsable", "model_grader_refusal_error")
    if reply.finish == "length":
        raise Unreadable("the judge's reply was cut off at its token limit")
    return reply.text
