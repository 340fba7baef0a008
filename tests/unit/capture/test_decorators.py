"""``@agent`` and ``@tool``: every kind of function, what it gives and raises untouched, and the run that it becomes."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from services.openai_api import answering, call, completion

from millstream.capture import sdk
from millstream.capture.watching import watch
from millstream.events import MessageReceived, ModelResponded, ToolReturned, TrajectoryEnded, TrajectoryStarted


@pytest.fixture
def client(make, monkeypatch):
    """The client of this process is one of the test's."""
    made = make()
    monkeypatch.setattr(sdk, "default_client", lambda: made)
    return made


def of(events, kind):
    return sorted((e for e in events if isinstance(e, kind)), key=lambda e: (e.time_ns, e.seq or 0))


KINDS = ["plain", "coroutine", "generator", "async generator"]


def kinds_of(kind, inside):
    """A function of a kind that calls ``inside(question)`` and gives its text, in pieces where it is a generator."""

    def plain(question):
        """Answers."""
        return inside(question)

    async def coroutine(question):
        """Answers."""
        await asyncio.sleep(0)
        return inside(question)

    def generator(question):
        """Answers."""
        yield "so "
        yield inside(question)

    async def async_generator(question):
        """Answers."""
        yield "so "
        await asyncio.sleep(0)
        yield inside(question)

    return {"plain": plain, "coroutine": coroutine, "generator": generator, "async generator": async_generator}[kind]


def called(function, *args):
    """What the function gives, its pieces joined."""
    if inspect.iscoroutinefunction(function):
        return asyncio.run(function(*args))
    if inspect.isasyncgenfunction(function):

        async def collected():
            return "".join([piece async for piece in function(*args)])

        return asyncio.run(collected())
    given = function(*args)
    return given if isinstance(given, str) else "".join(given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_an_agent_is_a_run(client, told, kind):
    """The first text is the task, the answer the final answer; the function stays what it was."""

    def inside(question):
        sdk.current_run().model(text=f"{question} is 4")
        return "4"

    bare = kinds_of(kind, inside)
    function = sdk.agent(policy_version=3)(bare)
    assert (function.__name__, function.__doc__) == (bare.__name__, bare.__doc__)
    assert inspect.signature(function) == inspect.signature(bare)
    checks = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    assert [check(function) for check in checks] == [check(bare) for check in checks]
    given = called(function, "2+2")
    assert given == ("so 4" if "generator" in kind else "4")
    assert sdk.current_run() is None
    assert client.flush()
    events = told()
    (started,) = of(events, TrajectoryStarted)
    assert (started.task.question, started.policy_version, started.agent) == ("2+2", 3, bare.__name__)
    assert [e.text for e in of(events, ModelResponded)] == ["2+2 is 4"]
    (ended,) = of(events, TrajectoryEnded)
    assert (ended.reason, ended.final_answer) == ("done", given)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_an_agent_passes_through(client, told, kind):
    """The very exception, and the run's crash."""
    error = ValueError("no")

    def inside(_):
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        called(sdk.agent(kinds_of(kind, inside)), "q")
    assert caught.value is error
    assert client.flush()
    (ended,) = of(told(), TrajectoryEnded)
    assert (ended.reason, ended.error) == ("crash", "ValueError: no")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_tool_answers_the_call_that_the_model_asked_for(client, told, kind, fails):
    """Of two open calls of one name that with the arguments; output, error and duration are told."""

    def inside(city):
        if fails:
            raise LookupError(city)
        return f"{city}: 3"

    function = sdk.tool(name="weather")(kinds_of(kind, inside))
    with client.start_run({"id": "t"}) as run:
        calls = [{"id": c, "name": "weather", "arguments": {"question": c.upper()}} for c in "ab"]
        run.model(tool_calls=calls)
        for city in "BA":
            if fails:
                with pytest.raises(LookupError):
                    called(function, city)
            else:
                assert called(function, city).endswith(f"{city}: 3")
    assert client.flush()
    results = of(told(), ToolReturned)
    assert [r.call_id for r in results] == ["b", "a"]
    assert all(r.duration_ns > 0 for r in results)
    assert [r.error for r in results] == (["LookupError: B", "LookupError: A"] if fails else ["", ""])


def test_what_the_model_is_told_of_a_result_counts(client, chat, told):
    """A wrapped client and a decorated tool: one result a call, in the agent's words, with the tool's own duration."""
    chat.script(answering(completion(calls=[call("a", "weather", city="Oslo")])), answering(completion("3")))

    @sdk.tool
    def weather(city):
        return {"city": city, "degrees": 3}

    @sdk.agent
    def agent(question):
        messages = [{"role": "user", "content": question}]
        message = http.chat.completions.create(model="m", messages=messages).choices[0].message
        found = weather(city="Oslo")
        told_back = {"role": "tool", "tool_call_id": "a", "content": f"{found['degrees']} degrees"}
        return (
            http.chat.completions.create(model="m", messages=[*messages, message, told_back]).choices[0].message.content
        )

    with watch(openai.OpenAI(base_url=chat.url, api_key="k"), lambda: client) as http:
        assert agent("Oslo?") == "3"
    assert client.flush()
    (result,) = of(told(), ToolReturned)
    assert (result.call_id, result.name, result.output) == ("a", "weather", "3 degrees")
    assert result.duration_ns > 0


@pytest.mark.parametrize("how", ["the run ends", "flush", "the run goes on with another question"])
def test_a_result_that_no_request_tells_is_not_lost(client, chat, told, how):
    """The tool's own words are told when nothing else can come, once."""
    chat.script(answering(completion(calls=[call("a", "weather", city="Oslo")])), answering(completion("never mind")))

    @sdk.tool
    def weather(city):
        return {"city": city}

    with watch(openai.OpenAI(base_url=chat.url, api_key="k"), lambda: client) as http, client.start_run("t"):
        messages = [{"role": "user", "content": "q"}]
        http.chat.completions.create(model="m", messages=messages)
        weather(city="Oslo")
        if how == "flush":
            assert client.flush()
            assert [r.output for r in of(told(), ToolReturned)] == ['{"city":"Oslo"}']
        if how == "the run goes on with another question":
            http.chat.completions.create(model="m", messages=[{"role": "user", "content": "another"}])
    assert client.flush()
    (result,) = of(told(), ToolReturned)
    assert (result.call_id, result.output) == ("a", '{"city":"Oslo"}')


def test_an_agent_within_a_run_is_a_part_of_it(client, told):
    """Sub-agents and handoffs: own name, own policy, one run; after it the caller acts again."""

    @sdk.agent(name="north", lineage="north-policy", policy_version=7)
    def sub(question):
        sdk.current_run().message("user", question)
        sdk.current_run().model(text="inner")
        return "4"

    @sdk.agent(name="boss", policy_version=1)
    def boss(question):
        sdk.current_run().model(text="let me ask")
        found = sub(question)
        sdk.current_run().model(text="it is 4")
        return found

    assert boss("2+2") == "4"
    assert client.flush()
    events = told()
    assert len(of(events, TrajectoryStarted)) == len(of(events, TrajectoryEnded)) == 1
    steps = [(e.text, e.agent, e.lineage, e.policy_version) for e in of(events, ModelResponded)]
    assert steps == [
        ("let me ask", "boss", "", None),
        ("inner", "north", "north-policy", 7),
        ("it is 4", "boss", "", None),
    ]
    assert [e.agent for e in of(events, MessageReceived)] == ["north"]


def test_fields_may_depend_on_the_call(client, told):
    """Task, subject, propensity and the rest as values or as functions of the arguments."""

    @sdk.agent(
        task=lambda user, question: {"id": f"{user}-task", "question": question},
        subject=lambda user, _: user,
        policy_version=5,
        lineage="support",
        propensity=lambda *_: 0.25,
    )
    def agent(user, question):
        return f"{user} {question}"

    agent("ann", "q")
    assert client.flush()
    (started,) = of(told(), TrajectoryStarted)
    assert (started.task.id, started.task.question, started.subject) == ("ann-task", "q", "ann")
    assert (started.lineage, started.policy_version, started.propensity) == ("support", 5, 0.25)


def test_runs_follow_tasks_and_threads(client, told):
    """asyncio tasks and `to_thread` by themselves, an executor's threads by `bound`; runs side by side do not mix."""

    @sdk.tool
    def note(text):
        return text

    @sdk.agent
    async def agent(question):
        with ThreadPoolExecutor(2) as pool:
            await asyncio.gather(
                asyncio.to_thread(note, f"{question} thread"),
                asyncio.get_running_loop().run_in_executor(pool, sdk.bound(note), f"{question} pool"),
                asyncio.create_task(asyncio.to_thread(note, f"{question} task")),
            )
        return question

    async def both():
        return await asyncio.gather(agent("one"), agent("two"))

    assert asyncio.run(both()) == ["one", "two"]
    assert client.flush()
    events = told()
    runs = {e.trajectory_id: e.task.question for e in of(events, TrajectoryStarted)}
    heard = {}
    for event in of(events, ToolReturned):
        heard.setdefault(runs[event.trajectory_id], set()).add(event.output)
    assert heard == {q: {f"{q} thread", f"{q} pool", f"{q} task"} for q in ("one", "two")}


def test_between_the_items_of_a_generator_the_reader_is_outside(client, told):
    """The scope is that of the function's own code: what the reader does meanwhile is not the agent's."""

    @sdk.agent(name="talker")
    def talker(_):
        for piece in "ab":
            sdk.current_run().model(text=piece)
            yield piece

    with client.start_run({"id": "other"}, agent="reader") as other:
        seen = []
        for piece in talker("q"):
            assert sdk.current_run() is other
            other.tool(name="reader", output=piece)
            seen.append(piece)
    assert seen == ["a", "b"]
    assert client.flush()
    events = told()
    assert {e.agent for e in of(events, ToolReturned)} == {"reader"}
    assert {e.agent for e in of(events, ModelResponded)} == {"talker"}


@pytest.mark.parametrize("kind", ["generator", "async generator"])
def test_a_generator_that_is_left_ends_its_run(client, told, kind):
    """A reader who goes away cancels: what was given is told, the function's own cleaning up is done."""
    cleaned = []

    def body(_):
        try:
            for number in range(100):
                yield f"{number} "
        finally:
            cleaned.append(sdk.current_run() is not None)

    async def abody(question):
        try:
            for piece in body(question):
                yield piece
        finally:
            cleaned.append(sdk.current_run() is not None)

    if kind == "generator":
        stream = sdk.agent(body)("q")
        assert [next(stream), next(stream)] == ["0 ", "1 "]
        stream.close()
    else:

        async def read():
            stream = sdk.agent(abody)("q")
            assert await anext(stream) == "0 "
            await stream.aclose()

        asyncio.run(read())
    assert cleaned[0]
    assert client.flush()
    (ended,) = of(told(), TrajectoryEnded)
    assert ended.reason == "cancelled"


def test_values_and_errors_sent_into_a_generator_arrive(client):
    """send, throw and the returned value are the function's, decorated or not."""

    def body():
        caught = yield "first"
        try:
            yield caught
        except KeyError as error:
            yield f"caught {error}"
        return "last"

    async def abody():
        caught = yield "first"
        try:
            yield caught
        except KeyError as error:
            yield f"caught {error}"

    for decorate in (sdk.agent, sdk.tool):
        stream = decorate(body)()
        assert [next(stream), stream.send("sent"), stream.throw(KeyError("k"))] == ["first", "sent", "caught 'k'"]
        with pytest.raises(StopIteration) as stop:
            next(stream)
        assert stop.value.value == "last"

        async def driven(decorate=decorate):
            stream = decorate(abody)()
            found = [await anext(stream), await stream.asend("sent"), await stream.athrow(KeyError("k"))]
            assert found == ["first", "sent", "caught 'k'"]
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

        asyncio.run(driven())


def test_methods_and_partials_are_functions_too(client, told):
    """`self` is no argument of the task or the tool."""

    class Desk:
        @sdk.agent
        def answer(self, question):
            return self.look(question)

        @sdk.tool
        def look(self, place):
            return place

    assert Desk().answer("here") == "here"
    assert sdk.tool(name="part")(functools.partial(Desk.look, Desk()))("x") == "x"
    assert client.flush()
    events = told()
    assert of(events, TrajectoryStarted)[0].task.question == "here"
    assert [e.output for e in of(events, ToolReturned)] == ["here"]


class Hostile:
    """What an agent may hand over: nothing about it can be asked."""

    def __getattribute__(self, name):
        raise RuntimeError("do not look at me")

    def __str__(self):
        raise RuntimeError("do not print me")

    __repr__ = __str__


def test_nothing_of_ours_is_raised_into_the_agent(client, caplog):
    """Arguments, results and fields that break whatever touches them: the agent gets its result."""
    hostile = Hostile()

    @sdk.tool
    def tool(value):
        return value

    def broken(*_):
        raise RuntimeError("a field's function")

    @sdk.agent(subject=broken)
    def unrecorded(value):
        return value

    @sdk.agent(task=lambda value: value)
    def agent(value):
        sdk.current_run().model(text=value, tool_calls=value, usage=value)
        sdk.current_run().message("user", value)
        with sdk.current_run().as_agent(value, policy_version=value):
            return tool(value)

    assert agent(hostile) is hostile
    assert unrecorded(hostile) is hostile
    assert sdk.wrap(hostile) is hostile
    assert sdk.wrap(object()) is not None
    assert "failed and recorded nothing" in caplog.text


def test_a_failing_recorder_changes_nothing(monkeypatch):
    """No client, no log, no disk: decorated functions work."""

    def nowhere():
        raise OSError("no disk")

    monkeypatch.setattr(sdk, "default_client", nowhere)

    @sdk.agent
    def agent(question):
        return question * 2

    assert agent("ab") == "abab"


def test_a_thread_that_is_not_bound_is_outside(client):
    """Threads begin outside of every run; that is Python's rule, and `bound` is the way in."""
    found = []
    with client.start_run({"id": "t"}) as run:
        for target in (sdk.current_run, sdk.bound(sdk.current_run)):
            thread = threading.Thread(target=lambda target=target: found.append(target()))
            thread.start()
            thread.join()
    assert found == [None, run]
