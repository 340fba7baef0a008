"""What somebody sees who uses Millstream for the first time: each output says what there is and what to do next."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.cli.common import table
from millstream.console.times import iso
from millstream.trajectory import Trajectory

ENDED = ("TrajectoryEnded", "FeedbackGiven")


def rows_of(examples, *, without=()):
    """The example's events but for some kinds."""
    lines = (examples / "runs.ndjson").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if json.loads(line)["kind"] not in without)


@pytest.mark.timeout(120)
def test_up_says_what_it_leaves_open_and_how_to_close_it(mill, cli, examples):
    """Runs that did not end and groups whose timer goes on are counted, with the command that closes them; after
    that command nothing is told.
    """
    (mill.folder / "open.ndjson").write_text(rows_of(examples, without=ENDED), encoding="utf-8")
    cli("import", "open.ndjson")
    code, out, err = cli("up", "--until-idle")
    assert (code, out) == (0, "")
    assert "6 runs are open" in err
    assert "group" not in err
    assert "`millstream up --until-idle --close-open` closes what is open now" in err
    assert json.loads(cli("up", "--until-idle", "--json")[1])["open"] == {"trajectories": 6, "groups": 0}
    assert "is open now" not in cli("up", "--until-idle", "--close-open")[2]
    assert json.loads(cli("up", "--until-idle", "--json")[1])["open"] == {"trajectories": 0, "groups": 0}


@pytest.mark.timeout(120)
def test_up_says_which_groups_wait(mill, cli, examples):
    """One attempt of a task waits for others, though its run is sealed."""
    lines = rows_of(examples).splitlines()
    one = json.loads(lines[0])["trajectory_id"]
    mine = [json.loads(line) for line in lines if json.loads(line)["trajectory_id"] == one]
    mine = [{**event, "group": "alone", "group_size": 4} if "task" in event else event for event in mine]
    (mill.folder / "one.ndjson").write_text("\n".join(map(json.dumps, mine)), encoding="utf-8")
    cli("import", "one.ndjson")
    _, _, err = cli("up", "--until-idle")
    assert "1 group of rollouts is open" in err
    assert "run is open" not in err


def test_bad_rows_with_the_same_reason_share_a_line(mill, cli):
    """A file of another format is told in a line and not in one for each row; each bad row is still counted, in
    the document each is there, and a row between them that is good or has another reason parts them.
    """
    good = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    odd = json.dumps({"answer": "7", "question": "q"})
    (mill.folder / "a.jsonl").write_text("\n".join(3 * [odd] + [good, odd, "{"] + 2 * [odd]), encoding="utf-8")
    (mill.folder / "b.jsonl").write_text("\n".join(2 * [odd]), encoding="utf-8")
    code, out, err = cli("import", "a.jsonl", "b.jsonl")
    assert (code, out) == (4, "imported 1 run, 4 events; 9 bad rows\n")
    told = [line.split(": ")[:2] for line in err.splitlines()]
    assert told == [
        ["a.jsonl", "rows 1 to 3"],
        ["a.jsonl", "row 5"],
        ["a.jsonl", "row 6"],
        ["a.jsonl", "rows 7 to 8"],
        ["b.jsonl", "rows 1 to 2"],
    ]
    assert len(json.loads(cli("import", "a.jsonl", "b.jsonl", "--json")[1])["problems"]) == 9


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flag", ["", "history", "call_failed"])
@pytest.mark.parametrize("told", [True, False])
def test_the_list_has_the_answer_that_graders_see(mill, cli, examples, told, flag):
    """Also where the end of the run tells none: then the last response without calls is the answer, unless it is
    read as context or did not come whole.
    """
    events = [json.loads(line) for line in rows_of(examples).splitlines()]
    for event in events:
        if event["kind"] == "TrajectoryEnded" and not told:
            event.pop("final_answer", None)
        if event["kind"] == "ModelResponded" and flag:
            event["flags"] = [flag]
    (mill.folder / "runs.ndjson").write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    cli("import", "runs.ndjson")
    cli("up", "--until-idle")
    listed = {row["id"]: row["final_answer"] for row in json.loads(cli("trajectories", "list", "--json")[1])["items"]}
    for name, answer in listed.items():
        shown = json.loads(cli("trajectories", "show", name, "--json")[1])
        assert answer == msgspec.convert(shown, Trajectory).final_answer
    assert len(listed) == 6
    assert (listed["example-larkspur-growth-0"] is not None) is (told or not flag)


def test_cells_are_words_and_not_python(capfd):
    """What is not known is a dash, a truth value yes or no; numbers and texts stay."""
    table([(None, True, False, 0, 1.5, "None")], ("a", "b", "c", "d", "e", "f"))
    assert capfd.readouterr().out.splitlines()[1].split() == ["–", "yes", "no", "0", "1.5", "None"]


def test_the_first_grader_says_how_it_is_switched_on(mill, cli, examples):
    """What graders.py of `init` says to write into the settings makes `up` ask it, and pays by it."""
    cli("init")
    text = (mill.folder / "graders.py").read_text(encoding="utf-8")
    files, formula = '[graders] files = ["graders.py"]', '[reward] formula = "same_text"'
    assert all(told in text for told in (files, formula))
    mill.settings("\n".join(told.replace("] ", "]\n") for told in (files, formula)))
    listed = json.loads(cli("graders", "list", "--json")[1])
    assert "same_text" in {item["name"] for item in listed["items"]}
    assert listed["formula"] == "same_text"


@pytest.mark.parametrize("words", [("why", "1"), ("promote", "1"), ("rollback",), ("retire", "1"), ("train",)])
def test_where_there_is_no_version_the_first_step_is_named(cli, words):
    """Every command about versions says what makes the first one."""
    code, _, err = cli(*words)
    assert code == 2
    assert "set [policy] base and run `millstream up`" in err


@pytest.mark.parametrize("messages", ["hello", 3, {"role": "user"}])
def test_a_chat_without_a_list_of_messages_is_told_so(mill, cli, messages):
    """A row that means to be a chat is told what is wrong with it, and not that it is none."""
    (mill.folder / "chat.jsonl").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    code, _, err = cli("import", "chat.jsonl")
    assert code == 4
    told = f"chat.jsonl: row 1: messages is of type {type(messages).__name__}; it must be a list of chat messages\n"
    assert err == told


@pytest.mark.parametrize("name", ["graders.txt", "graders", "graders.ndjson"])
def test_a_file_of_no_graders_is_told_by_its_ending(mill, cli, name):
    """By the command that tries it, and where the settings name it: with the endings that are read."""
    (mill.folder / name).write_text("import millstream as ms", encoding="utf-8")
    mill.settings(f'[graders]\nfiles = ["{name}"]\n')
    for words in (("graders", "test", name), ("graders", "list"), ("up", "--until-idle")):
        code, _, err = cli(*words)
        assert code == 2
        assert name in err
        assert "graders end in .py, judges in .toml, hosted ones in .json" in err


def test_dead_letters_are_listed_with_a_time_that_people_read(mill, cli):
    """The table says when in ISO; the document keeps milliseconds."""
    cli("feedback", "--response", "nobody", "--value", "1")
    cli("up", "--until-idle")
    _, out, err = cli("dead-letters", "list")
    assert err == "1 dead letter\n"
    head, line = out.splitlines()
    told = json.loads(cli("dead-letters", "list", "--json")[1])["items"][0]["log_ms"]
    assert "log_ms" not in head
    assert iso(told) in line
