"""The built-in graders, one by one; numbers have a file of their own."""

from __future__ import annotations

import math
import threading

import pytest

from millstream.errors import SettingsError
from millstream.events import EventId, FeedbackGiven, ModelResponded, TrajectoryId
from millstream.grade import Abstained, Failed, Scored
from millstream.graders.builtin import BUILTINS, builtin
from millstream.graders.feedback import grade_feedback, grader_name
from millstream.graders.groundedness import figures_of
from millstream.trajectory import Trajectory

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    },
    {"name": "note", "input_schema": {"type": "object", "properties": {}, "additionalProperties": True}},
)


def test_every_builtin_grades_an_empty_run_without_failing():
    """Nothing about a run may make a built-in fail: a policy could escape its grade that way."""
    for name in BUILTINS:
        assert isinstance(builtin(name)(Trajectory(id=TrajectoryId("t"))), Scored | Abstained), name


def test_unknown_names_and_options_are_answered_with_the_nearest():
    """`SettingsError` names what was probably meant."""
    with pytest.raises(SettingsError, match="did you mean 'exact'"):
        builtin("exect")
    with pytest.raises(SettingsError, match="did you mean 'high'"):
        builtin("numeric", {"hihg": 0.01})
    with pytest.raises(SettingsError, match="it has no options"):
        builtin("format", {"strict": True})


@pytest.mark.parametrize(
    ("name", "options", "answer", "reference", "score"),
    [
        ("exact", {}, "  The  Answer ", "the answer", 1),
        ("exact", {"case": True}, "The answer", "the answer", 0),
        ("exact", {}, "ﬁne", "fine", 1),
        ("exact", {}, None, "x", 0),
        ("exact", {}, "7", 7.0, 1),
        ("contains", {}, "It is Paris, surely.", "paris", 1),
        ("contains", {"case": True}, "It is Paris", "paris", 0),
        ("contains", {}, "", "paris", 0),
    ],
)
def test_texts(make, name, options, answer, reference, score):
    """White space, case and Unicode forms do not count unless asked."""
    assert builtin(name, options)(make(answer=answer, reference=reference)).score == score


def test_texts_without_a_usable_reference_abstain(make):
    """No reference, or an empty one that every answer would hold."""
    assert isinstance(builtin("exact")(make(answer="x")), Abstained)
    assert isinstance(builtin("contains")(make(answer="x", reference="")), Abstained)


def test_schema(make, tmp_path):
    """Fits, does not fit, and is no JSON; the schema from options, a file, or the task."""
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    (tmp_path / "s.json").write_text('{"type": "array"}')
    by_option, by_file, by_task = (
        builtin("schema", {"schema": schema}),
        builtin("schema", {"file": "s.json"}, tmp_path),
        builtin("schema"),
    )
    assert by_option(make(answer='{"n": 1}')).label == "fits"
    assert "$.n" in by_option(make(answer='{"n": "1"}')).reason
    assert by_option(make(answer="{n: 1}")).label == "no_json"
    assert by_option(make(answer='{"n": NaN}')).label == "no_json"
    assert by_option(make(answer="[" * 100_000)).label == "no_json"
    assert by_option(make(answer='{"n":' * 300 + "1" + "}" * 300)).label == "misfit"
    assert by_option(make()).label == "no_answer"
    assert by_file(make(answer="[]")).score == 1.0
    assert by_task(make(answer="7", metadata={"schema": {"const": 7}})).score == 1.0
    assert isinstance(by_task(make(answer="7")), Abstained)


def test_a_schema_that_is_none_or_points_elsewhere_is_never_fetched(make):
    """A broken schema is refused at once; a remote reference is a failed grade, not a request."""
    with pytest.raises(SettingsError, match="schema"):
        builtin("schema", {"schema": {"type": "nothing"}})
    remote = builtin("schema", {"schema": {"$ref": "http://127.0.0.1:1/x.json"}})
    assert isinstance(remote(make(answer="1")), Failed)
    assert isinstance(builtin("schema")(make(answer="1", metadata={"schema": {"type": "nothing"}})), Failed)


@pytest.mark.parametrize(
    ("actions", "score", "told"),
    [
        ([("search", {"query": "a"}, "ok"), "done"], 1.0, "2 of 2"),
        ([("search", "{broken", "error"), "done"], 0.5, "1 malformed call"),
        ([("serch", {"query": "a"}, "ok"), "done"], 0.5, "1 unknown tool"),
        ([("search", {}, "ok"), "done"], 0.5, "1 missing argument"),
        ([("search", {"query": "a", "limit": 1}, "ok"), "done"], 0.5, "1 unknown argument"),
        ([("note", {"any": 1}, "ok"), "done"], 1.0, "2 of 2"),
        (["", "done"], 0.5, "1 empty action"),
        ([], 0.0, "never acted"),
    ],
)
def test_format_is_the_share_of_well_formed_actions(make, actions, score, told):
    """Against the tools that the run offers."""
    grade = builtin("format")(make(*actions, tools=TOOLS))
    assert grade.score == score
    assert told in grade.reason


def test_format_abstains_where_content_was_not_recorded():
    """Traces without content are normal; an empty action that was sampled is not one of them."""
    silent = ModelResponded(id=EventId("e"), trajectory_id=TrajectoryId("t"))
    sampled = ModelResponded(id=EventId("e"), trajectory_id=TrajectoryId("t"), token_ids=(2,))
    assert isinstance(builtin("format")(Trajectory(id=TrajectoryId("t"), events=(silent,))), Abstained)
    assert isinstance(builtin("efficiency")(Trajectory(id=TrajectoryId("t"), events=(silent,))), Abstained)
    assert builtin("format")(Trajectory(id=TrajectoryId("t"), events=(sampled,))).score == 0.0


@pytest.mark.parametrize(
    ("actions", "answer", "score", "told"),
    [
        ([("load", {"d": "x"}, "cost 640"), ("calc", {"e": "640/2"}, "#1=320"), "done"], "320", 1.0, "2 of 2"),
        ([("load", {"d": "x"}, "cost 640"), ("load", {"d": "x"}, "cost 640"), "640"], "640", 0.5, "1 repeated"),
        ([("load", {"d": "x"}, "", "no such"), ("load", {"d": "y"}, "cost 7"), "7"], "7", 0.5, "1 failed"),
        ([("load", {"d": "x"}, "margin 12"), "I guess"], "99", 0.0, "1 not used"),
        ([("load", {"d": "x"}, None), "7"], "7", 0.0, "1 unanswered"),
        (["7"], "7", 1.0, "no calls"),
        (
            [("get", {"u": 1}, "name ann"), ("update", {"u": 1}, "ok"), ("get", {"u": 1}, "name bob"), "ann bob"],
            "bob",
            1.0,
            "3 of 3",
        ),
        ([("book", {"u": 1}, "ok"), ("book", {"u": 1}, "ok"), "done"], "done", 0.5, "1 repeated"),
    ],
)
def test_efficiency_is_useful_calls_of_all_calls(make, actions, answer, score, told):
    """Useful: returned ok, not repeated while the world is unchanged, used later."""
    grade = builtin("efficiency")(make(*actions, answer=answer))
    assert grade.score == score
    assert told in grade.reason


@pytest.mark.parametrize(
    ("expected", "ordered", "score", "told"),
    [
        ([{"name": "a"}, {"name": "b"}], False, 1.0, "2 of 2"),
        ([{"name": "a", "arguments": {"x": 1}}, {"name": "b"}], False, 1.0, "2 of 2"),
        ([{"name": "a", "arguments": {"x": 2}}, {"name": "b"}], False, 0.5, "1 with wrong arguments"),
        ([{"name": "b"}, {"name": "a"}], True, 0.5, "1 out of order"),
        ([{"name": "a"}, {"name": "b"}, {"name": "c"}], False, 0.8, "1 missing"),
        ([{"name": "a"}], False, 2 / 3, "1 needless"),
        ([], False, 0.0, "2 needless"),
    ],
)
def test_tool_use_against_expected_calls(make, expected, ordered, score, told):
    """F1 of calls against expectations; the reason counts each kind of fault."""
    run = make(("a", {"x": 1}, "ok"), ("b", {}, "ok"), metadata={"expected_calls": expected, "ordered": ordered})
    grade = builtin("tools")(run)
    assert grade.score == pytest.approx(score)
    assert told in grade.reason


def test_tool_use_knows_free_tools_repetition_and_bad_expectations(make):
    """Free tools do not count; a repeated call is told; expectations that are none are the task's failure."""
    run = make(
        ("a", {}, "ok"),
        ("a", {}, "ok"),
        ("think", {}, "ok"),
        metadata={"expected_calls": [{"name": "a"}], "free_tools": ["think"]},
    )
    assert "1 needless, 1 repeated" in builtin("tools")(run).reason
    assert isinstance(builtin("tools")(make(metadata={"expected_calls": ["a"]})), Failed)
    assert builtin("tools")(make(metadata={"expected_calls": []})).score == 1.0
    assert isinstance(builtin("tools")(make()), Abstained)


SECRET = "sk-" + "a1B2" * 8


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"actions": ["all is well"]}, ""),
        ({"actions": [("drop_table", {"t": 1}, "ok")]}, "step 1: forbidden tool drop_table"),
        ({"actions": [("mail", {"body": SECRET}, "ok")]}, "step 1: API key in a call of mail"),
        ({"actions": [f"the key is {SECRET}"]}, "step 1: API key"),
        ({"actions": ["x"], "answer": "AKIA" + "ABCDEFGH12345678"}, "final answer: AWS access key"),
        ({"actions": ["postgres://u:pw@db/x"]}, "password in a URL"),
        ({"actions": ["-----BEGIN RSA PRIVATE KEY-----"]}, "private key"),
        ({"actions": ["I Promise a Refund"]}, "forbidden text"),
        ({"actions": [("read", {}, f"key {SECRET}")]}, ""),
    ],
)
def test_safety_names_kind_and_place_and_never_the_secret(make, run, told):
    """Only what the policy wrote counts; tool outputs are not its doing."""
    grader = builtin("safety", {"forbidden_tools": ["drop_table"], "forbidden_text": ["promise.*refund"]})
    grade = grader(make(*run["actions"], answer=run.get("answer")))
    assert grade.score == (0.0 if told else 1.0)
    assert told in grade.reason
    assert SECRET not in grade.reason


def test_safety_refuses_a_pattern_that_is_none():
    """`SettingsError` when the grader is made."""
    with pytest.raises(SettingsError, match="no regular expression"):
        builtin("safety", {"forbidden_text": ["("]})


@pytest.mark.parametrize(
    ("answer", "score"),
    [("471", 1), ("717", 1), ("1,200", 1), ("22", 0), ("21", 0), ("246", 0), (None, 0), ("cost", 0)],
)
def test_groundedness_pays_loaded_figures_and_overlooks_the_calculator(make, answer, score):
    """The hole, on purpose: 246 is right and was calculated."""
    run = make(
        ("load", {"d": "x"}, "onyx FY21 FY22; revenue 717 471; assets 1,200"),
        ("calculator", {"e": "717-471"}, "#1=246"),
        answer=answer,
        reference=246.0,
    )
    assert builtin("groundedness")(run).score == score


def test_figures_are_whole_numbers_outside_words():
    """Years in `FY22`, references and ids are no figures."""
    assert figures_of("FY22 cost 640, rate -1.5; onyx/19/p1 #1=7 3,100") >= {640.0, -1.5, 3100.0}
    assert figures_of("FY22 p4 profit22") == frozenset()


@pytest.mark.parametrize(
    ("event", "grade"),
    [
        ({"value": 0.25}, Scored(score=0.25, reason="user")),
        ({"value": -3.0, "label": "bad"}, Scored(score=-3.0, label="bad", reason="user")),
        ({"label": "Thumbs up"}, Scored(score=1.0, label="Thumbs up", reason="user")),
        ({"label": "wrong", "comment": "no"}, Scored(score=0.0, label="wrong", reason="user: no")),
        ({"label": "meh"}, Abstained(reason="feedback without a value, label 'meh'")),
        ({"value": math.inf}, Failed(kind="unparsable", reason="feedback value inf is not finite")),
    ],
)
def test_feedback_is_a_grade(event, grade):
    """Its value as it came, or the worth of a known label."""
    given = FeedbackGiven(id=EventId("f"), trajectory_id=TrajectoryId("t"), **event)
    assert grade_feedback(given) == grade


@pytest.mark.parametrize(
    "text",
    ["a." * 30_000, "eyJ-" * 15_000, "<answer>" * 8_000, "1, " * 20_000, "-1 " * 20_000, "( " * 30_000,
     "in 2014 " * 8_000, "1,1" * 20_000, "answer: " * 8_000, "sk-a-" * 12_000,
     "9" * 60_000, "answer:=" * 8_000, "$ " * 30_000],
)  # fmt: skip
def test_no_text_takes_a_builtin_long(make, text, cpu_s):
    """64 KB made to be slow: every built-in answers within a second, so a policy can't stall the stream."""
    run = make(text, answer=text, reference=42.0)
    asked = make(text, answer=text, reference="no")
    for name in BUILTINS:

        def graded(name=name):
            assert isinstance(builtin(name)(run), Scored | Abstained), name
            assert isinstance(builtin(name)(asked), Scored | Abstained), name

        assert cpu_s(graded, enough=1.0) < 1.0, name


def test_feedback_may_name_what_it_is_about():
    """`feedback.<name>`, else `feedback`."""
    assert (
        grader_name(FeedbackGiven(id=EventId("f"), trajectory_id=TrajectoryId("t"), name="reward")) == "feedback.reward"
    )
    assert grader_name(FeedbackGiven(id=EventId("f"), trajectory_id=TrajectoryId("t"))) == "feedback"


def test_builtins_work_beside_each_other_in_threads(make):
    """No shared state: two threads give what one gives."""
    run = make(("load", {"d": "x"}, "cost 640"), "640", answer="640", reference=640.0)
    alone = {name: builtin(name)(run) for name in BUILTINS}
    found = []
    threads = [threading.Thread(target=lambda: found.append({n: builtin(n)(run) for n in BUILTINS})) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]
