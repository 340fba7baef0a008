"""Judges as people run them: in the stream against a server, ranked and recorded, regraded when the judge is back."""

import json
import re

from services.chat import Chat

JUDGES = """
[helpful]
kind = "score"
criteria = "Is it right?"

[order]
kind = "ranking"
criteria = "The better answer."
"""
SETTINGS = """
[judge]
base_url = "{url}"
model = "judge"
retries = 0
[graders]
enabled = ["feedback"]
files = ["judges.toml"]
[reward]
formula = "helpful + feedback.order"
high = 2.0
"""


def answer(body):
    """Half a point for each answer; a ranking in the order of the alphabet."""
    text = body["messages"][-1]["content"]
    shown = re.findall(r"# Answer \d+\n<graded id=\"\w+\">\n(.*)", text)
    if not shown:
        return json.dumps({"reason": "fine", "result": 0.5})
    return json.dumps({"reason": "alphabet", "order": sorted(range(1, len(shown) + 1), key=lambda n: shown[n - 1])})


def test_a_judge_that_was_down_regrades_and_a_ranking_becomes_feedback(mill, chat, examples):
    """Six runs: failed by infrastructure while the judge is away, scored by the model's epoch when it is back,
    ranked within their tasks, and the reward follows from both.
    """
    (mill.folder / "judges.toml").write_text(JUDGES)
    mill.settings(SETTINGS.format(url=chat.url))
    chat.script(503)
    mill.run("import", examples / "runs.ndjson")
    assert mill.run("up", "--until-idle").returncode == 0
    rows = [row for row in mill.json("grades", "list")["items"] if row["grader"] == "helpful"]
    assert [(row["status"], row["kind"]) for row in rows] == [("failed", "infrastructure")] * 6
    chat.script(answer)
    found = mill.json("regrade", "--grader", "helpful")
    assert found["regraded"] == 6
    rows = [row for row in mill.json("grades", "list")["items"] if row["grader"] == "helpful"]
    scored = [row for row in rows if row["status"] == "scored"]
    assert {(row["score"], "+scripted-judge" in row["epoch"]) for row in scored} == {(0.5, True)}
    assert mill.json("regrade", "--grader", "helpful")["regraded"] == 0
    ranks = mill.json("graders", "rank", "order", "--record")
    assert ranks["total"] == 3
    assert sorted(place["score"] for group in ranks["items"] for place in group["places"]) == [0, 0, 0, 1, 1, 1]
    mill.json("graders", "rank", "order", "--record")
    assert mill.run("up", "--until-idle").returncode == 0
    feedback = [row for row in mill.json("grades", "list")["items"] if row["grader"] == "feedback.order"]
    assert len({row["id"] for row in feedback}) == 6
    assert {row["source"] for row in feedback} == {"judge"}
    assert mill.json("audit", "--wait", "30")["balanced"] is True
    rewards = sorted(row["reward"] for row in mill.json("rollouts", "list")["items"] if row.get("reward") is not None)
    assert rewards[-1] == 1.5


def test_a_judge_that_goes_down_and_comes_back_is_asked_again_by_itself(mill, examples, wait_until):
    """Its server is gone (nothing listens), then there again: the running `up` grades what it missed, once, and the
    reward, the buffer and the books follow, without a command.
    """
    (mill.folder / "judges.toml").write_text(JUDGES)
    first = Chat()
    port = int(first.url.split(":")[2].split("/")[0])
    mill.settings(
        SETTINGS.format(url=first.url)
        .replace("helpful + feedback.order", "helpful")
        .replace("[graders]", "[graders]\nretry_s = 0.5")
    )
    first.close()

    def grades():
        return [row for row in mill.json("grades", "list")["items"] if row["grader"] == "helpful"]

    def rewards():
        return {row["reward"] for row in mill.json("rollouts", "list")["items"] if row.get("reward") is not None}

    with mill.up():
        mill.run("import", examples / "runs.ndjson")
        wait_until(lambda: len(grades()) >= 6, "nothing was graded")
        assert {(row["status"], row.get("kind")) for row in grades()} == {("failed", "infrastructure")}
        assert rewards() == set()
        second = Chat(port)
        try:
            second.script(answer)
            wait_until(
                lambda: sum(row["status"] == "scored" for row in grades()) == 6, "what was missed was not graded"
            )
            wait_until(lambda: rewards() == {0.5}, "the rewards did not follow")
        finally:
            second.close()
        assert len(second.asked) == 6
    assert mill.audit()
    counting = [row for row in grades() if row["counts"]]
    assert len(counting) == 6
    assert all(row["status"] == "scored" and row["attempt"] > 1 for row in counting)


def test_rank_without_its_judge_says_what_is_missing(mill):
    """No file of judges, no endpoint."""
    done = mill.run("graders", "rank", "order")
    assert (done.returncode, "names no .toml file" in done.stderr) == (2, True)
    (mill.folder / "judges.toml").write_text(JUDGES)
    mill.settings('[graders]\nfiles = ["judges.toml"]\n')
    done = mill.run("graders", "rank", "order")
    assert (done.returncode, "base_url" in done.stderr) == (2, True)
    done = mill.run("graders", "rank", "ordre")
    assert "did you mean 'order'" in done.stderr
