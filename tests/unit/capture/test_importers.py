"""Files in, events out. Case numbers are those of the case list."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections import Counter

import msgspec
import pytest

from millstream.capture.importers import reading
from millstream.capture.importers.base import Options, import_into, import_paths
from millstream.capture.importers.reading import RowProblem, files
from millstream.codec import decode_lines
from millstream.errors import SettingsError
from millstream.events import (
    FeedbackGiven,
    MessageReceived,
    TrajectoryStarted,
)
from millstream.examples.data import make as example
from millstream.ports import Message, Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory


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
def write(tmp_path):
    def written(content, name="rows.jsonl"):
        path = tmp_path / name
        if isinstance(content, list):
            content = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [path]

    return written


CALL = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"e": "2+2"}'}}
CHAT = {
    "messages": [
        {"role": "system", "content": "Answer."},
        {"role": "user", "content": [{"type": "text", "text": "2+2?"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "name": "calc", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ],
    "task_id": "sum",
    "reward": 1,
}


def test_the_example_runs_come_in_whole(root):
    """Both example formats give six complete runs in three groups of two, with a reward each."""
    for name in ("runs.ndjson", "chats.jsonl"):
        items = list(import_paths([root / "examples/data" / name]))
        assert problems(items) == []
        runs = assembled(items)
        assert Counter(run.status for run in runs) == {"complete": 6}
        assert Counter(run.started.group for run in runs) == dict.fromkeys((c.id for c in example.CASES), 2)
        assert {run.started.group_size for run in runs} == {2}
        assert sorted(run.started.attempt for run in runs) == [0, 0, 0, 1, 1, 1]
        assert Counter(e.value for e in events(items) if isinstance(e, FeedbackGiven)) == {1.0: 3, 0.0: 3}
        assert sum(run.hit_limit for run in runs) == 1
        assert sum(c.malformed for run in runs for r in run.responses for c in r.tool_calls) == 1


def test_tau_bench_comes_in_whole(data):
    """100 complete runs in 25 groups of four; each of the 577 calls has its own result, though ids repeat."""
    items = list(import_paths([data / "tau_bench/airline_gpt4o.json"]))
    assert problems(items) == []
    runs = assembled(items)
    assert Counter(run.status for run in runs) == {"complete": 100}
    groups = Counter(run.started.group for run in runs)
    assert (len(groups), set(groups.values())) == (25, {4})
    assert {(run.started.group_size, run.started.split) for run in runs} == {(4, "train")}
    assert Counter(run.started.attempt for run in runs) == dict.fromkeys(range(4), 25)
    steps = [step for run in runs for step in run.steps]
    assert sum(len(step.response.tool_calls) for step in steps) == 577
    assert all(len(step.results) == len(step.response.tool_calls) for step in steps)
    assert all(
        result.name == call.name for s in steps for call, result in zip(s.response.tool_calls, s.results, strict=True)
    )
    rewards = [e for e in events(items) if isinstance(e, FeedbackGiven)]
    assert Counter(e.value for e in rewards) == {0.0: 51, 1.0: 49}
    assert {e.source for e in rewards} == {"environment"}
    assert all("None" not in r.text for run in runs for r in run.responses)


def test_a_chat_row_becomes_a_run(write):
    """Roles, calls, results, reward and the answer land where they belong; T24: null content is no text."""
    started, system, user, asked, result, answer, ended, reward = events(import_paths(write([CHAT])))
    assert isinstance(started, TrajectoryStarted)
    assert (started.task.id, started.split, started.policy_version) == ("sum", "train", None)
    assert isinstance(system, MessageReceived)
    assert system.role == "system"
    assert (user.content, user.flags) == ("2+2?\n[image_url]", ("non_text_part",))
    assert (asked.text, asked.tool_calls[0].arguments) == ("", {"e": "2+2"})
    assert (result.call_id, result.output) == ("c1", "4")
    assert answer.text == "It is 4."
    assert (ended.reason, ended.final_answer, ended.last_seq) == ("done", "It is 4.", {"import": 6})
    assert (reward.value, reward.source, reward.seq) == (1.0, "environment", None)


def test_importing_twice_gives_the_same_events(write, tmp_path):
    """Ids and bytes depend on the content alone, not on the file's name; another lineage is another run."""
    first = list(import_paths(write([CHAT, CHAT])))
    again = list(import_paths(write([CHAT, CHAT], "copy.jsonl")))
    assert first == again
    assert len({item.key for item in first}) == 2
    assert {item.headers["import"] for item in first} == {"1"}
    other = list(import_paths(write([CHAT]), Options(lineage="other")))
    assert {e.id for e in events(other)}.isdisjoint(e.id for e in events(first))
    assert events(other)[0].lineage == "other"


def test_t38_bad_rows_are_reported_and_the_rest_goes_in(write):
    """A row that is no JSON, one of no known kind and one with a bad member are named by file and line."""
    path = write(
        [
            CHAT,
            "TODO",
            {"what": 1},
            {**CHAT, "reward": "high"},
            {"messages": [{"content": "x"}]},
            {"messages": []},
            CHAT,
        ]
    )
    items = list(import_paths(path))
    assert len({item.key for item in items if isinstance(item, Message)}) == 2
    found = problems(items)
    assert [problem.row for problem in found] == [2, 3, 4, 5, 6]
    assert str(found[0]).startswith(f"{path[0]}: row 2: not JSON")
    assert "a row with what is not an event" in found[1].reason
    assert found[2].reason == 'reward is "high"; it must be a finite number'
    assert "message 1 has no role" in found[3].reason
    assert "messages is empty" in found[4].reason


@pytest.mark.parametrize("first", ["TODO", CHAT])
def test_t38_a_bad_first_row_spoils_nothing(write, first):
    """The first line does not decide what the others are."""
    items = list(import_paths(write([first, CHAT])))
    assert len(problems(items)) == (first == "TODO")
    assert len({i.key for i in items if isinstance(i, Message)}) == (1 if first == "TODO" else 2)


def test_t29_t30_calls_without_results_and_results_without_calls_stay(write):
    """Neither is dropped; the run with the open call is interrupted, the orphan is flagged."""
    second = {**CALL, "id": "c2"}
    dangling = {
        "messages": [
            CHAT["messages"][1],
            {"role": "assistant", "tool_calls": [CALL, second]},
            {"role": "tool", "tool_call_id": "c2", "content": "5"},
        ]
    }
    orphan = {
        "messages": [{"role": "tool", "tool_call_id": "c9", "content": "5"}, {"role": "assistant", "content": "done"}]
    }
    one, two = assembled(import_paths(write([dangling, orphan])))
    assert (one.unanswered, one.status) == (("c1",), "interrupted")
    assert (two.orphans[0].output, two.orphans[0].flags, two.status) == ("5", ("orphan_result",), "complete")


def test_a_call_id_used_twice_keeps_each_result_with_its_call(write):
    """Providers repeat ids; the second use gets a name of its own."""
    messages = []
    for number in range(2):
        function = {"name": f"f{number}", "arguments": ""}
        messages.append({"role": "assistant", "tool_calls": [{"id": "c", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": str(number)})
    (run,) = assembled(import_paths(write([{"messages": messages}])))
    assert [[result.output for result in step.results] for step in run.steps] == [["0"], ["1"]]
    assert [response.tool_calls[0].id for response in run.responses] == ["c", "c#2"]
    assert run.responses[1].flags == ("call_id_reused",)


def test_old_function_calls_find_their_results_by_name(write):
    """The function_call of older models has no id."""
    messages = [
        {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    (run,) = assembled(import_paths(write([{"messages": messages}])))
    assert [result.output for result in run.steps[0].results] == ["1"]
    assert run.steps[0].response.tool_calls[0].arguments == {"a": 1}


@pytest.mark.parametrize(
    ("content", "runs"),
    [
        (json.dumps([CHAT, CHAT]), 2),
        (json.dumps([CHAT, CHAT], indent=2), 2),
        (json.dumps(CHAT, indent=2), 1),
        (json.dumps(CHAT), 1),
        (json.dumps(CHAT["messages"]), 1),
        (json.dumps(CHAT["messages"], indent=1), 1),
        ("\ufeff" + json.dumps(CHAT) + "\r\n\r\n" + json.dumps(CHAT) + "\r\n", 2),
        (json.dumps(CHAT["messages"]) + "\n" + json.dumps(CHAT["messages"]), 2),
        ("", 0),
        ("[]", 0),
    ],
)
def test_lines_arrays_and_single_values_are_told_apart(write, content, runs):
    """Whatever the name of the file says."""
    items = list(import_paths(write(content, "any.json")))
    assert problems(items) == []
    assert len({item.key for item in items}) == runs


def test_t18_t19_rows_that_strict_json_refuses_are_mended(write):
    """NaN is null and half an emoji U+FFFD, and the run says so."""
    row = '{"messages": [{"role": "user", "content": "ok \\ud83d"}], "metadata": {"score": NaN}}'
    started, message, _ = events(import_paths(write(row)))
    assert started.flags == ("non_finite", "surrogate_replaced")
    assert message.content == "ok \ufffd"
    assert started.task.metadata == {"score": None}


def test_millstream_events_keep_their_ids_and_pass_the_edge(write, root):
    """Our own events come in as they are; texts are bounded and secrets gone; ticks are refused."""
    lines = (root / "examples/data/runs.ndjson").read_text().splitlines()
    secret = json.dumps({"kind": "ToolReturned", "id": "x", "trajectory_id": "t", "output": "password=hunter22"})
    tick = json.dumps({"kind": "Tick", "id": "y", "trajectory_id": "t"})
    newer = json.dumps({"kind": "ToolReturned", "id": "z", "trajectory_id": "t", "schema": 99})
    items = list(import_paths(write([*lines, secret, tick, newer])))
    given = [json.loads(line)["id"] for line in lines]
    assert [e.id for e in events(items)] == [*given, "x"]
    assert events(items)[-1].output == "password=[REDACTED:password]"
    assert [p.row for p in problems(items)] == [len(lines) + 2, len(lines) + 3]
    assert "schema 99" in problems(items)[1].reason


def test_options_decide_over_rows(write):
    """A lineage and a split given for the import win over the row's; the row's over the default."""
    row = {**CHAT, "lineage": "mine", "split": "report"}
    assert events(import_paths(write([row])))[0].split == "report"
    started = events(import_paths(write([row]), Options(lineage="theirs", split="held_out")))[0]
    assert (started.lineage, started.split) == ("theirs", "held_out")


def test_a_row_of_another_format_than_asked_for_is_a_problem(write):
    """A format that is named is the only one read."""
    (problem,) = import_paths(write([CHAT]), Options(format="tau-bench"))
    assert problem.reason.endswith("is not of the format tau-bench")


def test_wrong_usage_fails_before_anything_is_read(tmp_path):
    """A missing path, an unknown format and an empty folder say what to do."""
    with pytest.raises(SettingsError, match="no file or folder at"):
        import_paths([tmp_path / "absent.json"])
    with pytest.raises(SettingsError, match="did you mean 'openai'"):
        import_paths([], Options(format="openia"))
    with pytest.raises(SettingsError, match="holds no file to import"):
        import_paths([tmp_path])


def test_a_long_run_is_split_over_records(write):
    """No record grows without bound, whatever the run holds."""
    messages = [{"role": "assistant", "content": "x" * 60_000} for _ in range(20)]
    items = list(import_paths(write([{"messages": messages}])))
    assert len(items) > 1
    assert max(len(item.value) for item in items) < 600_000
    assert len(assembled(items)) == 1


def test_import_counts_and_a_dry_run_writes_nothing(log, told, root):
    """What would be imported is what is imported then."""
    paths = [root / "examples/data/runs.ndjson", root / "examples/data/chats.jsonl"]
    dry = import_into(log, paths, dry_run=True)
    assert told() == []
    wet = import_into(log, paths)
    assert dry == wet
    assert (wet.files, wet.trajectories, wet.events) == (2, 12, len(told()))


def test_an_import_tells_how_far_it_is(tmp_path, log):
    """Rising bytes up to all of them: line by line in a file of rows, at the end of one that is one value."""
    rows, whole, broken = tmp_path / "a.jsonl", tmp_path / "b.json", tmp_path / "c.jsonl"
    row = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    rows.write_text(f"{row}\n" * 5)
    whole.write_text("[\n" + row + "\n]\n")
    broken.write_text(f"{row}\nTODO\n{row}\n")
    told: list[tuple[int, int]] = []
    import_into(log, [rows, whole, broken], dry_run=True, progress=lambda done, of: told.append((done, of)))
    of = sum(path.stat().st_size for path in (rows, whole, broken))
    assert told == sorted(told)
    assert {of} == {total for _, total in told}
    assert told[-1] == (of, of)
    assert len({done for done, _ in told}) >= 5 + 1 + 2


def test_a_folder_stands_for_what_is_below_it(tmp_path):
    """Folders in folders, in order; hidden ones and other files are left out."""
    row = json.dumps({"messages": [{"role": "user", "content": "q"}]})
    for name in ("b/c/one.jsonl", "a.json", ".git/two.json", "b/.hidden.json", "b/notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(row)
    assert [path.relative_to(tmp_path).as_posix() for path in files([tmp_path])] == ["a.json", "b/c/one.jsonl"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="holds no file to import"):
        files([tmp_path / "empty"])


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("first", [True, False])
def test_a_line_without_end_costs_its_row_and_not_the_memory(tmp_path, monkeypatch, first, end):
    """A file of nothing but zeros for ever is held to the bound; the rows around it go in."""
    monkeypatch.setattr(reading, "_WHOLE_BYTES", 1_000_000)
    good = json.dumps({"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]})
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        if not first:
            file.write(good.encode() + b"\n")
        file.seek(64_000_000, 1)
        file.write(b"x" + end)
        if end:
            file.write(good.encode())
    tracemalloc.start()
    items = list(import_paths([path]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16_000_000
    assert [one.reason for one in problems(items)] == ["a line of more than 1,000,000 bytes"]
    assert len({item.key for item in items if isinstance(item, Message)}) == (not first) + bool(end)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_one_problem_that_names_the_mend(write, pack):
    """And no thousand rows that are no JSON."""
    (problem,) = problems(import_paths(write(pack(b'{"messages": []}\n' * 1000))))
    assert problem.row == 0
    assert "unpack it" in problem.reason


DEEP_ROWS = (
    '{"messages":[{"role":"user","content":%s},{"role":"assistant","content":"x"}]}',
    '{"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":%s}}]}]}',
    '{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"metadata":%s,"tools":[%s]}',
    '{"task_id":1,"traj":[{"role":"user","content":%s}],"reward":1,"info":%s,"trial":0}',
    '{"object":"response","output":[{"type":"message","content":%s}],"input":%s}',
    '{"a":%s}',
    '{"resourceSpans":[{"resource":%s,"scopeSpans":[{"spans":[{"attributes":%s}]}]}]}',
    '{"kind":"TrajectoryStarted","id":"e","trajectory_id":"t","tools":[%s],"task":{"metadata":%s}}',
)


@pytest.mark.parametrize("row", DEEP_ROWS)
@pytest.mark.parametrize("levels", [100, 400, 600, 900, 970, 100_000])
def test_a_row_nested_too_deeply_is_one_problem_at_most(write, row, levels):
    """Of whatever format: the import goes on with the next row, and no secret of the deep one gets through."""
    good = '{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"fine"}]}'
    for before, after in (("[", "]"), ('{"a":', "}")):
        deep = row.replace("%s", before * levels + '"password=hunter2hunter"' + after * levels)
        items = list(import_paths(write([deep, good])))
        values = [item.value for item in items if isinstance(item, Message)]
        assert len(problems(items)) <= 1
        assert any(b'"fine"' in value for value in values)
        assert not any(b"hunter2" in value for value in values)
