"""The attack battery is fair: on whatever tasks people have, graders that hold are never called weak."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.events import Task, TaskId
from millstream.graders.attacks.examination import examine
from millstream.graders.attacks.specimens import specimens_of
from millstream.graders.builtin import builtin

REFERENCES = (
    st.floats() | st.integers(-10**6, 10**6).map(float) | st.text(max_size=30)
    | st.sampled_from(["yes", "No", "12.36", "$1,234", "30%", "(5)", "Paris", "paris", "1e400", "\u200b", '{"a": 1}'])
)  # fmt: skip
QUESTIONS = st.sampled_from(["", "Which?", "How many of 12?", "Is it yes or no?", "Paris or Rome?"]) | st.text(
    max_size=40
)
TASKS = st.lists(
    st.builds(lambda q, r: Task(id=TaskId("t"), question=q, reference=r), QUESTIONS, REFERENCES), max_size=5
)


@settings(max_examples=40)
@given(TASKS)
@example([Task(id=TaskId("t"), question="Is it yes or no?", reference="YES")])  # the question's word is the answer
@example([Task(id=TaskId("t"), question="Paris", reference="paris"), Task(id=TaskId("u"), reference="Rome")])
def test_graders_that_hold_are_never_called_weak(tasks):
    """Exact comparison and the number rules: sound, or untested where nothing can be asked."""
    specimens = specimens_of(tasks)
    for specimen in specimens:
        assert specimen.wrong in specimen.others
        assert specimen.right[0] not in specimen.others
    for name in ("exact", "numeric", "correct"):
        found = examine(builtin(name), specimens=specimens)
        assert found.verdict in ("sound", "untested"), (name, found.reason, specimens)
