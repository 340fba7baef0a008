"""The sections of the report that are read rather than looked at: grades, a run, the books, commands."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.console.markup import Child, Markup, clip, join, tag
from millstream.console.report_data import ReportAudit, ReportGrades, Story, StoryGrade, StoryStep
from millstream.console.report_parts import table

TEXT_LIMIT = 2000
"""Characters of one text that are shown."""


def grades(found: ReportGrades) -> Markup:
    """All grades by kind, and why some are no scores."""
    counts: list[list[Child]] = [
        [kind, f"{count:,}", what]
        for kind, count, what in (
            ("scored", found.scored, "a number: the only kind that reaches a mean, a reward or a gate"),
            ("failed", found.failed, "the grader could not do its work; never a 0"),
            ("abstained", found.abstained, "the grader had nothing to say"),
            ("censored", found.censored, "telemetry or infrastructure cut the run short"),
        )
    ]
    reasons: list[list[Child]] = [
        [grader, kind, clip(reason, 160), f"{count:,}"] for grader, kind, reason, count in found.reasons
    ]
    return join(
        table("Every grade that was given", ("kind", "grades", "what it means"), counts, numbers=(1,)),
        table("Why a grade is no score", ("grader", "kind", "reason", "grades"), reasons, numbers=(3,))
        if reasons
        else None,
    )


def run(story: Story) -> Markup:
    """The question, each step, the answer and the grades."""
    version = f" by version {story.policy_version}" if story.policy_version is not None else ""
    about = f"A {story.status} run{version}, "
    reward = f" Its reward is {story.reward:.3f}." if story.reward is not None else ""
    answer = join(
        tag("p", tag("strong", "Answer: "), _says(story.answer) if story.answer else tag("em", "none")),
        tag("p", tag("strong", "Reference: "), _says(story.reference)) if story.reference else None,
    )
    rows: list[list[Child]] = [_grade_row(g) for g in story.grades]
    return join(
        tag("p", about, tag("code", story.trajectory_id), ".", reward),
        tag("ol", [_story_step(step) for step in story.steps], class_="story"),
        answer,
        table("Its grades", ("grader", "status", "score", "reason"), rows, numbers=(2,)) if rows else None,
    )


def _grade_row(grade: StoryGrade) -> list[Child]:
    return [grade.grader, grade.status, "–" if grade.score is None else f"{grade.score:g}", clip(grade.reason, 300)]


def _says(text: str) -> Markup:
    return tag("bdi", clip(text, TEXT_LIMIT))


_WHO = {"task": "Task", "policy": "Policy", "tool": "Tool", "end": "End"}


def _story_step(step: StoryStep) -> Markup:
    who = _WHO.get(step.who, "Policy")
    kind = (
        f"{who} calls"
        if step.call
        else f"{who} fails"
        if step.failed
        else f"{who} answers"
        if step.who == "tool"
        else who
    )
    style = "failed" if step.failed else step.who if step.who in _WHO else "policy"
    return tag(
        "li",
        tag("span", kind, class_="who"),
        tag("p", _says(step.thought), class_="says thought") if step.thought else None,
        tag("pre", tag("code", clip(step.call, TEXT_LIMIT))) if step.call else None,
        _text(step) if step.text else None,
        class_=style,
    )


def _text(step: StoryStep) -> Markup:
    if step.who == "tool":
        return tag("pre", _says(step.text))
    return tag("p", _says(step.text), class_="says")


def books(audit: ReportAudit) -> Markup:
    """Whether the books balance, what is wrong, and their lines."""
    told = "✓ The books balance: every event is in one place." if audit.balanced else "✗ The books do not balance."
    rows: list[list[Child]] = [[what, f"{count:,}"] for what, count in audit.lines]
    return join(
        tag("div", tag("p", told), class_=f"books {'good' if audit.balanced else 'bad'}"),
        tag("ul", [tag("li", problem) for problem in audit.problems]) if audit.problems else None,
        table("Counted from the log", ("", "count"), rows, numbers=(1,)) if rows else None,
    )


def commands(found: Sequence[tuple[str, str]]) -> Markup:
    """What to type next."""
    return tag(
        "dl",
        [tag("div", tag("dt", tag("code", command)), tag("dd", what)) for command, what in found],
        class_="commands",
    )
