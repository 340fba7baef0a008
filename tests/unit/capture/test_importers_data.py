"""Importers over files that no one here wrote: what comes in is counted, what does not has its reason."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from millstream import values
from millstream.capture.importers.base import import_paths
from millstream.capture.importers.reading import RowProblem
from millstream.codec import decode_lines, encode_lines
from millstream.dialects.messages import input_messages, output_messages
from millstream.events import CLOSE_OPEN, FeedbackGiven, Tick
from millstream.ports import Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory


class Imported:
    """What the files of a folder became."""

    def __init__(self, files):
        assert files
        self.problems, self.feedback, self.runs = [], [], []
        stage, offset = Assembler(Assembly()), 0
        for path in files:
            items = list(import_paths([path]))
            for item in items:
                if isinstance(item, RowProblem):
                    self.problems.append(item)
                    continue
                found = [event for event, _ in decode_lines(item.value)]
                self.feedback += [event for event in found if isinstance(event, FeedbackGiven)]
                record = Record("telemetry", 0, offset, 1, item.key, item.value, item.headers)
                for output in stage.feed(record):
                    assert output.headers.get("kind") in ("trajectory", "feedback")
                    if output.headers["kind"] == "trajectory":
                        self.runs.append(msgspec.json.decode(output.value, type=Trajectory))
                offset += 1

    def refused(self, beginning):
        """How many rows were refused with a reason of this beginning."""
        return sum(problem.reason.startswith(beginning) for problem in self.problems)

    @property
    def statuses(self):
        return Counter(run.status for run in self.runs)

    def sizes(self):
        """Steps, calls, calls without a result, results without a call."""
        calls = sum(len(response.tool_calls) for run in self.runs for response in run.responses)
        steps = sum(len(run.responses) for run in self.runs)
        return steps, calls, sum(len(run.unanswered) for run in self.runs), sum(len(run.orphans) for run in self.runs)


def test_nemo_gym(data):
    """270 rollouts, 30 of them in two files; 10 calls have no result (T29); 70 rows are no rollouts (T38)."""
    found = Imported(sorted((data / "nemo_gym").glob("**/*.jsonl")))
    assert (len(found.runs), len(found.feedback)) == (240, 270)
    assert found.statuses == {"complete": 232, "interrupted": 8}
    assert found.sizes() == (622, 321, 10, 0)
    rewards = [event.value for event in found.feedback]
    assert (min(rewards), max(rewards)) == (-100.0, 2.0)
    assert len(found.problems) == 70
    assert found.refused("response is missing") == 40
    assert found.refused("not JSON") == 5
    assert found.refused("input and output are empty") == 5
    assert found.refused("a row with") == 20
    assert any(response.token_ids for run in found.runs for response in run.responses)


def test_swe_agent(data):
    """12 runs, all whole; the tool calls have their results; the submission is the answer."""
    found = Imported(sorted((data / "swe_agent").glob("*.traj")))
    assert (found.problems, found.statuses) == ([], {"complete": 12})
    assert found.sizes()[2:] == (0, 0)
    assert found.sizes()[:2] == (128, 40)
    assert sum(run.final_answer is not None for run in found.runs) == 12
    tasks = Counter(run.task.id for run in found.runs)
    assert tasks["marshmallow-code__marshmallow-1867"] == 4


def test_who_and_when(data):
    """60 logs; every label points to a step, and but for terminals' entries to the agent that it names."""
    found = Imported(sorted((data / "who_and_when").glob("*.json")))
    assert (found.problems, found.statuses) == ([], {"complete": 60})
    agents = {(run.id, turn.response_id): turn.agent for run in found.runs for turn in run.responses}
    labels = [event for event in found.feedback if event.source == "human"]
    assert len(labels) == 60
    wrong = Counter(agents.get((event.trajectory_id, event.response_id)) == event.label for event in labels)
    assert wrong == {True: 58, False: 2}
    assert {event.value for event in found.feedback if event.source == "environment"} == {0.0}
    assert all(turn.agent for run in found.runs for turn in run.responses)


def test_inspect_logs(data):
    """9 logs hold 12 samples with their scores; fixtures of other kinds in the folder are reported, row by row."""
    found = Imported(sorted((data / "inspect_ai").glob("*.json")))
    assert found.statuses == {"complete": 12}
    assert found.sizes() == (11, 0, 0, 11)
    errors = [result.error for run in found.runs for result in run.orphans]
    assert len(errors) == 11
    assert all(errors)
    assert {error.split(":")[0] for error in errors} >= {"timeout", "permission", "output_limit", "unicode_decode"}
    assert Counter(event.name for event in found.feedback) == {"match": 7, "model_graded_fact": 4}
    assert {event.value for event in found.feedback} <= {0.0, 0.5, 1.0}
    assert found.refused("a row with") == len(found.problems) == 44


def test_langfuse(data):
    """12 traces of as many frameworks: every one a whole run whose steps and calls are those of the trace."""
    files = sorted((data / "langfuse").glob("*.trace.json"))
    found = Imported(files)
    assert (found.problems, found.statuses) == ([], {"complete": 12})
    assert found.sizes() == (18, 5, 0, 0)
    steps = {path.name.rsplit("-20", 1)[0]: len(run.responses) for path, run in zip(files, found.runs, strict=True)}
    assert {name: count for name, count in steps.items() if count > 1} == {
        "agno": 2,
        "beeai": 3,
        "google-adk": 2,
        "microsoft-agent": 2,
        "openai-agents": 2,
    }
    assert all("None" not in turn.text for run in found.runs for turn in run.responses)
    assert len(found.feedback) == 17
    shown = [path.name.split("-20")[0] for path, run in zip(files, found.runs, strict=True) if run.started.tools]
    assert shown == ["agno", "google-adk", "openai-agents"]


def plain(message, *, results_are_tools):
    """A message as role, text and calls; Gemini calls the assistant model."""
    asked = [(call.name, call.arguments) for call in values.tool_calls(message.get("tool_calls"))]
    text, _ = values.text_of(message.get("content"))
    role = {"model": "assistant"}.get(message["role"], message["role"])
    return ("user" if role == "tool" and results_are_tools else role), text, asked


@pytest.mark.parametrize("side", ["input", "output"])
def test_langfuse_messages_are_those_expected(data, side):
    """Of every observation for which the expected messages are known, with one difference that is ours by right.

    Gemini puts a function's response into a user message; here it is a tool's, so that it answers its call.
    """
    compared = 0
    for path in sorted((data / "langfuse").glob("*.trace.json")):
        expected = json.loads(path.with_name(path.name.replace(".trace.", ".chatml.")).read_text())
        for told in json.loads(path.read_text())["observations"]:
            known = expected.get(told["id"], {}).get(side, {"success": False})
            wanted = [message for message in known["data"] if message.get("role")] if known["success"] else []
            if not wanted:
                continue
            made = (input_messages if side == "input" else output_messages)(told[side])
            google = path.name.startswith("google-adk")
            assert [plain(message, results_are_tools=google) for message in made] == [
                plain(message, results_are_tools=False) for message in wanted
            ], (path.name, told["name"])
            compared += 1
    assert compared == {"input": 21, "output": 18}[side]


@pytest.mark.parametrize(
    ("folder", "lines", "problems", "counts"),
    [
        ("otlp_examples", 3, 2, {"runs": 0, "steps": 0, "unmapped": 2, "invalid_trace": 1}),
        ("vercel_ai_spans", 16, 27, {"runs": 8, "steps": 10, "unmapped": 3, "invalid_trace": 0}),
        ("langwatch", 3, 4, {"runs": 0, "steps": 0, "unmapped": 0, "invalid_trace": 3}),
    ],
)
def test_files_of_spans(data, folder, lines, problems, counts):
    """Each span is a line and is somewhere: in a run, unmapped, or a dead letter with its reason; rows that hold no
    span are problems.
    """
    items = list(import_paths([data / folder]))
    records = [item for item in items if not isinstance(item, RowProblem)]
    assert (len(records), len(items) - len(records)) == (lines, problems)
    assembler, outputs = Assembler(Assembly()), []
    for offset, made in enumerate(records):
        outputs += assembler.feed(Record("telemetry", 0, offset, 1000, made.key, made.value, made.headers))
    tick = encode_lines([Tick(id="t", trajectory_id="-", flags=(CLOSE_OPEN,))])
    outputs += assembler.feed(Record("telemetry", 0, lines, 1000, "-", tick, {}))
    told = [msgspec.json.decode(o.value, type=Trajectory) for o in outputs if o.headers["kind"] == "trajectory"]
    reasons = [msgspec.json.decode(o.value)["reason"] for o in outputs if o.headers["kind"] == "dead_letter"]
    assert {run.status for run in told} <= {"complete"}
    assert counts == {
        "runs": len(told),
        "steps": sum(len(run.steps) for run in told),
        "unmapped": assembler.ledger.unmapped,
        "invalid_trace": reasons.count("invalid_trace"),
    }
    assert assembler.ledger.balance == 0


def test_run_states(data):
    """Every version from 1.0 to 1.17 comes in; what is no state says why, and no value of it is repeated."""
    found = Imported(sorted((data / "openai_agents_run_state").glob("*.json")))
    assert (len(found.runs), found.statuses) == (26, {"complete": 23, "interrupted": 3})
    assert found.sizes() == (4, 5, 3, 0)
    assert [problem.file.rsplit("/", 1)[1] for problem in found.problems] == [
        "negative__malformed_current_agent.json",
        "negative__missing_version.json",
        "sources.json",
    ]
    assert not any("SENTINEL" in str(problem) for problem in found.problems)
    turns = [turn for run in found.runs for turn in run.responses]
    assert {turn.agent for turn in turns} == {"compat-agent"}
    assert {turn.response_id for turn in turns} == {"", "response-program", "resp-789"}


def test_cassettes(data):
    """Chat and Responses, streamed or not; a call that continues the one before is of its run. Two of the 14 files hold
    the same call, one holds another API's.
    """
    found = Imported(sorted((data / "openai_cassettes").glob("*.yaml")))
    (problem,) = found.problems
    assert problem.reason.endswith("is no call of chat completions or responses")
    assert (len(found.runs), found.statuses) == (12, {"complete": 10, "interrupted": 2})
    assert found.sizes() == (15, 9, 3, 0)
    assert all(turn.usage.input_tokens and turn.response_id for run in found.runs for turn in run.responses)
    assert sorted(len(run.responses) for run in found.runs) == [1] * 9 + [2] * 3


@pytest.mark.parametrize("folder", ["finqa"])
def test_files_of_no_known_format_are_problems(data, folder):
    """What is not read yet is reported with its row, and nothing of it goes in."""
    items = list(import_paths([data / folder]))
    assert items
    assert all(isinstance(item, RowProblem) for item in items)
