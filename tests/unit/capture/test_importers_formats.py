"""Rows that other tools wrote, read into runs. Case numbers are those of the case list."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.importers.base import Options, import_paths
from millstream.capture.importers.chat import events as run_events
from millstream.capture.importers.formats import FORMATS, RUNS, format_of
from millstream.capture.importers.langfuse import nanoseconds
from millstream.capture.importers.reading import RowProblem
from millstream.codec import decode_lines
from millstream.dialects import messages as foreign
from millstream.errors import EventError
from millstream.events import FeedbackGiven, MessageReceived, ModelResponded, ToolReturned, TrajectoryEnded
from millstream.examples.data import make, others, recorded
from millstream.ports import Message, Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory

EXAMPLES = {
    "responses": "responses.jsonl",
    "inspect": "inspect.json",
    "langfuse": "langfuse.json",
    "swe-agent": "swe_agent.traj",
    "who-and-when": "who_and_when.json",
    "openai-agents": "run_state.json",
    "cassette": "cassette.yaml",
    "openai": "chats.jsonl",
}
CASE, ATTEMPT = make.CASES[0], make.CASES[0].attempts[0]
ROLLOUT = others.responses_row(CASE, 0, ATTEMPT)
LOG = others.inspect_log([(CASE, 0, ATTEMPT), (CASE, 1, CASE.attempts[1])])
TRACE = others.langfuse_export(CASE, 0, ATTEMPT)
SWE = others.swe_agent_trajectory(CASE, 0, ATTEMPT)
WHO = others.who_and_when_log(CASE, ATTEMPT)
STATE = recorded.run_state(CASE, 0, ATTEMPT)
CASSETTE = recorded.cassette(CASE, 0, ATTEMPT)
VALID = {
    "responses": ROLLOUT,
    "inspect": LOG,
    "langfuse": TRACE,
    "swe-agent": SWE,
    "who-and-when": WHO,
    "openai-agents": STATE,
    "cassette": CASSETTE,
    "openai": make.chat_row(CASE, 0, ATTEMPT),
    "tau-bench": {"task_id": 0, "trial": 0, "reward": 1.0, "traj": make.chat_row(CASE, 0, ATTEMPT)["messages"]},
}


def events(items):
    return [event for item in items if isinstance(item, Message) for event, _ in decode_lines(item.value)]


def problems(items):
    return [item for item in items if isinstance(item, RowProblem)]


def assembled(items):
    """The trajectories that the records fold to."""
    stage, outputs = Assembler(Assembly()), []
    for offset, item in enumerate(items):
        outputs += stage.feed(Record("telemetry", 0, offset, 1, item.key, item.value, item.headers))
    return [msgspec.json.decode(o.value, type=Trajectory) for o in outputs if o.headers.get("kind") == "trajectory"]


@pytest.fixture
def told(tmp_path):
    """The items that rows, one a line, are imported as."""

    def read(*rows, **options):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return list(import_paths([path], Options(**options)))

    return read


@pytest.fixture
def run(told):
    """The one trajectory that a row is imported as."""

    def read(row):
        items = told(row)
        assert problems(items) == []
        (found,) = assembled(items)
        return found

    return read


def responses(*output, **response):
    return {**ROLLOUT, "response": {**ROLLOUT["response"], **response, "output": list(output)}}


def said(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id, **fields):
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **fields}


def found(call_id, output):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_found_by_its_content_and_comes_in_whole(root, name):
    """The format is told by the content alone; every run is complete; a second import is the same bytes."""
    path = root / "examples/data" / EXAMPLES[name]
    items = list(import_paths([path]))
    assert problems(items) == []
    assert items == list(import_paths([path], Options(format=name)))
    runs = assembled(items)
    assert {found.status for found in runs} == {"complete"}
    assert len(runs) == (6 if name in ("responses", "inspect", "openai") else 1)
    assert all(run.responses and run.task.id and run.task.question for run in runs)
    assert {event.source for run in runs for event in run.events if hasattr(event, "source")} == {f"import:{name}"}


def test_every_format_has_a_row_here():
    """The rows of these tests are each found as their format, and none is missing."""
    assert {name: format_of(row, "auto").name for name, row in VALID.items()} == {
        known.name: known.name for known in RUNS
    }
    assert {*VALID, "auto", "millstream", "otlp"} == set(FORMATS)


def test_groups_and_attempts_of_examples(root):
    """The attempts of a case are one group of two, in rollouts by their input, in logs by their sample."""
    for name in ("responses", "inspect"):
        runs = assembled(import_paths([root / "examples/data" / EXAMPLES[name]]))
        assert set(Counter(run.started.group for run in runs).values()) == {2}
        assert {run.started.group_size for run in runs} == {2}
        assert sorted(run.started.attempt for run in runs) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", [name for name in VALID if name != "tau-bench"])
def test_t38_a_bad_row_costs_one_row(told, name):
    """Between two good rows: text, and a row of the format that holds no run."""
    empty = {
        "responses": {**ROLLOUT, "response": None},
        "inspect": {**LOG, "samples": None},
        "langfuse": {**TRACE, "observations": [{"no": "id"}]},
        "swe-agent": {**SWE, "history": []},
        "who-and-when": {**WHO, "mistake_step": "99"},
        "openai-agents": {**STATE, "$schemaVersion": "2.0"},
        "cassette": {"interactions": [{"request": {"uri": "https://example.org/embeddings"}}]},
        "openai": {"messages": []},
    }[name]
    items = told(VALID[name], "TODO", empty, VALID[name])
    assert [problem.row for problem in problems(items)] == [2, 3]
    assert problems(items)[0].file.endswith("rows.jsonl")
    assert len({item.key for item in items if isinstance(item, Message)}) == 2 * (2 if name == "inspect" else 1)


def test_t38_a_bad_sample_of_a_log_costs_one_sample(told):
    """The others of the log come in, and the problem says which run it was."""
    broken = copy.deepcopy(LOG)
    broken["samples"][0]["messages"] = [{"content": "x"}]
    items = told(broken)
    (problem,) = problems(items)
    assert problem.reason.startswith("run 1 of 2: message 1 has no role")
    assert len(assembled([item for item in items if isinstance(item, Message)])) == 1


def test_items_become_turns(run):
    """Reasoning, message and calls are one turn until something else comes; parallel calls stay together."""
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    output = [thought, said("a"), called("c1"), called("c2"), found("c1", "1"), found("c2", "2"), said("b"), said("c")]
    trajectory = run(responses(*output))
    first, second, third = trajectory.steps
    assert (first.response.reasoning, first.response.text) == ("hm", "a")
    assert [result.output for result in first.results] == ["1", "2"]
    assert (second.response.text, third.response.text) == ("b", "c")
    assert [turn.usage.input_tokens for turn in trajectory.responses] == [0, 0, 128]
    assert [turn.response_id for turn in trajectory.responses] == ["", "", "resp_larkspur-growth_0"]


def test_t29_t30_dangling_items_stay(run):
    """A call without its result interrupts the run, a result without its call is an orphan."""
    open_call = run(responses(called("c1"), called("c2"), found("c2", "2"), said("done")))
    assert (open_call.unanswered, open_call.status) == (("c1",), "interrupted")
    orphan = run(responses(found("c9", "5"), said("done")))
    assert (orphan.orphans[0].flags, orphan.status) == (("orphan_result",), "complete")


def test_calls_that_the_provider_ran_have_their_results(run):
    """A web search has no call id and no item of its own for what it found."""
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    mcp = {"type": "mcp_call", "id": "m1", "name": "look", "arguments": '{"a": 1}', "output": "seen", "error": None}
    trajectory = run(responses(search, mcp, said("done")))
    assert [step.response.tool_calls[0].name for step in trajectory.steps[:2]] == ["web_search", "look"]
    assert trajectory.steps[0].response.tool_calls[0].arguments == {"action": {"query": "x"}}
    assert [step.results[0].output for step in trajectory.steps[:2]] == ["completed", "seen"]
    assert trajectory.status == "complete"


def test_t28_a_response_without_items_or_choices_is_an_empty_turn(run):
    """Its usage is kept, in a rollout and in a trace."""
    (turn,) = run(responses()).responses
    assert (turn.text, turn.usage.input_tokens, turn.finish_reason) == ("", 128, "")
    trace = copy.deepcopy(TRACE)
    trace["observations"][0]["output"] = '{"choices": []}'
    assert [(turn.text, turn.usage.input_tokens) for turn in run(trace).responses] == [("", 128), ("", 128)]


def test_unknown_items_are_kept(run):
    """An item of a type that is not known becomes a message under the name of its type."""
    trajectory = run(responses({"type": "mcp_list_tools", "tools": []}, said("done")))
    message = trajectory.events[3]
    assert isinstance(message, MessageReceived)
    assert (message.role, message.name) == ("agent", "mcp_list_tools")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (responses(said("a"), incomplete_details={"reason": "max_output_tokens"}), "limit"),
        (responses(said("a"), error={"message": "server"}), "crash"),
        ({**responses(said("a")), "agent_timed_out": True}, "limit"),
        (responses(said("a")), "done"),
        ({**SWE, "info": {"exit_status": "submitted (exit_cost)"}}, "limit"),
        ({**SWE, "info": {"exit_status": "exit_environment_error"}}, "crash"),
        ({**SWE, "info": {}}, "done"),
    ],
)
def test_how_a_run_ended(told, row, reason):
    """A limit that the policy ran into is a limit, a failure around it a crash."""
    (ended,) = [event for event in events(told(row)) if isinstance(event, TrajectoryEnded)]
    assert ended.reason == reason
    assert bool(ended.error) == (reason == "crash")


def test_token_ids_of_rollouts_are_kept(told):
    """Ids and log-probs of the last item of a turn; empty lists are no ids; wrong ones are a problem."""
    item = {**said("a"), "prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    (turn,) = [event for event in events(told(responses(item))) if isinstance(event, ModelResponded)]
    assert (turn.prompt_token_ids, turn.token_ids, turn.logprobs) == ((1, 2), (3,), (-0.5,))
    (turn,) = [
        e for e in events(told(responses({**item, "generation_token_ids": []}))) if isinstance(e, ModelResponded)
    ]
    assert turn.token_ids is None
    (problem,) = told(responses({**item, "generation_token_ids": ["x"]}))
    assert "lists of whole numbers" in problem.reason


def test_stored_responses_and_bare_items_are_runs(run):
    """A response with its input, and a list of items, without NeMo Gym's frame."""
    stored = {"object": "response", "input": "hi", "instructions": "Be kind.", "output": [said("hello")]}
    assert [e.content for e in run(stored).events if isinstance(e, MessageReceived)] == ["Be kind.", "hi"]
    items = [{"role": "user", "content": "go"}, called("c1"), found("c1", "1"), said("done")]
    assert run(items).final_answer == "done"


def test_samples_keep_tool_errors_scores_and_attachments(run):
    """Errors of tools, calls that were no JSON, letters and numbers of scores, texts kept apart."""
    key = "a" * 32
    sample = {
        "id": 1,
        "epoch": 2,
        "input": f"attachment://{key}",
        "target": ["4"],
        "attachments": {key: "What is 2+2?"},
        "messages": [
            {"role": "user", "content": f"attachment://{key}"},
            {
                "role": "assistant",
                "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": ""}],
                "tool_calls": [{"id": "b1", "function": "bash", "arguments": {"cmd": "ls("}, "parse_error": "no"}],
            },
            {
                "role": "tool",
                "tool_call_id": "b1",
                "function": "bash",
                "content": "",
                "error": {"type": "timeout", "message": "slow"},
            },
            {"role": "assistant", "content": "4"},
        ],
        "scores": {"m": {"value": "P"}, "n": {"value": {"a": 2, "b": True}}, "o": {"value": "odd"}},
    }
    trajectory = run({"eval": {"task": "sums"}, "samples": [sample]})
    assert (trajectory.task.question, trajectory.task.reference) == ("What is 2+2?", "4")
    assert (trajectory.started.attempt, trajectory.events[1].content) == (1, "What is 2+2?")
    (call,) = trajectory.responses[0].tool_calls
    assert (trajectory.responses[0].reasoning, call.malformed, call.arguments_raw) == ("hm", True, "ls(")
    assert trajectory.steps[0].results[0].error == "timeout: slow"


def test_scores_are_feedback_by_the_scorers_name(told):
    """A letter is worth what inspect makes of it; a score of parts is one for each."""
    log = copy.deepcopy(LOG)
    log["samples"] = log["samples"][:1]
    log["samples"][0]["scores"] = {"m": {"value": "P"}, "n": {"value": {"a": 2, "b": True}}, "o": {"value": "odd"}}
    given = [event for event in events(told(log)) if isinstance(event, FeedbackGiven)]
    assert [(e.name, e.value, e.label) for e in given] == [
        ("m", 0.5, "P"),
        ("n.a", 2.0, ""),
        ("n.b", 1.0, ""),
        ("o", None, "odd"),
    ]
    assert {event.source for event in given} == {"environment"}
    assert len({event.id for event in given}) == 4


def test_t32_each_step_has_its_agent_and_the_wrong_one_its_label(told):
    """Two agents and an orchestrator that thinks; what people found wrong is feedback for that step."""
    log = copy.deepcopy(WHO)
    log["history"].insert(1, {"role": "Orchestrator (thought)", "content": "Who can do it?"})
    log["history"].insert(2, {"role": "Orchestrator (-> Analyst)", "content": "Please divide."})
    log["mistake_step"] = 4
    told_events = events(told(log))
    turns = [event for event in told_events if isinstance(event, ModelResponded)]
    assert [turn.agent for turn in turns] == ["Orchestrator", "Orchestrator", "Planner", "Analyst", "Analyst"]
    assert [(turn.reasoning, turn.text) for turn in turns[:2]] == [("Who can do it?", ""), ("", "Please divide.")]
    label = next(e for e in told_events if isinstance(e, FeedbackGiven) and e.source == "human")
    assert (label.name, label.label, label.comment) == ("mistake", "Analyst", WHO["mistake_reason"])
    (wrong,) = [turn for turn in turns if turn.response_id == label.response_id]
    assert wrong.agent == "Analyst"


def test_demonstrations_are_no_actions_and_thinking_is_reasoning(run):
    """What was shown to an agent of SWE-agent is not what it did."""
    swe = copy.deepcopy(SWE)
    swe["history"].insert(1, {"role": "assistant", "content": "shown", "is_demo": True, "agent": "main"})
    swe["history"][-1]["thinking_blocks"] = [{"type": "thinking", "thinking": "hm"}]
    swe["replay_config"] = json.dumps(swe["replay_config"])
    trajectory = run(swe)
    assert (trajectory.events[2].role, trajectory.events[2].name) == ("agent", "demonstration")
    assert [turn.reasoning for turn in trajectory.responses] == ["", "hm"]
    assert (trajectory.task.id, trajectory.final_answer) == ("larkspur-growth", "6.0")


@given(st.permutations(TRACE["observations"]))
def test_the_order_of_observations_does_not_matter(order):
    """Roots last, children first: the same events, ids apart (which hash the file's content)."""
    read = next(known for known in RUNS if known.name == "langfuse").run
    assert run_events(read({**TRACE, "observations": order}, 0, 1), "t") == run_events(read(TRACE, 0, 1), "t")


def test_orphans_and_circles_of_observations_end(run):
    """An observation whose parent is absent is a root and flagged; a circle of parents is no endless walk."""
    trace = copy.deepcopy(TRACE)
    first, tool, last, agent = trace["observations"]
    agent["parentObservationId"] = agent["id"]
    tool["parentObservationId"] = "gone"
    first["parentObservationId"], last["parentObservationId"] = last["id"], first["id"]
    assert run(trace).started.flags == ("orphan_span",)


def test_a_result_that_no_message_tells_comes_from_the_tools_observation(run):
    """A trace that ends with a tool has its result; a failed tool its error; a failed root is a crash."""
    trace = copy.deepcopy(TRACE)
    tool = trace["observations"][1]
    tool |= {"level": "ERROR", "statusMessage": "no power", "output": None}
    trace["observations"] = trace["observations"][1:]
    trajectory = run(trace)
    assert [(result.output, result.error) for result in trajectory.steps[0].results] == [("", "no power")]
    trace["observations"][-1] |= {"level": "ERROR", "statusMessage": "boom"}
    assert (run(trace).ended.reason, run(trace).ended.error) == ("crash", "boom")


def test_a_trace_without_messages_is_a_run_without_steps(run):
    """Metadata alone is accepted."""
    trajectory = run({**TRACE, "observations": TRACE["observations"][3:]})
    assert (trajectory.responses, trajectory.status) == ((), "complete")


def test_scores_of_observations_belong_to_their_call(told):
    """An annotation is a person's, and its response id the call's."""
    made = events(told(TRACE))
    (score,) = [event for event in made if isinstance(event, FeedbackGiven)]
    assert (score.source, score.name, score.value) == ("human", "correct", 1.0)
    (turn,) = [e for e in made if isinstance(e, ModelResponded) and e.response_id == score.response_id]
    assert turn.text == "6.0"


@pytest.mark.parametrize(
    ("value", "told_by"),
    [
        ('{"contents": "hi", "config": {"system_instruction": "Be."}}', [("system", "Be."), ("user", "hi")]),
        ("system: Be.\nuser: hi\nassistant: None\ntool: 5", [("system", "Be."), ("user", "hi"), ("tool", "5")]),
        ('{"prompt": "hi"}', [("user", "hi")]),
        ('[{"role": "model", "parts": [{"text": "a"}]}]', [("assistant", [{"text": "a"}])]),
        (None, []),
        ("", []),
        ("[" * 5000, [("user", "[" * 5000)]),
        ({"messages": {"messages": {"messages": {"messages": {"messages": {"messages": [{"role": "x"}]}}}}}}, []),
    ],
)
def test_messages_of_frameworks(value, told_by):
    """Each way of writing messages that traces hold; what holds none gives none."""
    assert [(m["role"], m["content"]) for m in foreign.input_messages(value)] == told_by


def test_tools_that_a_call_was_shown_are_the_runs():
    """OpenAI's list, Gemini's declarations, a response that repeats them; none where none are told."""
    assert foreign.tool_definitions("hi", '{"tools": [{"name": "f"}, 3]}') == ({"name": "f"},)
    declared = {"config": {"tools": [{"function_declarations": [{"name": "g"}, {"name": "h"}]}]}}
    assert foreign.tool_definitions(declared) == ({"name": "g"}, {"name": "h"})
    assert foreign.tool_definitions(None, {"tools": "f"}, []) == ()


def test_parts_of_messages_are_calls_results_and_reasoning():
    """One message of parts becomes the assistant's message and the results beside it."""
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}},
        {"functionResponse": {"name": "f", "response": {"x": 1}}},
        {"type": "tool-result", "toolCallId": "d", "toolName": "g", "output": {"type": "text", "value": "v"}},
    ]
    told, first, second = foreign.output_messages([{"role": "assistant", "parts": parts}])
    assert (told["reasoning"], told["tool_calls"]) == ("hm", [{"id": "c", "name": "f", "arguments": {"a": 1}}])
    assert (first["role"], first["name"], first["content"]) == ("tool", "f", '{"x":1}')
    assert (second["tool_call_id"], second["content"]) == ("d", "v")


@pytest.mark.parametrize(
    "value", [None, "", "yesterday", "2025-06-15", "2025-06-15T15:06:40", 7, "9999-99-99T00:00:00Z"]
)
def test_a_time_that_is_none_is_zero(value):
    """No guess of a zone, no failure."""
    assert nanoseconds(value) == 0
    assert nanoseconds("2025-06-15T15:06:40.000Z") == 1_750_000_000_000_000_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


@given(st.data(), st.sampled_from(sorted(VALID)), JSON, st.booleans())
def test_no_row_is_too_strange(data, name, strange, absent):
    """A valid row with anything at any place, or nothing there, is read or refused, never a failure."""
    row = copy.deepcopy(VALID[name])
    *path, last = data.draw(st.sampled_from([place for place in places(row) if place]))
    inner = row
    for key in path:
        inner = inner[key]
    if absent:
        del inner[last]
    else:
        inner[last] = strange
    form = format_of(row, "auto")
    try:
        parts = form.parts(row) if form else []
    except EventError:
        return
    for part in parts:
        try:
            form.group_key(part)
            made = run_events(form.run(part, 0, 1), "t")
        except EventError:
            continue
        assert all(not isinstance(event, ToolReturned) or isinstance(event.output, str) for event in made)
        assert all(decode_lines(msgspec.json.encode(event))[0][0] == event for event in made)


def test_a_run_state_has_its_agents_and_responses(run):
    """Calls, results and answers are those of the items, each turn with its agent, its usage and its response."""
    two = copy.deepcopy(STATE)
    two["generated_items"][2]["agent"] = {"name": "writer"}
    found = run(two)
    assert [(turn.agent, turn.response_id) for turn in found.responses] == [
        ("larkspur", "resp_larkspur-growth_1"),
        ("writer", "resp_larkspur-growth_2"),
    ]
    assert [(turn.usage.input_tokens, turn.usage.cached_tokens) for turn in found.responses] == [(128, 100)] * 2
    assert (found.unanswered, found.started.task.family, found.status) == ((), "larkspur", "complete")


def test_a_run_state_that_waits_is_interrupted_and_one_out_of_turns_hit_a_limit(run):
    """A call that waits for an approval has no result; the approval does not repeat it."""
    waiting = copy.deepcopy(STATE)
    call = waiting["generated_items"][0]
    waiting["generated_items"] = [call, {**call, "type": "tool_approval_item"}]
    waiting["current_step"] = {"type": "next_step_interruption"}
    found = run(waiting)
    assert (found.status, found.reason, len(found.unanswered)) == ("interrupted", "unanswered_call", 1)
    assert len(found.responses[0].tool_calls) == 1
    assert run({**waiting, "current_turn": 10}).hit_limit
    assert not run({**STATE, "current_turn": 10}).hit_limit


def test_the_longer_list_of_a_run_state_is_the_run(run):
    """A state that was resumed has the whole run in its session, and the last part in its generated items."""
    resumed = {**STATE, "session_items": STATE["generated_items"], "generated_items": STATE["generated_items"][2:]}
    assert len(run(resumed).steps) == 2


@pytest.mark.parametrize("version", ["2.0", "0.9", "x", ""])
def test_t13_a_run_state_of_another_major_version_is_refused(told, version):
    """Fields that are unknown are ignored, versions that are unknown are not guessed at."""
    (problem,) = problems(told({**STATE, "$schemaVersion": version}))
    assert "schema" in problem.reason
    assert problems(told({**STATE, "colour": "red", "$schemaVersion": "1.99"})) == []


def test_a_cassette_tells_its_calls_as_they_were(run):
    """The second call continues the first: one run; its stream is put together, usage and ids are the responses'."""
    found = run(CASSETTE)
    first, second = found.responses
    assert ([call.name for call in first.tool_calls], first.finish_reason) == (["calculator"], "tool_calls")
    assert (second.text, second.finish_reason) == (ATTEMPT.answer, "stop")
    assert [turn.usage.output_tokens for turn in found.responses] == [12, 12]
    assert [turn.response_id for turn in found.responses] == [f"chatcmpl-{CASE.id}-{n}" for n in (0, 1)]
    assert [result.output for result in found.steps[0].results] == [ATTEMPT.output]
    assert found.started.tools[0]["function"]["name"] == "calculator"


def test_calls_that_do_not_continue_are_runs_of_their_own(told):
    """Another conversation, a retry of the same call, and a branch from the first answer."""
    first, second = CASSETTE["interactions"]
    other = copy.deepcopy(first)
    other["request"]["body"] = other["request"]["body"].replace("Larkspur", "Woodbine")
    runs = assembled(told({"interactions": [first, second, other, first, second]}))
    assert sorted(len(found.responses) for found in runs) == [1, 2, 2]
    apart = assembled(told({"interactions": [first, other, second]}))
    assert sorted(len(found.responses) for found in apart) == [1, 1, 2]  # what the second call was told is history


def test_a_failed_call_of_a_cassette_is_a_crash_that_says_so(run):
    """429 and its words are kept; a body in base64 is a body; one that is none is a bad row."""
    first = copy.deepcopy(CASSETTE["interactions"][0])
    first["response"] = {"status": {"code": "429"}, "body": {"string": "slow down"}}
    found = run({"interactions": [first]})
    assert (found.reason, found.ended.error) == ("reported_crash", "HTTP 429: slow down")
    coded = copy.deepcopy(CASSETTE["interactions"][0])
    body = coded["response"]["body"]["string"].encode()
    coded["response"]["body"] = {"base64_string": base64.b64encode(body).decode()}
    assert run({"interactions": [coded]}).responses[0].tool_calls


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [x]\nb: [*a, *a]", "anchors"),
        ("a: [", "not YAML"),
        ("a: !!python/object/apply:os.system ['true']", "a row with a"),
        ("[" * 5000, "not YAML"),
        ("\x00", "not YAML"),
        ("just words", "a row str"),
    ],
)
def test_yaml_is_texts_and_nothing_else(tmp_path, text, why):
    """No object is made, no anchor grows, no date is guessed; what is no run says why."""
    path = tmp_path / "rows.yaml"
    path.write_text(text)
    (problem,) = import_paths([path])
    assert why in problem.reason
