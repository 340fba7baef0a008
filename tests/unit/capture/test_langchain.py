"""LangChain and LangGraph, the real libraries with ChatOpenAI against a real server: the runs they become."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from services.openai_api import answering, call, completion

from millstream.capture import langchain
from millstream.capture.langchain_messages import answered_of, chat_message, question_in, text_in
from millstream.events import MessageReceived, ModelResponded, ToolReturned, TrajectoryEnded, TrajectoryStarted

ANSWER = "Oslo 3, Rome 21."
CALLS = (call("a", "weather", city="Oslo"), call("b", "weather", city="Rome"))
WHOLE = [
    ("system", "Be short."),
    ("user", "Weather in Oslo and Rome?"),
    ("model", "", ("a", "b")),
    ("tool", "a", "Oslo: 3"),
    ("tool", "b", "Rome: 21"),
    ("model", ANSWER, ()),
    ("end", "done"),
]


@tool
def weather(city: str) -> str:
    """Degrees in a city."""
    return f"{city}: {3 if city == 'Oslo' else 21}"


@pytest.fixture
def client(make):
    return make()


@pytest.fixture
def handler(client):
    return langchain.handler(lambda: client, {"policy_version": 3})


@pytest.fixture
def model(chat):
    return ChatOpenAI(base_url=chat.url, api_key="k", model="m", temperature=0.5, max_retries=0)


def of(events, kind):
    return sorted((e for e in events if isinstance(e, kind)), key=lambda e: (e.time_ns, e.seq or 0))


def story(events):
    told = []
    for event in sorted((e for e in events if e.seq is not None), key=lambda e: e.seq):
        if isinstance(event, MessageReceived):
            told.append((event.role, event.content))
        elif isinstance(event, ModelResponded):
            told.append(("model", event.text, tuple(c.id for c in event.tool_calls)))
        elif isinstance(event, ToolReturned):
            told.append(("tool", event.call_id, event.output))
        elif isinstance(event, TrajectoryEnded):
            told.append(("end", event.reason))
    return told


def in_call_order(told):
    """Parallel tools end in any order."""
    return [*told[:3], *sorted(told[3:5]), *told[5:]]


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
def test_an_agent_is_a_run_by_every_way_of_running_it(chat, client, handler, model, told, how):
    """invoke and stream, sync and async: messages, steps, results with durations, settings, usage; one run."""
    chat.script(answering(completion(calls=CALLS, identity="r1")), answering(completion(ANSWER, identity="r2")))
    agent = create_agent(model, [weather], system_prompt="Be short.")
    asked = {"messages": [("user", "Weather in Oslo and Rome?")]}
    config = {"callbacks": [handler]}
    if how == "invoke":
        assert agent.invoke(asked, config)["messages"][-1].content == ANSWER
    elif how == "ainvoke":
        assert asyncio.run(agent.ainvoke(asked, config))["messages"][-1].content == ANSWER
    elif how == "stream":
        assert list(agent.stream(asked, config, stream_mode="messages"))
    else:

        async def streamed():
            return [part async for part in agent.astream(asked, config, stream_mode="messages")]

        assert asyncio.run(streamed())
    assert client.flush()
    events = told()
    assert in_call_order(story(events)) == WHOLE
    (started,) = of(events, TrajectoryStarted)
    assert (started.policy_version, started.task.question) == (3, "Weather in Oslo and Rome?")
    assert [one["function"]["name"] for one in started.tools] == ["weather"]
    for step in of(events, ModelResponded):
        usage = step.usage
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (50, 20, 30, 8)
        assert step.temperature == 0.5
        assert step.model == "scripted-2026-01"
        assert step.finish_reason == ("tool_calls" if step.tool_calls else "stop")
        assert step.response_id in ("r1", "r2") or (how.endswith("stream") and step.response_id.startswith("lc_run-"))
        assert step.flags == ()
    assert all(result.duration_ns > 0 for result in of(events, ToolReturned))
    assert len({e.agent for e in events if isinstance(e, MessageReceived | ModelResponded | ToolReturned)}) == 1
    (ended,) = of(events, TrajectoryEnded)
    assert ended.final_answer == ANSWER


def test_the_responses_api_below_is_told_the_same(chat, client, handler, told):
    """ChatOpenAI over the Responses API: content in blocks, reasoning apart."""
    from services.openai_api import response

    chat.script(answering(response(calls=CALLS, reasoning="Two.", identity="r1")), answering(response(ANSWER)))
    model = ChatOpenAI(base_url=chat.url, api_key="k", model="m", use_responses_api=True, output_version="v1")
    agent = create_agent(model, [weather], system_prompt="Be short.")
    agent.invoke({"messages": [("user", "Weather in Oslo and Rome?")]}, {"callbacks": [handler]})
    assert client.flush()
    events = told()
    assert in_call_order(story(events)) == WHOLE
    first, _ = of(events, ModelResponded)
    assert first.reasoning == "Two."
    assert first.usage.reasoning_tokens == 8


def test_a_handler_given_to_one_call_and_an_outer_run(chat, client, handler, model, told):
    """In `record` the graph is a part of that run; the run ends with its own block."""
    chat.script(answering(completion(ANSWER)))
    chain = ChatPromptTemplate.from_messages([("system", "Be short."), ("user", "{question}")]) | model
    with client.start_run({"id": "mine"}) as run:
        chain.invoke({"question": "q"}, {"callbacks": [handler]})
        run.end("mine too")
    assert client.flush()
    events = told()
    assert {e.trajectory_id for e in events} == {run.id}
    assert story(events) == [("system", "Be short."), ("user", "q"), ("model", ANSWER, ()), ("end", "done")]
    assert of(events, TrajectoryEnded)[0].final_answer == "mine too"


def test_a_model_called_alone_is_a_run_by_question(chat, client, handler, model, told):
    """Without a chain around it: the tool loop of one question is one run."""
    chat.script(answering(completion(calls=CALLS[:1])), answering(completion("3")))
    messages = [HumanMessage("Oslo?")]
    first = model.invoke(messages, {"callbacks": [handler]})
    messages += [first, ToolMessage("Oslo: 3", tool_call_id="a")]
    assert model.invoke(messages, {"callbacks": [handler]}).content == "3"
    assert client.flush()
    events = told()
    assert len(of(events, TrajectoryStarted)) == 1
    assert story(events) == [
        ("user", "Oslo?"), ("model", "", ("a",)), ("tool", "a", "Oslo: 3"), ("model", "3", ()), ("end", "done"),
    ]  # fmt: skip


def test_errors_of_tools_and_graphs_are_told_and_raised(chat, client, handler, model, told):
    """A tool's exception is its result's error and the run's crash; a step limit is the policy's."""

    @tool
    def broken(city: str) -> str:
        """Fails."""
        raise LookupError(city)

    chat.script(answering(completion(calls=[call("a", "broken", city="Oslo")])))
    with pytest.raises(LookupError):
        create_agent(model, [broken]).invoke({"messages": [("user", "q")]}, {"callbacks": [handler]})
    endless = create_agent(model, [weather])
    chat.script(answering(completion(calls=CALLS[:1])))
    with pytest.raises(GraphRecursionError):
        endless.invoke({"messages": [("user", "q")]}, {"callbacks": [handler], "recursion_limit": 6})
    chat.script(500)
    with pytest.raises(Exception, match="scripted fault"):
        endless.invoke({"messages": [("user", "q")]}, {"callbacks": [handler]})
    assert client.flush()
    events = told()
    crash, limit, failed = of(events, TrajectoryEnded)
    assert (crash.reason, crash.error) == ("crash", "LookupError: Oslo")
    assert limit.reason == "limit"
    assert failed.reason == "crash"
    errors = [e.error for e in of(events, ToolReturned) if e.trajectory_id == crash.trajectory_id]
    assert errors == ["LookupError: Oslo"]


def test_a_graph_that_waits_for_a_person_is_one_run(chat, client, handler, model, told):
    """`interrupt` and the call that resumes the thread: the run goes on, and is told once."""
    chat.script(answering(completion("plan")), answering(completion("done")))

    class State(TypedDict):
        messages: Annotated[list, operator.add]

    def plan(state):
        return {"messages": [model.invoke(state["messages"])]}

    def ask(_):
        return {"messages": [HumanMessage(interrupt("ok?"))]}

    graph = StateGraph(State)
    for name, node in (("plan", plan), ("ask", ask), ("act", plan)):
        graph.add_node(name, node)
    for edge in ((START, "plan"), ("plan", "ask"), ("ask", "act"), ("act", END)):
        graph.add_edge(*edge)
    compiled = graph.compile(checkpointer=InMemorySaver())
    config = {"callbacks": [handler], "configurable": {"thread_id": "t1"}}
    compiled.invoke({"messages": [HumanMessage("go")]}, config)
    assert client.flush()
    assert not of(told(), TrajectoryEnded)
    compiled.invoke(Command(resume="yes"), config)
    assert client.flush()
    events = told()
    assert len(of(events, TrajectoryStarted)) == 1
    assert story(events) == [
        ("user", "go"), ("model", "plan", ()),
        ("user", "go"), ("model", "plan", ()), ("user", "yes"), ("model", "done", ()), ("end", "done"),
    ]  # fmt: skip
    steps = [(e.agent, e.flags) for e in of(events, ModelResponded)]
    assert steps == [("plan", ()), ("act", ("history",)), ("act", ())]


def test_sub_agents_have_their_names(chat, client, handler, model, told):
    """Agents as tools of an agent, and agents as nodes of a graph: each step has its own agent's name."""
    north = create_agent(model, [], name="north")

    @tool
    def ask_north(question: str) -> str:
        """Ask the other agent."""
        return north.invoke({"messages": [("user", question)]})["messages"][-1].content

    chat.script(
        answering(completion(calls=[call("a", "ask_north", question="inner?")])),
        answering(completion("inner.")),
        answering(completion("outer.")),
    )
    boss = create_agent(model, [ask_north], name="boss")
    boss.invoke({"messages": [("user", "outer?")]}, {"callbacks": [handler]})
    assert client.flush()
    events = told()
    assert len(of(events, TrajectoryStarted)) == 1
    assert [(e.text, e.agent) for e in of(events, ModelResponded)] == [
        ("", "boss"), ("inner.", "north"), ("outer.", "boss"),
    ]  # fmt: skip
    assert [(e.content, e.agent) for e in of(events, MessageReceived)] == [("outer?", "boss"), ("inner?", "north")]
    assert [(e.output, e.agent) for e in of(events, ToolReturned)] == [("inner.", "boss")]


def test_graphs_side_by_side_do_not_mix(chat, client, handler, model, told):
    """One handler, ten graphs at once in one loop: each is its run."""
    chat.script(lambda body: answering(completion(f"re {body['messages'][-1]['content']}"))(body))
    agent = create_agent(model, [])

    async def all_of_them():
        asked = [{"messages": [("user", f"q{n}")]} for n in range(10)]
        await asyncio.gather(*(agent.ainvoke(one, {"callbacks": [handler]}) for one in asked))

    asyncio.run(all_of_them())
    assert client.flush()
    runs = {}
    for event in told():
        runs.setdefault(event.trajectory_id, []).append(event)
    stories = sorted(story(events) for events in runs.values())
    assert stories == [[("user", f"q{n}"), ("model", f"re q{n}", ()), ("end", "done")] for n in range(10)]


def test_a_stream_that_is_left_is_told_as_far_as_it_came(client, handler, told):
    """The reader goes away in the middle: a cut step."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three four")]))
    for chunk in model.stream("q", {"callbacks": [handler]}):
        if "two" in chunk.content:
            break
    assert client.flush()
    (step,) = of(told(), ModelResponded)
    assert step.text.startswith("one")
    assert "three" not in step.text
    assert "stream_cut" in step.flags


def test_batches_and_models_of_texts_are_told(chat, client, handler, model, told):
    """Each of a batch is its run; a model that takes a text and gives one is a step too."""
    chat.script(lambda body: answering(completion(f"re {body['messages'][-1]['content']}"))(body))
    chain = ChatPromptTemplate.from_messages([("user", "{question}")]) | model
    chain.batch([{"question": f"q{n}"} for n in range(5)], {"callbacks": [handler]})
    texts = PromptTemplate.from_template("{question}") | FakeListLLM(responses=["plain"])
    texts.invoke({"question": "a text"}, {"callbacks": [handler]})
    assert client.flush()
    runs = {}
    for event in told():
        runs.setdefault(event.trajectory_id, []).append(event)
    stories = sorted(story(events) for events in runs.values())
    whole = [[("user", f"q{n}"), ("model", f"re q{n}", ()), ("end", "done")] for n in range(5)]
    assert stories == [[("user", "a text"), ("model", "plain", ()), ("end", "done")], *whole]


def test_messages_of_every_kind_are_read():
    """Blocks of text, thoughts and calls; calls that are no JSON; names, errors and roles."""
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
    ]
    ai = AIMessage(
        blocks,
        tool_calls=[{"id": "t1", "name": "f", "args": {"x": 1}}],
        invalid_tool_calls=[{"id": "t2", "name": "g", "args": "{oops", "error": "no JSON"}],
    )
    made = chat_message(ai)
    assert made["reasoning"] == "Hm."
    assert made["content"] == [blocks[1]]
    assert [(c["id"], c["arguments"]) for c in made["tool_calls"]] == [("t1", {"x": 1}), ("t2", "{oops")]
    failed = chat_message(ToolMessage("no", tool_call_id="t1", status="error"))
    assert (failed["role"], failed["tool_call_id"], failed["error"]) == ("tool", "t1", "no")
    assert chat_message(SystemMessage("s"))["role"] == "system"
    assert answered_of(LLMResult(generations=[[]])).finish_reason == "error"
    assert answered_of(LLMResult(generations=[[ChatGeneration(message=AIMessage("x"))]])).messages[0]["content"] == "x"


@pytest.mark.parametrize(
    ("told", "question"),
    [
        ("q", "q"),
        ({"input": "q", "other": "x"}, "q"),
        ({"messages": [("user", "q"), ("ai", "a")]}, "q"),
        ({"messages": [{"role": "user", "content": "q"}]}, "q"),
        ([HumanMessage("a"), HumanMessage("q")], "q"),
        ({"messages": HumanMessage("q")}, "q"),
        ({"a": "x", "b": "y"}, ""),
        ({"messages": []}, ""),
        (None, ""),
        (3, ""),
    ],
)
def test_the_question_of_a_graph_is_found(told, question):
    """Texts, messages in any form, and what holds neither."""
    assert question_in(told) == question


def test_the_answer_of_a_graph_is_found():
    """The last message of the model, or a text."""
    assert text_in({"messages": [HumanMessage("q"), AIMessage("a")]}) == "a"
    assert text_in(AIMessage([{"type": "text", "text": "a"}])) == "a"
    assert text_in({"output": "a", "n": 3}) == "a"
    assert text_in(object()) == ""
