"""LangChain and LangGraph: ``graph.invoke(…, config={"callbacks": [millstream.langchain_handler()]})``.

The outermost chain or graph is a run, its id the trajectory's. Calls of models are steps, tools' runs their results.
The library is imported when the handler is made, not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream import values
from millstream.capture import scope
from millstream.capture.framework_runs import Part, Parts
from millstream.capture.guard import guarded
from millstream.capture.langchain_messages import answered_of, chat_message, question_in, text_in
from millstream.capture.loose import answers
from millstream.dialects.openai_calls import asked
from millstream.events import LogprobKind

if TYPE_CHECKING:
    from langchain_core.callbacks import BaseCallbackHandler

    from millstream.capture.client import Client

_MOST_PAUSED = 10_000


class Recorder:
    """What the handler does, under the names of LangChain's callbacks. Nothing here raises."""

    def __init__(
        self, client: Callable[[], Client], fields: Mapping[str, Any], logprob_kind: LogprobKind | None = None
    ) -> None:
        self._client, self._logprob_kind = client, logprob_kind
        self._parts = Parts(client, fields)
        self._paused: dict[str, Part] = {}
        self._threads: dict[str, str] = {}
        self._waiting: set[str] = set()

    @guarded
    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None, metadata: Any = None, **_: Any
    ) -> None:
        """A chain, a graph or a node of one begins."""
        del serialized
        identity, thread = str(run_id), values.word((metadata or {}).get("thread_id"))
        paused = self._paused.pop(thread, None) if parent_run_id is None and thread else None
        if paused is not None:
            self._parts.put(identity, paused)
        else:
            told = {"trajectory_id": identity, "task": question_in(inputs) or None}
            self._parts.begin(identity, values.word(parent_run_id), inputs, told)
        if parent_run_id is None and thread:
            self._threads[identity] = thread

    @guarded
    def on_chain_end(self, outputs: Any, *, run_id: Any, **_: Any) -> None:
        """It gave its outputs; a graph that waits for a person goes on with its next call in this thread."""
        part, thread = self._parts.take(str(run_id)), self._threads.pop(str(run_id), "")
        if part is None or not part.owned:
            return
        if part.run.id in self._waiting:
            self._waiting.discard(part.run.id)
            if thread and len(self._paused) < _MOST_PAUSED:
                self._paused[thread] = part
                return
        part.run.end(text_in(outputs) or None)

    @guarded
    def on_interrupt(self, event: Any) -> None:
        """A graph waits for a person, or at a breakpoint."""
        part = self._parts.get(str(event.run_id))
        if part is not None:
            self._waiting.add(part.run.id)

    @guarded
    def on_chain_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """It failed, or was left."""
        self._threads.pop(str(run_id), None)
        part = self._parts.take(str(run_id))
        if part is not None and part.owned:
            if type(error).__name__ == "GraphRecursionError":
                part.run.end(reason="limit", error=error)
            part.run.__exit__(type(error), error, None)

    @guarded
    def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: Any,
        parent_run_id: Any = None,
        metadata: Any = None,
        **more: Any,
    ) -> None:
        """A chat model is asked."""
        del serialized
        given = [chat_message(message) for message in messages[0]] if messages else []
        self._asked(given, str(run_id), values.word(parent_run_id), metadata or {}, more.get("invocation_params") or {})

    @guarded
    def on_llm_start(
        self,
        serialized: Any,
        prompts: Any,
        *,
        run_id: Any,
        parent_run_id: Any = None,
        metadata: Any = None,
        **more: Any,
    ) -> None:
        """A model of texts is asked."""
        del serialized
        given = [{"role": "user", "content": prompt} for prompt in prompts[:1]]
        self._asked(given, str(run_id), values.word(parent_run_id), metadata or {}, more.get("invocation_params") or {})

    def _asked(
        self, messages: Iterable[dict[str, Any]], identity: str, parent: str, metadata: Mapping[str, Any], params: Any
    ) -> None:
        told = asked("chat", {**_model_of(metadata), **values.mapping(params), "messages": list(messages)})
        alone = self._parts.get(parent) is None and scope.current() is None
        if alone:
            found = self._client().loose.run_of(answers(told), lambda run: run.conversation.depth(told))
            part = Part(run=found, owned=True)
        else:
            above = self._parts.begin(identity, parent, None, {})
            part = Part(run=above.run, agent=agent_of(metadata) or above.agent)
        with scope.entered(self._parts.acting(part)):
            part.request = part.run.conversation.asked(told)
        self._parts.put(identity, part)

    @guarded
    def on_llm_end(self, response: Any, *, run_id: Any, **_: Any) -> None:
        """It answered."""
        self._answered(self._parts.take(str(run_id)), response, ())

    @guarded
    def on_llm_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
        """It failed, or its stream was left: what came until then is the step."""
        del error
        part = self._parts.take(str(run_id))
        if more.get("response") is not None and any(getattr(more["response"], "generations", None) or ()):
            self._answered(part, more["response"], ("stream_cut",))

    def _answered(self, part: Part | None, response: Any, flags: tuple[str, ...]) -> None:
        if part is None or part.request is None:
            return
        answer = answered_of(response)
        kind = self._logprob_kind
        part.run.conversation.answered(part.request, answer, logprob_kind=kind, flags=flags)
        if part.owned:
            calls = [values.word(call.get("id")) for call in answer.messages[-1].get("tool_calls") or ()]
            self._client().loose.answered(part.run, calls, values.text_of(answer.messages[-1].get("content"))[0])

    @guarded
    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: Any,
        parent_run_id: Any = None,
        inputs: Any = None,
        **more: Any,
    ) -> None:
        """A tool runs."""
        del input_str
        if self._parts.get(values.word(parent_run_id)) is None and scope.current() is None:
            return
        part = self._parts.begin(str(run_id), values.word(parent_run_id), None, {})
        part.name = values.word(more.get("name")) or values.word(values.mapping(serialized).get("name"))
        part.arguments, part.began_ns = inputs, time.perf_counter_ns()
        part.call_id = values.word(more.get("tool_call_id"))

    @guarded
    def on_tool_end(self, output: Any, *, run_id: Any, **_: Any) -> None:
        """It gave its result: a text, a message, or a command to the graph."""
        message = output
        update = getattr(output, "update", None)
        if isinstance(update, dict):
            message = next((one for one in update.get("messages") or () if hasattr(one, "tool_call_id")), "")
        failed = getattr(message, "status", "") == "error"
        content = getattr(message, "content", message)
        self._ran(str(run_id), content, content if failed else "", values.word(getattr(message, "tool_call_id", "")))

    @guarded
    def on_tool_error(self, error: BaseException, *, run_id: Any, **_: Any) -> None:
        """It raised."""
        self._ran(str(run_id), "", error, "")

    def _ran(self, identity: str, output: Any, error: Any, call_id: str) -> None:
        part = self._parts.take(identity)
        if part is not None:
            took = time.perf_counter_ns() - part.began_ns
            with scope.entered(self._parts.acting(part)):
                part.run.conversation.ran(
                    part.name, part.arguments, output, error=error, duration_ns=took, call_id=call_id or part.call_id
                )


def handler(
    client: Callable[[], Client], fields: Mapping[str, Any], logprob_kind: LogprobKind | None = None
) -> BaseCallbackHandler:
    """A callback handler that records. Raises ImportError without langchain-core."""

    class MillstreamHandler(Recorder, _base()):  # type: ignore[misc]
        """Called where things happen, in their order, also by async graphs."""

        run_inline = True

    made: BaseCallbackHandler = MillstreamHandler(client, fields, logprob_kind)
    return made


def _base() -> type[BaseCallbackHandler]:
    """LangGraph's own kind of handler, which is told of interrupts; where it is missing, LangChain's."""
    try:
        from langgraph.callbacks import GraphCallbackHandler
    except ImportError:
        from langchain_core.callbacks import BaseCallbackHandler

        return BaseCallbackHandler
    return GraphCallbackHandler


def agent_of(metadata: Mapping[str, Any]) -> str:
    """Who asks: the agent's name where the framework tells one, else the subgraph or the node that it runs in."""
    named = values.word(metadata.get("lc_agent_name"))
    if named:
        return named
    path = [part.partition(":")[0] for part in values.word(metadata.get("langgraph_checkpoint_ns")).split("|") if part]
    return path[-2] if len(path) > 1 else values.word(metadata.get("langgraph_node"))


def _model_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    told = {"model": metadata.get("ls_model_name"), "temperature": metadata.get("ls_temperature")}
    return {name: value for name, value in told.items() if value is not None}
