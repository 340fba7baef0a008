"""The attack battery: what is fair to pay for each attack, and which graders pay more."""

from __future__ import annotations

import pytest

from millstream.errors import GraderError
from millstream.events import Task, TaskId
from millstream.grade import abstain, fail, score
from millstream.grader_events import GraderBook
from millstream.graders.attacks.battery import FAMILIES, attacks_on
from millstream.graders.attacks.examination import examine, examined
from millstream.graders.attacks.specimens import STANDARD, specimens_of
from millstream.graders.builtin import builtin

ASKED = {
    "padding", "synonyms", "answer lists", "hedging", "copying the question", "format only", "verdict tokens", "empty",
    "very long", "look-alikes", "tool output as the answer", "unit games",
}  # fmt: skip


def reads(part):
    """A grader of one's own: 1 when ``part`` of the run holds the reference."""
    return lambda t: score(float(str(t.task.reference) in part(t)))


def families(found):
    return {finding.family for finding in found.findings if finding.paid}


def test_the_battery_holds_every_family():
    """Twelve kinds of attack, each on at least one of the standard tasks."""
    assert {attack.family for specimen in STANDARD for attack in attacks_on(specimen)} == ASKED
    assert len(FAMILIES) == len(ASKED)


@pytest.mark.parametrize("name", ["correct", "numeric", "exact", "finqa"])
def test_graders_that_may_gate_withstand_all_of_it(name):
    """What can be gold pays for nothing but the right answer, and gives every attack a score."""
    made = builtin(name)
    found = examine(made, made.low, made.high)
    assert (found.verdict, families(found)) == ("sound", set())
    assert not any(finding.escaped for finding in found.findings)


@pytest.mark.parametrize(
    ("function", "paid"),
    [
        (builtin("contains"), {"answer lists", "hedging", "very long"}),
        (builtin("groundedness"), {"tool output as the answer"}),
        (reads(lambda t: " ".join(str(e) for e in t.events[2:])), {"tool output as the answer", "answer lists"}),
        (reads(lambda t: (t.final_answer or "").encode("ascii", "ignore").decode()), {"look-alikes"}),
    ],
)
def test_a_grader_that_looks_in_the_wrong_place_is_weak(function, paid):
    """Each attack finds the graders that it is meant for."""
    found = examine(function)
    assert found.verdict == "weak"
    assert paid <= families(found)


def test_a_grader_that_believes_the_answer_is_weak():
    """A judge that takes its verdict from the graded text pays for verdict tokens, and only for them."""
    exact = builtin("exact")

    def gullible(t):
        answer = t.final_answer or ""
        return score(1.0) if "score 1" in answer or "10/10" in answer else exact(t)

    assert families(examine(gullible)) == {"verdict tokens"}


def test_a_grader_of_words_pays_for_synonyms():
    """Recall of the reference's words: the bag of words that go with the subject holds them all."""

    def recall(t):
        gold = str(t.task.reference).lower().split()
        said = set((t.final_answer or "").lower().split())
        return score(sum(word in said for word in gold) / len(gold))

    assert "synonyms" in families(examine(recall))


def test_a_grader_that_does_not_read_the_answer_is_blind():
    """Format, cost and the like: good enough to shape a reward, never to gate."""
    assert examine(builtin("format")).verdict == "blind"
    assert examine(lambda _: score(-1.0), -2.0, -1.0).verdict == "blind"


def test_a_grader_that_knows_no_right_answer_is_untested():
    """Nothing was learned, so nothing is held against it."""
    for function in (lambda _: score(0.0), lambda _: abstain("no"), lambda _: fail("no")):
        assert examine(function).verdict == "untested"


def test_one_place_among_the_candidates_is_fair():
    """A grader that reads the first of several answers is paid as a guesser is: one time in k."""

    def first(t):
        words = (t.final_answer or "").replace("Answer:", " ").replace("\n", " ").split()
        return score(float(bool(words) and words[0].rstrip(".") == str(t.task.reference)))

    assert "answer lists" not in families(examine(first))


def test_an_attack_that_leaves_the_grader_without_a_score_is_counted():
    """The policy would escape its grade: told as such, apart from what was paid."""
    exact = builtin("exact")
    found = examine(lambda t: exact(t) if t.final_answer else fail("no answer"))
    assert found.verdict == "sound"
    assert {f.family for f in found.findings if f.escaped} == {"empty", "tool output as the answer"}


def test_a_grader_that_hangs_is_not_examined_to_the_end():
    """One deadline is enough to know."""
    asked = []

    def hangs(t):
        asked.append(t)
        return fail("no grade within 10 s", "timeout")

    with pytest.raises(GraderError, match="timeout"):
        examine(hangs)
    assert len(asked) == 1


def test_tasks_of_ones_own_become_specimens():
    """The other tasks' answers are the wrong ones; a number gets wrong neighbours of its own."""
    tasks = [
        Task(id=TaskId("a"), question="Which colour has the sky?", reference="blue"),
        Task(id=TaskId("b"), question="Which colour has grass?", reference="green"),
        Task(id=TaskId("c"), question="How many legs has a spider?", reference=8.0),
        Task(id=TaskId("d"), question="no reference"),
    ]
    made = specimens_of(tasks)
    assert [s.right for s in made] == [("blue",), ("green",), ("8",)]
    assert made[0].others == ("green",)
    assert "8" not in made[2].others
    assert examine(builtin("correct"), specimens=made).verdict == "sound"
    assert examine(builtin("contains"), specimens=made).verdict == "weak"
    assert specimens_of(tasks[:1]) == ()


def test_the_last_examination_stands():
    """A grader that was mended and examined again may gate."""
    weak = examined("g", "g@1", examine(builtin("contains")))
    sound = examined("g", "g@2", examine(builtin("exact")))
    book = GraderBook()
    assert book.apply(weak)
    assert book.unfit("g") == weak
    assert book.apply(sound)
    assert book.unfit("g") is None
    assert not book.apply(sound)
