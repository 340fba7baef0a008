"""The OpenAI Agents SDK, the real library against a real server: the runs that the processor tells."""

from __future__ import annotations

import asyncio

import agents
import openai
import pytest
from agents.tracing import set_trace_processors
from services.openai_api import answering, call, completion, response

from millstream.capture import openai_agents
from millstream.events import MessageReceived, ModelResponded, ToolReturned, TrajectoryEnded, TrajectoryStarted

ANSWER = "Oslo 3, Rome 21."
CALLS = (call("a", "weather", city="Oslo"), call("b", "weather", city="Rome"))


@agents.function_tool
def weather(city: str) -> str:
    """Degrees in a city."""
    return f"{city}: {3 if city == 'Oslo' else 21}"


@pytest.fixture
def client(make):
    made = make()
    set_trace_processors([openai_agents.processor(lambda: made, {"policy_version": 3})])
    yield made
    set_trace_processors([])


def echoing(whole):
    """A response that tells its instructions, tools and temperature again, as the service does."""

    def act(body):
        told = {name: body.get(name) for name in ("instructions", "tools", "temperature")}
        return answering({**whole, **{name: value for name, value in told.items() if value is not None}})(body)

    return act


@pytest.fixture
def within(chat):
    """Runs a coroutine function with a model over one of the two APIs, and closes what it held."""

    def run(function, api="responses"):
        kind = agents.OpenAIResponsesModel if api == "responses" else agents.OpenAIChatCompletionsModel

        async def whole():
            async with openai.AsyncOpenAI(base_url=chat.url, api_key="k", max_retries=0) as http:
                return await function(kind(model="m", openai_client=http))

        return asyncio.run(whole())

    return run


def whole_of(api, *args, **kwargs):
    return echoing(response(*args, **kwargs)) if api == "responses" else answering(completion(*args, **kwargs))


def of(events, kind):
    return sorted((e for e in events if isinstance(e, kind)), key=lambda e: (e.time_ns, e.seq or 0))


def story(events):
    told = []
    for event in sorted((e for e in events if e.seq is not None), key=lambda e: e.seq):
        if isinstance(event, MessageReceived):
            told.append((event.agent, event.role, event.content))
        elif isinstance(event, ModelResponded):
            told.append((event.agent, "model", event.text, tuple(c.id for c in event.tool_calls)))
        elif isinstance(event, ToolReturned):
            told.append((event.agent, "tool", event.call_id, event.output))
        elif isinstance(event, TrajectoryEnded):
            told.append(("", "end", event.reason))
    return told


WHOLE = [
    ("desk", "system", "Be short."),
    ("desk", "user", "Weather in Oslo and Rome?"),
    ("desk", "model", "", ("a", "b")),
    ("desk", "tool", "a", "Oslo: 3"),
    ("desk", "tool", "b", "Rome: 21"),
    ("desk", "model", ANSWER, ()),
    ("", "end", "done"),
]


@pytest.mark.parametrize("how", ["run", "run_streamed"])
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_workflow_is_a_run_by_every_way_of_running_it(chat, client, within, told, api, how):
    """Both APIs, whole and streamed: messages, steps, results; the trace id is the trajectory's."""
    chat.script(whole_of(api, calls=CALLS, identity="r1"), whole_of(api, ANSWER, identity="r2"))
    asked = "Weather in Oslo and Rome?"
    config = agents.RunConfig(trace_id="trace_" + "1" * 32)

    async def workflow(model):
        settings = agents.ModelSettings(temperature=0.5, include_usage=True)
        agent = agents.Agent(
            name="desk", instructions="Be short.", tools=[weather], model=model, model_settings=settings
        )
        if how == "run":
            return await agents.Runner.run(agent, asked, run_config=config)
        result = agents.Runner.run_streamed(agent, asked, run_config=config)
        assert [event.type async for event in result.stream_events()]
        return result

    result = within(workflow, api)
    assert result.final_output == ANSWER
    assert client.flush()
    events = told()
    found = story(events)
    assert [*found[:3], *sorted(found[3:5]), *found[5:]] == WHOLE
    assert {event.trajectory_id for event in events} == {config.trace_id}
    assert of(events, TrajectoryStarted)[0].policy_version == 3
    assert of(events, TrajectoryEnded)[0].final_answer == ANSWER
    for step in of(events, ModelResponded):
        assert (step.usage.input_tokens, step.usage.output_tokens) == (50, 20)
        assert step.temperature == 0.5
        if api == "responses":
            assert (step.usage.cached_tokens, step.usage.reasoning_tokens) == (30, 8)
            assert step.response_id in ("r1", "r2")
    if api == "responses":
        assert [one["name"] for one in of(events, TrajectoryStarted)[0].tools] == ["weather"]
    assert all(result.duration_ns > 0 for result in of(events, ToolReturned))


def test_a_handoff_begins_a_segment_of_the_other_agent(chat, client, within, told):
    """Each step has its agent; the transfer is the first agent's call; the other's segment begins with what it read."""

    async def workflow(model):
        north = agents.Agent(name="north", instructions="You know the north.", model=model)
        boss = agents.Agent(name="boss", instructions="Hand over.", model=model, handoffs=[north])
        return (await agents.Runner.run(boss, "Oslo?")).final_output

    chat.script(
        whole_of("responses", calls=[call("h", "transfer_to_north")], identity="r1"),
        whole_of("responses", "3 degrees", identity="r2"),
    )
    assert within(workflow) == "3 degrees"
    assert client.flush()
    events = told()
    assert story(events) == [
        ("boss", "system", "Hand over."),
        ("boss", "user", "Oslo?"),
        ("boss", "model", "", ("h",)),
        ("north", "system", "You know the north."),
        ("north", "user", "Oslo?"),
        ("north", "model", "", ("h",)),
        ("boss", "tool", "h", '{"assistant": "north"}'),
        ("north", "model", "3 degrees", ()),
        ("", "end", "done"),
    ]
    assert [e.flags for e in of(events, ModelResponded)] == [(), ("history",), ()]


def test_an_agent_as_a_tool_is_a_part_of_the_run(chat, client, within, told):
    """Its steps are its own; what it answers is the caller's result."""

    async def workflow(model):
        north = agents.Agent(name="north", instructions="North.", model=model).as_tool("ask_north", "Asks.")
        boss = agents.Agent(name="boss", instructions="Ask.", model=model, tools=[north])
        return (await agents.Runner.run(boss, "outer?")).final_output

    chat.script(
        whole_of("responses", calls=[call("t", "ask_north", input="inner?")], identity="r1"),
        whole_of("responses", "inner.", identity="r2"),
        whole_of("responses", "outer.", identity="r3"),
    )
    assert within(workflow) == "outer."
    assert client.flush()
    events = told()
    assert len(of(events, TrajectoryStarted)) == 1
    assert [one for one in story(events) if one[1] in ("model", "tool")] == [
        ("boss", "model", "", ("t",)),
        ("north", "model", "inner.", ()),
        ("boss", "tool", "t", "inner."),
        ("boss", "model", "outer.", ()),
    ]


def test_errors_and_limits_end_the_run_by_their_names(chat, client, within, told):
    """A tool's exception is its error; too many turns are the policy's limit; a refused call is a crash."""

    @agents.function_tool(failure_error_function=None)
    def broken(city: str) -> str:
        """Fails."""
        raise LookupError(city)

    def workflow(*tools, **options):
        return lambda model: agents.Runner.run(agents.Agent(name="a", tools=list(tools), model=model), "q", **options)

    chat.script(whole_of("responses", calls=[call("a", "broken", city="Oslo")]))
    with pytest.raises(agents.UserError):
        within(workflow(broken))
    chat.script(whole_of("responses", calls=CALLS[:1]))
    with pytest.raises(agents.MaxTurnsExceeded):
        within(workflow(weather, max_turns=2))
    chat.script(400)
    with pytest.raises(openai.BadRequestError):
        within(workflow())
    assert client.flush()
    events = told()
    crash, limit, refused = of(events, TrajectoryEnded)
    assert limit.reason == "limit"
    assert (crash.reason, refused.reason) == ("crash", "crash")
    (error,) = [e.error for e in of(events, ToolReturned) if e.trajectory_id == crash.trajectory_id]
    assert "Oslo" in error


def test_in_an_outer_run_a_workflow_is_a_part_of_it(chat, client, within, told):
    """Several workflows in `record` are one run."""
    chat.script(whole_of("responses", "one", identity="r1"), whole_of("responses", "two", identity="r2"))

    async def workflow(model):
        agent = agents.Agent(name="desk", model=model)
        with client.start_run({"id": "mine"}) as run:
            await agents.Runner.run(agent, "first?")
            await agents.Runner.run(agent, "second?")
        return run

    run = within(workflow)
    assert client.flush()
    events = told()
    assert {e.trajectory_id for e in events} == {run.id}
    assert [e.text for e in of(events, ModelResponded)] == ["one", "two"]
    assert len(of(events, TrajectoryEnded)) == 1


def test_workflows_side_by_side_do_not_mix(chat, client, within, told):
    """Ten at once in one loop: each is its run."""

    def act(body):
        return echoing(response(f"re {body['input'][-1]['content']}"))(body)

    chat.script(act)

    async def all_of_them(model):
        agent = agents.Agent(name="desk", model=model)
        await asyncio.gather(*(agents.Runner.run(agent, f"q{n}") for n in range(10)))

    within(all_of_them)
    assert client.flush()
    runs = {}
    for event in told():
        runs.setdefault(event.trajectory_id, []).append(event)
    assert sorted(story(events) for events in runs.values()) == [
        [("desk", "user", f"q{n}"), ("desk", "model", f"re q{n}", ()), ("", "end", "done")] for n in range(10)
    ]


def test_a_trace_without_content_is_a_run_that_tells_little(chat, client, within, told):
    """With sensitive data left out of traces there is a beginning and an end, and no step to train on."""
    chat.script(whole_of("responses", "secret"))
    config = agents.RunConfig(trace_include_sensitive_data=False)
    within(lambda model: agents.Runner.run(agents.Agent(name="desk", model=model), "q", run_config=config))
    assert client.flush()
    events = told()
    assert "secret" not in repr(events)
    assert of(events, TrajectoryEnded)[0].reason == "done"
