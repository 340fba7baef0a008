"""Hosted graders run: scores worked out by hand, and every error a Failed grade."""

import pytest

from millstream.errors import GraderError, SettingsError
from millstream.grade import Failed, Scored
from millstream.graders.hosted.parsing import checked
from millstream.graders.hosted.running import run, timed
from millstream.graders.hosted.samples import sample_of
from millstream.graders.hosted.similarity import MAX_PAIRS, similarity
from millstream.graders.hosted.templates import render

ITEM = {"gold": "Paris", "rows": [{"a key": 1}, {"n": None}], "list": [[1, 2]], "flag": True, "{{ item.gold }}": "x"}
STRING = {
    "type": "string_check",
    "name": "s",
    "input": "{{ sample.output_text }}",
    "reference": "{{ item.gold }}",
    "operation": "eq",
}
ONE = {**STRING, "input": "1", "reference": "1"}
ZERO = {**STRING, "input": "0", "reference": "1"}
BROKEN = {**STRING, "input": "{{ item.nowhere }}"}


def multi(formula, **graders):
    return checked({"type": "multi", "name": "m", "graders": graders, "calculate_output": formula})


def values(text="It is Paris", **item):
    return {"item": {**ITEM, **item}, "sample": sample_of(text)}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ item.gold }}", "Paris"),
        ("{{item.gold}} and {{ sample.output_text }}", "Paris and It is Paris"),
        ("{{ item.rows[0]['a key'] }}", "1"),
        ('{{ item.rows.0["a key"] }}', "1"),
        ("{{ item.rows[-1].n }}", "null"),
        ("{{ item.list[0] }}", "[1, 2]"),
        ("{{ item.flag }}", "true"),
        ("{{ sample.choices[0].message.content }}", "It is Paris"),
        ("no variable { } {", "no variable { } {"),
        ("{{ item.gold", "{{ item.gold"),
        ("", ""),
    ],
)
def test_templates_are_filled(template, text):
    """Texts as they are, anything else as JSON; what is no variable stays."""
    assert render(template, values()) == text


def test_what_is_inserted_is_no_template():
    """An answer that holds a template does not read the item."""
    assert render("{{ sample.output_text }}", values("{{ item.gold }}")) == "{{ item.gold }}"


def test_output_json_is_there_when_the_output_is_json():
    """Its fields can be named; NaN is no JSON."""
    assert render("{{ sample.output_json.a[1] }}", values('{"a": [1, 2]}')) == "2"
    assert "output_json" not in sample_of("NaN")
    assert sample_of("3")["output_json"] == 3


@pytest.mark.parametrize(
    ("template", "flag", "told"),
    [
        ("{{ item.golden }}", "invalid_variable_error", "no 'golden' here; did you mean 'gold'?"),
        ("{{ item.rows[2] }}", "invalid_variable_error", "no place 2 in a list of 2"),
        ("{{ item.gold.x }}", "invalid_variable_error", "str has no 'x'"),
        ("{{ sample.output_txt }}", "invalid_variable_error", "did you mean 'output_text'?"),
        ("{{ sample.output_json.a }}", "sample_parse_error", "no 'output_json' here"),
        ("{{ sample.output_audio }}", "invalid_variable_error", "no 'output_audio' here"),
    ],
)
def test_a_path_that_leads_nowhere_fails_the_grade(template, flag, told):
    """Never an empty text, never 0: the flag says which error, the reward is null."""
    outcome, found = timed(checked({**STRING, "input": template}), ITEM, sample_of("It is Paris"))
    assert isinstance(outcome.grade, Failed)
    assert told in outcome.grade.reason
    assert found["reward"] is None
    assert [name for name, on in found["metadata"]["errors"].items() if on] == [flag]


@pytest.mark.parametrize(
    ("operation", "text", "score"),
    [
        ("eq", "Paris", 1),
        ("eq", "paris", 0),
        ("ne", "Paris", 0),
        ("ne", "Rome", 1),
        ("like", "It is Paris.", 1),
        ("like", "It is PARIS.", 0),
        ("ilike", "It is PARIS.", 1),
        ("ilike", "It is Rome.", 0),
    ],
)
def test_string_check(operation, text, score):
    """like: the input contains the reference; ilike: in any case."""
    assert run(checked({**STRING, "operation": operation}), ITEM, sample_of(text)).grade == Scored(score=score)


@pytest.mark.parametrize(
    ("metric", "text", "reference", "score"),
    [
        ("fuzzy_match", "PARIS!", "paris", 1.0),
        ("fuzzy_match", "", "paris", 0.0),
        # unigrams: precision 3/3, recall 3/6, F = 2/3; bigrams: 2/2 and 2/5, F = 4/7; trigrams: 1/1 and 1/4, F = 2/5
        ("rouge_1", "the cat sat", "the cat sat on the mat", 2 / 3),
        ("rouge_2", "the cat sat", "the cat sat on the mat", 4 / 7),
        ("rouge_3", "the cat sat", "the cat sat on the mat", 2 / 5),
        ("rouge_4", "a b c d e", "a b c d x", 1 / 2),
        ("rouge_5", "a b c d e", "a b c d e", 1.0),
        # longest common subsequence "a c": precision 2/3, recall 2/2, F = 4/5
        ("rouge_l", "a b c", "a c", 4 / 5),
        # 1- to 4-grams of 3 words, all 6 matching, against the 18 of 6 words: min(6/6, 6/18)
        ("gleu", "the cat sat", "the cat sat on the mat", 6 / 18),
        # precisions 1, brevity penalty exp(1 - 6/3)
        ("bleu", "the cat sat", "the cat sat on the mat", 0.36787944),
        # one chunk of 2 matches, P = 1, R = 2/4: F = 10PR/(R + 9P) = 5/9.5, penalty .5·(1/2)^3
        ("meteor", "the cat", "the cat is here", 5 / 9.5 * (1 - 0.5 / 8)),
        ("meteor", "running", "runs", 0.5),
        ("bleu", "Paris", "Paris", 1.0),
        ("bleu", "", "Paris", 0.0),
        ("gleu", "", "", 1.0),
        ("meteor", "dogs", "cats", 0.0),
    ],
)
def test_similarities_worked_out_by_hand(metric, text, reference, score):
    """Each metric on words few enough to count."""
    assert similarity(metric, text, reference) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("metric", ["meteor", "rouge_l"])
def test_long_texts_are_refused_by_slow_metrics(metric):
    """Quadratic time on a long answer fails that grade rather than holding up the stream."""
    long = "a " * int(MAX_PAIRS**0.5 + 10)
    with pytest.raises(GraderError, match="pairs of words"):
        similarity(metric, long, long)


def test_cosine_has_no_measure():
    """It is told apart from an unknown metric."""
    with pytest.raises(GraderError, match="evals only"):
        similarity("cosine", "a", "a")


@pytest.mark.parametrize(
    ("formula", "score"),
    [
        ("0.5*a + 0.5*b", 0.5),
        ("min(a, b)", 0.0),
        ("max(a, b, 2)^2", 4.0),
        ("-2^2 + a", -3.0),
        ("abs(b - a) + floor(1.7) + ceil(0.2)", 3.0),
        ("exp(b) + sqrt(4) + log(a)", 3.0),
        ("(a + b) / (a + a)", 0.5),
    ],
)
def test_formulas(formula, score):
    """The operators and functions of calculate_output, a = 1 and b = 0."""
    outcome = run(multi(formula, a=ONE, b=ZERO), {}, sample_of(""))
    assert outcome.grade == Scored(score=score)
    assert outcome.parts == {"a": Scored(score=1.0), "b": Scored(score=0.0)}


@pytest.mark.parametrize("formula", ["a / b", "log(b)", "sqrt(b - a)", "exp(a * 1000)", "exp(700) * exp(700) * a"])
def test_arithmetic_without_a_result_is_failed(formula):
    """A division by zero, a logarithm of zero, an overflow: no number, and a flag."""
    outcome, found = timed(multi(formula, a=ONE, b=ZERO), {}, sample_of(""))
    assert isinstance(outcome.grade, Failed)
    assert found["reward"] is None
    assert found["metadata"]["errors"]["other_error"] is True


def test_a_failed_part_fails_the_whole():
    """The formula never sees a stand-in; the other parts are told."""
    outcome, found = timed(multi("a + broken", a=ONE, broken=BROKEN), {}, sample_of(""))
    assert isinstance(outcome.grade, Failed)
    assert outcome.grade.reason.startswith("broken: ")
    assert found["sub_rewards"] == {"a": 1.0, "broken": None}


def test_a_failed_part_that_no_formula_names_sets_its_flag_alone():
    """The reward stands, and the error is not hidden."""
    outcome, found = timed(multi("a", a=ONE, broken=BROKEN), {}, sample_of(""))
    assert found["reward"] == 1.0
    assert outcome.flags.keys() == {"invalid_variable_error"}


@pytest.mark.parametrize(
    ("body", "flag", "told"),
    [
        (
            {"type": "score_model", "model": "gpt", "input": [{"role": "user", "content": "x"}]},
            "model_grader_server_error",
            "there is no judge",
        ),
        (
            {
                "type": "label_model",
                "model": "gpt",
                "input": [{"role": "user", "content": "x"}],
                "labels": ["a"],
                "passing_labels": ["a"],
            },
            "model_grader_server_error",
            "there is no judge",
        ),
        (
            {"type": "python", "source": "def grade(sample, item): ..."},
            "python_grader_server_error",
            "in a sandbox only",
        ),
        ({"type": "endpoint", "url": "https://example.org"}, "other_error", "names the URLs that may be asked"),
    ],
)
def test_what_cannot_be_run_yet_says_why(body, flag, told):
    """Failed by infrastructure, with the reason; nothing is guessed and no code is run."""
    outcome, found = timed(checked({"name": "x", **body}), {}, sample_of(""))
    assert isinstance(outcome.grade, Failed)
    assert outcome.grade.kind == "infrastructure"
    assert told in outcome.grade.reason
    assert found["reward"] is None
    assert found["metadata"]["errors"][flag] is True


def test_a_bad_template_never_reaches_a_run():
    """An unknown namespace is refused when the grader is read."""
    with pytest.raises(SettingsError, match="no namespace"):
        checked({**STRING, "input": "{{ env.HOME }}"})
