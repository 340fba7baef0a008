"""The SDK: ``with millstream.record(task=…) as run:``, decorators, wrapped clients, and plain calls, from any thread
or coroutine.

Nothing here breaks or blocks the agent: errors of the SDK are logged and counted, errors of the agent
pass through untouched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream import settings
from millstream.capture import scope
from millstream.capture.client import Client
from millstream.capture.decorators import AgentCall, ToolCall, arguments_of, watched
from millstream.capture.guard import report
from millstream.capture.recorder import Run
from millstream.capture.scope import bound
from millstream.capture.watching import watch
from millstream.events import FeedbackSource, Interface, LogprobKind, Split
from millstream.ports import LogWriter

if TYPE_CHECKING:
    from agents.tracing import TracingProcessor
    from langchain_core.callbacks import BaseCallbackHandler

__all__ = [
    "agent",
    "agents_processor",
    "bound",
    "current_run",
    "feedback",
    "flush",
    "langchain_handler",
    "record",
    "start_run",
    "tool",
    "wrap",
]

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def default_client() -> Client:
    """The client of this process, wired by `millstream.bootstrap` from the settings it finds.

    When that fails (bad settings, an unwritable folder) the agent goes on: the error is logged and
    nothing is recorded.
    """
    try:
        return cast("Client", import_module("millstream.bootstrap").client())
    except Exception as error:  # noqa: BLE001 - see above
        report("default_client", error)
        return Client(cast("LogWriter", None), settings.Capture(queue_events=0))  # refuses and counts


def record(  # noqa: PLR0913 - the fields of the event
    task: Any = None,
    *,
    policy_version: int | None = None,
    lineage: str = "",
    group: str = "",
    attempt: int = 0,
    group_size: int = 1,
    split: Split | None = None,
    interface: Interface | Mapping[str, Any] | None = None,
    tools: Iterable[Mapping[str, Any]] = (),
    subject: str = "",
    agent: str = "",
    propensity: float | None = None,
    trajectory_id: str = "",
) -> Run:
    """Record a run: ``with millstream.record(task="…") as run:``, or call `Run.close` yourself.

    ``task``: a question, a `Task`, or a mapping with its fields. ``group``, ``attempt`` and
    ``group_size`` tell which runs were attempts at one task. ``split``: decided from the task's split
    key when not given. ``subject``: whose data this is. An exception inside the block ends the run as
    ``crash`` and is raised again. Never raises itself.
    """
    return default_client().start_run(
        task,
        policy_version=policy_version,
        lineage=lineage,
        group=group,
        attempt=attempt,
        group_size=group_size,
        split=split,
        interface=interface,
        tools=tools,
        subject=subject,
        agent=agent,
        propensity=propensity,
        trajectory_id=trajectory_id,
    )


start_run = record


def current_run() -> Run | None:
    """The run that is recorded here, None outside of any."""
    return scope.current_run()


def agent(function: F | None = None, /, *, name: str = "", **fields: Any) -> Any:
    """``@millstream.agent``: each call of the function is a run; within a run it is the part of a sub-agent.

    ``fields``: those of `record`; each may be a function of the call's arguments. The task is the first argument,
    if it is a text; the answer is what the function returns. A sub-agent's steps tell its ``name``, ``lineage`` and
    ``policy_version``. Without arguments or with them: ``@millstream.agent(policy_version=3)``.
    """

    def decorate(inner: F) -> F:
        title = name or getattr(inner, "__name__", type(inner).__name__)

        def start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AgentCall:
            told = {key: value(*args, **kwargs) if callable(value) else value for key, value in fields.items()}
            part = {key: told[key] for key in ("lineage", "policy_version") if told.get(key) is not None}
            asked = next((one for one in (*args, *kwargs.values()) if issubclass(type(one), str)), None)
            return AgentCall(title, lambda: record(**{"task": asked, "agent": title, **told}), part)

        return watched(inner, start)

    return decorate if function is None else decorate(function)


def tool(function: F | None = None, /, *, name: str = "") -> Any:
    """``@millstream.tool``: each call of the function within a run is the result of the tool call that asked for it.

    That is the open call of this name, with these arguments if there are several. An exception is its error, and
    passes through. Outside of a run nothing is recorded.
    """

    def decorate(inner: F) -> F:
        title = name or getattr(inner, "__name__", type(inner).__name__)
        return watched(inner, lambda args, kwargs: ToolCall(title, arguments_of(inner, args, kwargs)))

    return decorate if function is None else decorate(function)


def wrap(client: C, *, logprob_kind: LogprobKind | None = None) -> C:
    """Record every call of an OpenAI client, sync or async; the same client.

    Chat completions and Responses, streamed or not, go into the current run; outside of any, each question is a run
    of its own. ``logprob_kind``: what this server's log-probs are; without it they are left out. Never raises.
    """
    try:
        default_client()  # here, where a program begins, its settings are read; a call finds it made
        return watch(client, default_client, logprob_kind)
    except Exception as error:  # noqa: BLE001 - an unrecorded agent is better than none
        report("wrap", error)
        return client


def langchain_handler(*, logprob_kind: LogprobKind | None = None, **fields: Any) -> BaseCallbackHandler:
    """A LangChain callback: ``graph.invoke(…, config={"callbacks": [millstream.langchain_handler()]})``.

    The outermost chain or graph is a run, unless one is recorded where it begins; its run id is the trajectory's.
    ``fields``: those of `record`; each may be a function of the graph's inputs. Raises ImportError without
    langchain-core.
    """
    from millstream.capture.langchain import handler

    return handler(default_client, fields, logprob_kind)


def agents_processor(*, logprob_kind: LogprobKind | None = None, **fields: Any) -> TracingProcessor:
    """A processor for the OpenAI Agents SDK: ``agents.add_trace_processor(millstream.agents_processor())``.

    A trace is a run, unless one is recorded where it begins; its trace id is the trajectory's. ``fields``: those of
    `record`; each may be a function of the trace. Raises ImportError without openai-agents.
    """
    from millstream.capture.openai_agents import processor

    return processor(default_client, fields, logprob_kind)


def feedback(
    trajectory_id: str = "",
    *,
    value: float | None = None,
    source: FeedbackSource = "user",
    name: str = "",
    label: str = "",
    comment: str = "",
    response_id: str = "",
    valid_time_ns: int = 0,
) -> None:
    """Judge a run, from any process and at any time, also before it was recorded or days after. Where only a response
    of its model is known, ``response_id`` alone names the run.

    ``value``: higher is better; with several named judgements each becomes a grade ``feedback.<name>``.
    ``valid_time_ns``: when it was true, if not now (nanoseconds since 1970). Never raises.
    """
    default_client().feedback(
        trajectory_id,
        value=value,
        source=source,
        name=name,
        label=label,
        comment=comment,
        response_id=response_id,
        valid_time_ns=valid_time_ns,
    )


def flush(timeout: float = 5.0) -> bool:
    """Wait (seconds) until the log has everything recorded so far; whether it has."""
    return default_client().flush(timeout)
