"""Wrapped OpenAI clients, the real library against a real server: what the log then holds, and what the agent sees."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading

import httpx2
import openai
import pydantic
import pytest
import yaml
from services.openai_api import (
    answering,
    call,
    chunks,
    completion,
    response,
    response_events,
    streaming,
    zipped,
)

from millstream.capture import scope
from millstream.capture.watching import watch
from millstream.dialects.openai_calls import api_of
from millstream.events import HISTORY, MessageReceived, ModelResponded, ToolReturned, TrajectoryEnded, TrajectoryStarted

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
FLAT_TOOLS = [
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
]
ASK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Weather in Oslo and Rome?"}]
CALLS = (call("a", "weather", city="Oslo"), call("b", "weather", city="Rome"))
RESULTS = {"a": "3 degrees", "b": "21 degrees"}
ANSWER = "Oslo 3, Rome 21."


class Answer(pydantic.BaseModel):
    """What `parse` reads."""

    degrees: int


@pytest.fixture
def sync(chat, make):
    """A wrapped client, and the SDK client that takes what belongs to no run."""
    client = make()
    http = openai.OpenAI(base_url=chat.url, api_key="k", max_retries=2)
    with http:
        yield watch(http, lambda: client), client


@pytest.fixture
def run_async(chat, make):
    """Runs a coroutine function with a wrapped async client and the SDK client."""
    client = make()

    def run(function):
        async def whole():
            async with openai.AsyncOpenAI(base_url=chat.url, api_key="k", max_retries=2) as http:
                return await function(watch(http, lambda: client), client)

        return asyncio.run(whole())

    return run


def story(events):
    """What happened, in order, without ids and numbers."""
    told = []
    for event in sorted((e for e in events if e.seq is not None), key=lambda e: e.seq):
        if isinstance(event, MessageReceived):
            told.append((event.role, event.content))
        elif isinstance(event, ModelResponded):
            told.append(("model", event.text, tuple((c.id, c.name, c.arguments["city"]) for c in event.tool_calls)))
        elif isinstance(event, ToolReturned):
            told.append(("tool", event.call_id, event.output))
        elif isinstance(event, TrajectoryEnded):
            told.append(("end", event.reason))
    return told


WHOLE = [
    ("system", "Be short."),
    ("user", "Weather in Oslo and Rome?"),
    ("model", "", (("a", "weather", "Oslo"), ("b", "weather", "Rome"))),
    ("tool", "a", "3 degrees"),
    ("tool", "b", "21 degrees"),
    ("model", ANSWER, ()),
    ("end", "done"),
]


def chat_agent(ask):
    """The loop of an agent on chat completions; ``ask`` gives the message of a request's answer."""
    messages = list(ASK)
    while True:
        message = yield from ask(messages)
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages += [{"role": "tool", "tool_call_id": c.id, "content": RESULTS[c.id]} for c in message.tool_calls]


def driven(agent):
    """Run a generator that yields nothing, or values to be awaited, to its end."""
    try:
        while True:
            next(agent)
    except StopIteration as stop:
        return stop.value


def created(client, messages):
    yield from ()
    return client.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0].message


def streamed(client, messages):
    yield from ()
    text, calls = "", {}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.chat.completions.create(model="m", messages=messages, tools=TOOLS, **options):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                one = calls.setdefault(part.index, {"id": part.id, "name": part.function.name, "arguments": ""})
                one["arguments"] += part.function.arguments
    told = completion(text or None, list(calls.values()))["choices"][0]["message"]
    return openai.types.chat.ChatCompletionMessage.model_validate(told)


def helped(client, messages):
    yield from ()
    with client.chat.completions.stream(model="m", messages=messages, tools=TOOLS) as stream:
        assert [event.type for event in stream]
        return stream.get_final_completion().choices[0].message


def raw(client, messages):
    yield from ()
    told = client.chat.completions.with_raw_response.create(model="m", messages=messages, tools=TOOLS)
    assert told.headers["content-type"] == "application/json"
    return told.parse().choices[0].message


def raw_streamed(client, messages):
    yield from ()
    told = client.chat.completions.with_streaming_response.create(model="m", messages=messages, tools=TOOLS)
    with told as opened:
        return openai.types.chat.ChatCompletion.model_validate_json("".join(opened.iter_lines())).choices[0].message


def copied(client, messages):
    """Other settings make another client over the same connections."""
    return (yield from created(client.with_options(timeout=20), messages))


@pytest.mark.parametrize("ask", [created, streamed, helped, raw, raw_streamed, copied])
def test_every_way_of_asking_for_a_completion_tells_the_same_run(sync, chat, told, ask):
    """create, stream=True, stream(), raw and streaming responses, with_options: one run, told once, in order."""
    client, sdk = sync
    chat.script(answering(completion(calls=CALLS)), answering(completion(ANSWER)))
    with sdk.start_run("weather", policy_version=3) as run:
        assert driven(chat_agent(lambda messages: ask(client, messages))) == ANSWER
    assert sdk.flush()
    events = told()
    assert story(events) == WHOLE
    assert {event.trajectory_id for event in events} == {run.id}
    started = next(e for e in events if isinstance(e, TrajectoryStarted))
    assert started.tools == tuple(TOOLS)
    assert started.interface.tools
    for event in events:
        if isinstance(event, ModelResponded):
            usage = event.usage
            assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (
                50,
                20,
                30,
                8,
            )
            assert event.finish_reason == ("tool_calls" if event.tool_calls else "stop")
            assert event.model == "scripted-2026-01"
            assert event.response_id == "chatcmpl-1"
            assert event.flags == ()


def test_an_async_client_tells_the_same_run(run_async, chat, told):
    """create, stream=True and stream() of the async client."""

    async def agent(client, sdk):
        async with sdk.start_run("weather"):
            messages = list(ASK)
            first = (await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)).choices[0].message
            messages += [first, {"role": "tool", "tool_call_id": "a", "content": RESULTS["a"]}]
            messages += [{"role": "tool", "tool_call_id": "b", "content": RESULTS["b"]}]
            stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
            assert "".join([c.choices[0].delta.content or "" async for c in stream if c.choices]) == ANSWER
        async with sdk.start_run("again"), client.chat.completions.stream(model="m", messages=ASK) as stream:
            assert [event.type async for event in stream][-2:] == ["content.done", "chunk"]
        assert await asyncio.to_thread(sdk.flush)

    chat.script(answering(completion(calls=CALLS)), answering(completion(ANSWER)))
    run_async(agent)
    events = told()
    first, second = dict.fromkeys(e.trajectory_id for e in sorted(events, key=lambda e: e.time_ns))
    assert story([e for e in events if e.trajectory_id == first]) == WHOLE
    assert story([e for e in events if e.trajectory_id == second]) == [
        *WHOLE[:2],
        ("model", ANSWER, ()),
        ("end", "done"),
    ]


def response_created(client, items):
    return client.responses.create(model="m", instructions="Be short.", input=items, tools=FLAT_TOOLS)


def response_streamed(client, items):
    asked = {"model": "m", "instructions": "Be short.", "input": items, "tools": FLAT_TOOLS, "stream": True}
    return list(client.responses.create(**asked))[-1].response


def response_helped(client, items):
    with client.responses.stream(model="m", instructions="Be short.", input=items, tools=FLAT_TOOLS) as stream:
        return stream.get_final_response()


def response_raw(client, items):
    asked = {"model": "m", "instructions": "Be short.", "input": items, "tools": FLAT_TOOLS}
    return client.responses.with_raw_response.create(**asked).parse()


@pytest.mark.parametrize("kept", ["by the client", "by the client without reasoning", "by the server"])
@pytest.mark.parametrize("ask", [response_created, response_streamed, response_helped, response_raw])
def test_every_way_of_asking_for_a_response_tells_the_same_run(sync, chat, told, ask, kept):
    """The Responses API, the conversation sent again or named by the response before."""
    client, sdk = sync
    first = response(calls=CALLS, reasoning="Two cities.", identity="resp_1")
    chat.script(answering(first), answering(response(ANSWER, identity="resp_2")))
    with sdk.start_run("weather"):
        items = [{"role": "user", "content": ASK[1]["content"]}]
        got = ask(client, items)
        results = [{"type": "function_call_output", "call_id": c, "output": RESULTS[c]} for c in RESULTS]
        if kept == "by the server":
            asked = {"model": "m", "instructions": "Be short.", "previous_response_id": got.id, "input": results}
            assert client.responses.create(**asked).output_text == ANSWER
        else:
            output = [item.model_dump(exclude_none=True) for item in got.output]
            output = [item for item in output if item["type"] != "reasoning" or kept == "by the client"]
            assert ask(client, [*items, *output, *results]).output_text == ANSWER
    assert sdk.flush()
    events = told()
    assert story(events) == WHOLE
    steps = sorted((e for e in events if isinstance(e, ModelResponded)), key=lambda e: e.seq)
    assert [(e.reasoning, e.response_id) for e in steps] == [("Two cities.", "resp_1"), ("", "resp_2")]
    assert [(e.usage.cached_tokens, e.usage.reasoning_tokens) for e in steps] == [(30, 8), (30, 8)]
    assert [e.finish_reason for e in steps] == ["tool_calls", "stop"]
    assert next(e for e in events if isinstance(e, TrajectoryStarted)).tools == tuple(FLAT_TOOLS)


def test_parsed_answers_are_parsed_and_told(sync, chat, told):
    """`parse` of both APIs gives its object; the sampling settings are told with the step."""
    client, sdk = sync
    with sdk.start_run("parse"):
        chat.script(answering(completion('{"degrees": 3}')))
        asked = {"model": "m", "messages": ASK, "temperature": 0.5, "top_p": 0.9, "seed": 7}
        parsed = client.chat.completions.parse(**asked, response_format=Answer)
        assert parsed.choices[0].message.parsed.degrees == 3
        chat.script(answering(response('{"degrees": 21}')))
        told_back = client.responses.parse(model="m", input="q", text_format=Answer, max_output_tokens=9)
        assert told_back.output_parsed.degrees == 21
    assert sdk.flush()
    first, second = sorted((e for e in told() if isinstance(e, ModelResponded)), key=lambda e: e.seq)
    assert (first.temperature, first.top_p, first.sampling["seed"]) == (0.5, 0.9, 7)
    assert first.sampling["response_format"]["type"] == "json_schema"
    assert second.sampling["max_output_tokens"] == 9


def test_tokens_and_log_probs_of_a_server_are_kept(chat, make, told):
    """Token ids of prompt and answer, and log-probs of the kind the caller names; without a kind they are left out."""
    logprobs = {"content": [{"token": "x", "logprob": -0.25, "bytes": None, "top_logprobs": []}] * 2}
    whole = {**completion("ab", logprobs=logprobs, token_ids=[8, 9]), "prompt_token_ids": [1, 2, 3]}
    chat.script(answering(whole))
    sdk = make()
    for kind in ("processed", None):
        with openai.OpenAI(base_url=chat.url, api_key="k") as http, sdk.start_run("t"):
            client = watch(http, lambda: sdk, kind)
            client.chat.completions.create(model="m", messages=ASK, logprobs=True, top_logprobs=0)
    assert sdk.flush()
    kept, without = sorted((e for e in told() if isinstance(e, ModelResponded)), key=lambda e: e.time_ns)
    assert (kept.prompt_token_ids, kept.token_ids, kept.logprobs) == ((1, 2, 3), (8, 9), (-0.25, -0.25))
    assert kept.logprob_kind == "processed"
    assert without.logprobs is None
    assert "logprob_kind_unknown" in without.flags


def test_a_zipped_answer_is_read(sync, chat, told):
    """What a CDN has compressed is told like any other."""
    client, sdk = sync
    chat.script(zipped(completion(ANSWER)))
    with sdk.start_run("weather"):
        assert client.chat.completions.create(model="m", messages=ASK).choices[0].message.content == ANSWER
    assert sdk.flush()
    assert story(told())[2] == ("model", ANSWER, ())


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_a_transport_has_whole_is_told(make, told, streamed):
    """Caches and recordings answer from memory: nothing is left to be read, and it is told all the same."""
    whole = completion(ANSWER)
    events = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks(whole)) + "data: [DONE]\n\n"

    def answered(_):
        if streamed:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        return httpx2.Response(200, json=whole)

    sdk = make()
    http = httpx2.Client(transport=httpx2.MockTransport(answered))
    with openai.OpenAI(base_url="http://nowhere", api_key="k", http_client=http) as client, sdk.start_run("t"):
        watch(client, lambda: sdk)
        got = client.chat.completions.create(model="m", messages=ASK, stream=streamed)
        assert not streamed or list(got)
    assert sdk.flush()
    assert story(told()) == [*WHOLE[:2], ("model", ANSWER, ()), ("end", "done")]


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("how", ["left", "closed", "dropped"])
def test_a_stream_that_is_not_read_to_its_end_is_told_as_far_as_it_was(sync, chat, told, api, how):
    """Leaving the loop, closing the stream, dropping it: what was read is the step, and is marked."""
    client, sdk = sync
    whole = completion(ANSWER) if api == "chat" else response(ANSWER)
    chat.script(answering(whole))
    with sdk.start_run("weather"):
        if api == "chat":
            stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        else:
            stream = client.responses.create(model="m", input=ASK, stream=True)
        read = 0
        for event in stream:
            delta = event.choices[0].delta.content if api == "chat" else getattr(event, "delta", "")
            read += bool(delta)
            if read == 2:
                break
        if how == "closed":
            stream.close()
        if how == "dropped":
            del stream
        gc.collect()
        if how == "left":
            stream.close()
    assert sdk.flush()
    step = next(e for e in told() if isinstance(e, ModelResponded))
    assert ANSWER.startswith(step.text)
    assert len(step.text) >= 6
    assert "stream_cut" in step.flags


def test_a_line_that_breaks_is_an_error_for_the_agent_and_a_cut_step(sync, chat, told):
    """The agent gets the library's exception; the run tells what came, and the crash."""
    client, sdk = sync
    chat.script(streaming(chunks(completion(ANSWER)), stop_after=4))
    with pytest.raises(openai.APIConnectionError), sdk.start_run("weather"):
        list(client.chat.completions.create(model="m", messages=ASK, stream=True))
    assert sdk.flush()
    events = told()
    step = next(e for e in events if isinstance(e, ModelResponded))
    assert (step.text, step.flags) == (ANSWER[:9], ("stream_cut",))
    assert next(e for e in events if isinstance(e, TrajectoryEnded)).reason == "crash"


def test_refused_calls_are_tried_again_by_the_library_and_told_once(sync, chat, told):
    """429 and 500 are the library's to repeat; the messages and the answer are told once."""
    client, sdk = sync
    again = {"status": 429, "headers": {"retry-after-ms": "1"}}
    chat.script(again, {**again, "status": 500}, answering(completion(ANSWER)))
    with sdk.start_run("weather"):
        client.chat.completions.create(model="m", messages=ASK)
    assert len(chat.asked) == 3
    assert sdk.flush()
    assert story(told()) == [*WHOLE[:2], ("model", ANSWER, ()), ("end", "done")]


def test_an_error_of_the_server_passes_through(sync, chat, told):
    """A 400 is the library's exception, and the run's crash."""
    client, sdk = sync
    chat.script({"status": 400, "message": "no such model"})
    with pytest.raises(openai.BadRequestError, match="no such model"), sdk.start_run("weather"):
        client.chat.completions.create(model="m", messages=ASK)
    assert sdk.flush()
    ended = next(e for e in told() if isinstance(e, TrajectoryEnded))
    assert ended.reason == "crash"
    assert "no such model" in ended.error


def test_a_cancelled_call_stays_cancelled(run_async, chat, told):
    """asyncio cancellation in the middle of a stream: it reaches the agent, and what came is told."""
    hold = threading.Event()
    chat.script(streaming(chunks(completion(ANSWER)), hold=hold))

    async def agent(client, sdk):
        reached = asyncio.Event()

        async def one():
            async with sdk.start_run("weather"):
                stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)
                async for chunk in stream:
                    if chunk.choices[0].delta.content:
                        reached.set()

        task = asyncio.create_task(one())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(sdk.flush)

    try:
        run_async(agent)
    finally:
        hold.set()
    events = told()
    step = next(e for e in events if isinstance(e, ModelResponded))
    assert step.text
    assert ANSWER.startswith(step.text)
    assert "stream_cut" in step.flags
    assert next(e for e in events if isinstance(e, TrajectoryEnded)).reason == "cancelled"


def test_calls_outside_of_a_run_are_runs_by_question(sync, chat, told):
    """Two questions of one chat are two runs, each with its tool calls; the second has the first as its history."""
    client, sdk = sync
    script = [completion(calls=CALLS), completion(ANSWER), completion("You are welcome.")]
    chat.script(*map(answering, script))
    messages = list(ASK)
    for _ in range(2):
        message = client.chat.completions.create(model="m", messages=messages).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        calls = message.tool_calls or ()
        messages += [{"role": "tool", "tool_call_id": one.id, "content": RESULTS[one.id]} for one in calls]
    messages.append({"role": "user", "content": "Thank you."})
    client.chat.completions.create(model="m", messages=messages)
    assert sdk.flush()
    events = told()
    first, second = dict.fromkeys(e.trajectory_id for e in sorted(events, key=lambda e: e.time_ns))
    assert story([e for e in events if e.trajectory_id == first]) == WHOLE
    later = [e for e in events if e.trajectory_id == second]
    assert story(later) == [*WHOLE[:6], ("user", "Thank you."), ("model", "You are welcome.", ()), ("end", "done")]
    steps = sorted((e for e in later if isinstance(e, ModelResponded)), key=lambda e: e.seq)
    assert [e.flags for e in steps] == [("history",), ("history",), ()]


def test_conversations_side_by_side_outside_of_runs_do_not_mix(sync, chat, told):
    """Threads with one client, the same question and call ids that repeat: each has its run."""
    client, sdk = sync

    def act(body):
        last = body["messages"][-1]
        if last["role"] == "tool":
            return answering(completion(f"done {last['content']}"))(body)
        return answering(completion(calls=[call("call_0", "weather", city=body["messages"][0]["content"])]))(body)

    chat.script(act)
    barrier = threading.Barrier(8)

    def agent(number):
        messages = [{"role": "user", "content": f"city {number}"}]
        barrier.wait()
        message = client.chat.completions.create(model="m", messages=messages).choices[0].message
        barrier.wait()
        messages += [message, {"role": "tool", "tool_call_id": "call_0", "content": f"{number} degrees"}]
        client.chat.completions.create(model="m", messages=messages)

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sdk.flush()
    events = told()
    runs = {}
    for event in events:
        runs.setdefault(event.trajectory_id, []).append(event)
    assert len(runs) == 8
    for told_run in runs.values():
        number = next(e.content for e in told_run if isinstance(e, MessageReceived)).removeprefix("city ")
        assert story(told_run) == [
            ("user", f"city {number}"),
            ("model", "", (("call_0", "weather", f"city {number}"),)),
            ("tool", "call_0", f"{number} degrees"),
            ("model", f"done {number} degrees", ()),
            ("end", "done"),
        ]


def test_messages_told_by_hand_are_not_told_again(sync, chat, told):
    """`run.message` and `run.tool` beside a wrapped client: what the agent has told counts."""
    client, sdk = sync
    chat.script(answering(completion(calls=CALLS[:1])), answering(completion(ANSWER)))
    with sdk.start_run("weather") as run:
        run.message("system", "Be short.")
        run.message("user", ASK[1]["content"])
        first = client.chat.completions.create(model="m", messages=ASK).choices[0].message
        run.tool(call_id="a", name="weather", output="3 degrees", duration_ns=5)
        messages = [*ASK, first, {"role": "tool", "tool_call_id": "a", "content": "3 degrees"}]
        client.chat.completions.create(model="m", messages=messages)
    assert sdk.flush()
    assert story(told()) == [*WHOLE[:2], ("model", "", (("a", "weather", "Oslo"),)), WHOLE[3], *WHOLE[5:]]


def test_a_history_that_was_rewritten_is_not_told_again(sync, chat, told):
    """An agent that drops its oldest turns: the old messages stay as they were, the new question is told."""
    client, sdk = sync
    chat.script(*(answering(completion(f"answer {n}")) for n in range(4)))
    with sdk.start_run("chat"):
        messages = [ASK[0]]
        for number in range(4):
            messages.append({"role": "user", "content": "go on"})
            kept = [messages[0], *messages[1:][-3:]]
            message = client.chat.completions.create(model="m", messages=kept).choices[0].message
            messages.append({"role": "assistant", "content": message.content})
            assert message.content == f"answer {number}"
    assert sdk.flush()
    turns = [one for n in range(4) for one in (("user", "go on"), ("model", f"answer {n}", ()))]
    assert story(told()) == [("system", "Be short."), *turns, ("end", "done")]


def test_sub_agents_have_their_own_segment_and_policy(run_async, chat, told):
    """Two sub-agents at once: each step has its agent's name and policy; the tools of the start are the run's own."""
    chat.script(lambda body: answering(completion(f"re {body['messages'][-1]['content']}"))(body))

    async def agent(client, sdk):
        async with sdk.start_run("weather", agent="boss", policy_version=1) as run:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}], tools=TOOLS)

            async def part(name, version):
                with run.as_agent(name, lineage=f"{name}-policy", policy_version=version):
                    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": name}])

            await asyncio.gather(part("north", 7), part("south", 8))
        assert await asyncio.to_thread(sdk.flush)

    run_async(agent)
    events = told()
    steps = {e.text: (e.agent, e.lineage, e.policy_version) for e in events if isinstance(e, ModelResponded)}
    assert steps == {
        "re q": ("boss", "", None),
        "re north": ("north", "north-policy", 7),
        "re south": ("south", "south-policy", 8),
    }
    heard = {e.content: e.agent for e in events if isinstance(e, MessageReceived)}
    assert heard == {"q": "boss", "north": "north", "south": "south"}


def test_a_segment_is_what_its_agent_read(sync, chat, told):
    """A handoff with the conversation so far: the other agent's segment has it as history, each segment once."""
    client, sdk = sync
    chat.script(answering(completion(calls=CALLS[:1])), answering(completion("3.")), answering(completion("Bye.")))
    with sdk.start_run("weather", agent="boss") as run:
        first = client.chat.completions.create(model="m", messages=ASK).choices[0].message
        given = [ASK[1], first, {"role": "tool", "tool_call_id": "a", "content": "3 degrees"}]
        with run.as_agent("north"):
            system = {"role": "system", "content": "You know the north."}
            answer = client.chat.completions.create(model="m", messages=[system, *given]).choices[0].message
            asked = [system, *given, answer, {"role": "user", "content": "Thanks."}]
            client.chat.completions.create(model="m", messages=asked)
    assert sdk.flush()
    events = sorted((e for e in told() if e.seq is not None), key=lambda e: e.seq)
    mine = [e for e in events if e.agent == "north"]
    assert story(mine) == [
        ("system", "You know the north."),
        ("user", ASK[1]["content"]),
        ("model", "", (("a", "weather", "Oslo"),)),
        ("model", "3.", ()),
        ("user", "Thanks."),
        ("model", "Bye.", ()),
    ]
    assert [e.flags for e in mine if isinstance(e, ModelResponded)] == [("history",), (), ()]
    assert story([e for e in events if e.agent == "boss"]) == [
        *WHOLE[:2],
        ("model", "", (("a", "weather", "Oslo"),)),
        ("tool", "a", "3 degrees"),
        ("end", "done"),
    ]


def test_a_stream_read_in_another_thread_belongs_to_the_run_that_asked(sync, chat, told):
    """The scope is that of the request, wherever the answer is read."""
    client, sdk = sync
    chat.script(answering(completion(ANSWER)))
    with sdk.start_run("weather") as run:
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        thread = threading.Thread(target=lambda: list(stream))
        thread.start()
        thread.join()
        assert scope.current_run() is run
    assert sdk.flush()
    assert story(told()) == [*WHOLE[:2], ("model", ANSWER, ()), ("end", "done")]


def test_the_module_and_a_client_wrapped_twice_are_told_once(chat, make, told, monkeypatch):
    """`wrap(openai)` watches the client that the module makes for itself; wrapping again changes nothing."""
    sdk = make()
    monkeypatch.setattr(openai, "api_key", "k")
    monkeypatch.setattr(openai, "base_url", f"{chat.url}/")
    chat.script(answering(completion(ANSWER)))
    try:
        for _ in range(2):
            assert watch(openai, lambda: sdk) is openai
        with sdk.start_run("weather"):
            openai.chat.completions.create(model="m", messages=ASK)
    finally:
        openai.chat.completions._client.close()
        openai._reset_client()
    assert sdk.flush()
    assert len([e for e in told() if isinstance(e, ModelResponded)]) == 1


def test_what_cannot_be_read_stays_the_agents_affair(sync, chat, told, caplog):
    """Bodies that are no answer: the library says what it says, nothing is raised by the watcher."""
    client, sdk = sync
    bodies = ["[]", "3", '{"choices": 3}', '{"choices": [{"message": []}]}', '{"choices": [null]}', "{}"]
    with sdk.start_run("odd"):
        for body in bodies:
            chat.script({"body": body})
            told_back = client.chat.completions.with_raw_response.create(model="m", messages=ASK)
            assert told_back.http_response.text == body
        chat.script({"body": "not json", "headers": {"Content-Type": "text/html"}})
        assert client.chat.completions.with_raw_response.create(model="m", messages=ASK).text == "not json"
    assert sdk.flush()
    events = told()
    assert next(e for e in events if isinstance(e, TrajectoryEnded)).reason == "done"
    assert [e.text for e in events if isinstance(e, ModelResponded)] == [""] * 7
    assert caplog.text == ""


def test_a_client_of_azure_and_one_behind_a_prefix_are_recorded(chat, make, told):
    """The path may begin with anything; Azure's names the deployment and has a query."""
    sdk = make()
    chat.script(answering(completion(ANSWER)))
    azure = {"azure_endpoint": chat.url, "api_key": "k", "api_version": "2026-01-01"}
    with openai.AzureOpenAI(**azure) as client, sdk.start_run("azure"):
        watch(client, lambda: sdk).chat.completions.create(model="m", messages=ASK)
    with openai.OpenAI(base_url=f"{chat.url}/router/eu", api_key="k") as client, sdk.start_run("prefix"):
        watch(client, lambda: sdk).chat.completions.create(model="m", messages=ASK)
    assert sdk.flush()
    assert [e.text for e in told() if isinstance(e, ModelResponded)] == [ANSWER, ANSWER]


@pytest.mark.parametrize("away", [False, True])
def test_the_callers_key_is_told_nowhere(chat, make, log, tmp_path, away):
    """Neither the log nor the spool has a header of the request."""
    sdk = make()
    log.away = away
    chat.script(answering(completion(ANSWER)))
    headers = {"X-Secret": "another-plain-secret"}
    http = openai.OpenAI(base_url=chat.url, api_key="the-plain-key", default_headers=headers)
    with http as client, sdk.start_run("t"):
        watch(client, lambda: sdk).chat.completions.create(model="m", messages=ASK)
    assert chat.headers[0]["authorization"] == "Bearer the-plain-key"
    assert sdk.close()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert ANSWER.encode() in written
    assert b"plain-key" not in written
    assert b"plain-secret" not in written


def test_what_is_no_call_of_a_model_passes_unseen(sync, chat, told):
    """Other paths of the API are not the policy's acts."""
    client, sdk = sync
    chat.script({"body": json.dumps({"object": "list", "data": [], "model": "m", "usage": {}})})
    with sdk.start_run("t"):
        client.embeddings.create(model="m", input="x", encoding_format="float")
    assert sdk.flush()
    assert story(told()) == [("end", "done")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_with_the_wrapped_client(chat, make, told):
    """A worker forked in the middle of a run calls the model: each process is its own producer, nothing is lost."""
    sdk = make()
    chat.script(lambda body: answering(completion(f"re {body['messages'][-1]['content']}"))(body))

    def ask(question):
        with openai.OpenAI(base_url=chat.url, api_key="k") as client:
            watch(client, lambda: sdk)
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])

    with sdk.start_run({"id": "t"}):
        ask("before")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ask("in the child")
                code = 0 if sdk.flush() else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ask("in the parent")
    assert sdk.flush()
    events = told()
    texts = {e.text for e in events if isinstance(e, ModelResponded)}
    assert texts == {"re before", "re in the child", "re in the parent"}
    assert len({(e.producer, e.seq) for e in events}) == len(events)


def recorded(data):
    """(file, request body, response text, whether it is a stream) of the calls of both APIs in the cassettes."""
    found = []
    for path in sorted((data / "openai_cassettes").glob("*.yaml")):
        for one in yaml.safe_load(path.read_text(encoding="utf-8"))["interactions"]:
            if api_of(one["request"]["uri"]):
                body = json.loads(one["request"]["body"])
                found.append((api_of(one["request"]["uri"]), body, one["response"]["body"]["string"]))
    return found


def test_recorded_calls_of_the_service_are_told_by_a_wrapped_client(data, make, told):
    """Every recorded call, answered with the recorded bytes to the real client: each is a run whose step says what the
    library read.
    """
    sdk = make()
    bodies = []

    def answer(request):
        del request
        streamed, text = bodies[-1]
        kind = "text/event-stream" if streamed else "application/json"
        return httpx2.Response(200, headers={"content-type": kind}, content=iter([text.encode()]))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    expected = []
    with openai.OpenAI(base_url="http://recorded", api_key="k", http_client=http) as client:
        watch(client, lambda: sdk)
        for api, body, text in recorded(data):
            bodies.append((body.get("stream"), text))
            with sdk.start_run():
                if api == "chat":
                    got = client.chat.completions.create(**body)
                    expected.append("".join(c.choices[0].delta.content or "" for c in got if c.choices)
                                    if body.get("stream") else got.choices[0].message.content or "")  # fmt: skip
                else:
                    got = client.responses.create(**body)
                    expected.append((list(got)[-1].response if body.get("stream") else got).output_text)
    assert sdk.flush()
    steps = sorted((e for e in told() if isinstance(e, ModelResponded)), key=lambda e: e.time_ns)
    assert [step.text for step in steps if HISTORY not in step.flags] == expected
    assert len(expected) == 16
    assert all(step.usage.output_tokens for step in steps if HISTORY not in step.flags)


def test_streams_of_events_equal_the_whole_answer():
    """The scripted server's own streams say what its whole answers say, by the library's reading."""
    events = response_events(response(ANSWER, CALLS, "Hm."))
    assert events[-1]["response"]["output"] == response(ANSWER, CALLS, "Hm.")["output"]
    assert len(chunks(completion(ANSWER, CALLS))) > 10
