"""Asking a judge over real HTTP: faults are repeated or named, and nothing becomes a number that was not given."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs
from services.chat import MODEL, cut_short, hang_up, silent, trickle

from millstream.errors import SettingsError
from millstream.graders.judges.judge import CACHED, GUESSED, REPEATED, JudgeFault, Question, checked
from millstream.graders.judges.reading import number
from millstream.settings import JudgeSettings

GOOD = '{"result": 0.5}'


def read(reply):
    return number(reply, 0, 1).value


def test_a_verdict_with_what_it_took(chat, judge_of, question):
    """The value, the model that answered by its own name, tokens and cost at the settings' prices."""
    chat.script(GOOD)
    verdict = judge_of(price_input=1.0, price_output=10.0).ask(question, read)
    assert (verdict.value, verdict.spent.model, verdict.spent.tokens) == (0.5, MODEL, 120)
    assert verdict.spent.cost == pytest.approx(100e-6 + 200e-6)
    assert chat.headers[0]["Authorization"] == "Bearer the-key"


def test_the_settings_name_another_model(chat, judge_of, question):
    """One endpoint may serve all graders, whatever model they name."""
    chat.script(GOOD)
    judge_of(model="ours").ask(question, read)
    assert chat.asked[0]["model"] == "ours"


@pytest.mark.parametrize("fault", [429, 500, 502, 503, 529, 408, hang_up, cut_short, {"body": "<html>busy</html>"}])
def test_an_endpoint_that_is_away_is_asked_again(chat, judge_of, question, waits, fault):
    """With waits that grow, and the verdict of the last call."""
    chat.script(fault, fault, GOOD)
    assert judge_of().ask(question, read).value == 0.5
    assert len(chat.asked) == 3
    assert [0.25 <= w <= 1.0 for w in waits] == [True, True]
    assert waits[0] <= 0.5 <= waits[1]


def test_an_endpoint_that_stays_away_is_infrastructure(chat, judge_of, question, waits):
    """After the retries: Failed(infrastructure), which says how often it was asked."""
    chat.script(503)
    with pytest.raises(JudgeFault, match="asked 3 times") as told:
        judge_of(retries=2).ask(question, read)
    assert (told.value.kind, told.value.flag) == ("infrastructure", "model_grader_server_error")
    assert (len(chat.asked), len(waits)) == (3, 2)


def test_nobody_there_is_infrastructure(judge_of, question):
    """A port where nothing listens."""
    with pytest.raises(JudgeFault, match="can't be reached") as told:
        judge_of(base_url="http://127.0.0.1:9/v1", retries=1).ask(question, read)
    assert told.value.kind == "infrastructure"


@pytest.mark.parametrize(("said", "wait"), [("7", 7.0), ("0.5", 0.5), ("9999", 100.0)])
def test_the_wait_that_the_endpoint_asks_for_is_kept(chat, judge_of, question, waits, said, wait):
    """Retry-After wins over our own backoff, unless the deadline comes first."""
    chat.script({"status": 429, "headers": {"Retry-After": said}}, GOOD)
    judge = judge_of(deadline_s=100)
    if wait < 100:
        assert judge.ask(question, read).value == 0.5
        assert waits == [wait]
    else:
        with pytest.raises(JudgeFault):
            judge.ask(question, read)
        assert waits == []


@pytest.mark.parametrize("slow", [silent, trickle])
def test_an_endpoint_that_is_slow_times_out(chat, judge_of, question, slow):
    """Silence and a trickle alike: Failed(timeout) within the deadline."""
    chat.script(slow)
    with pytest.raises(JudgeFault, match="did not answer within") as told:
        judge_of(timeout_s=0.15, retries=1).ask(question, read)
    assert told.value.kind == "timeout"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_question_that_is_rejected_is_not_asked_again(chat, judge_of, question, status):
    """A wrong key or model does not mend itself; the endpoint's words are told, the key is not."""
    chat.script({"status": status, "message": "no such model"})
    with pytest.raises(JudgeFault, match="no such model") as told:
        judge_of().ask(question, read)
    assert (told.value.kind, len(chat.asked)) == ("infrastructure", 1)
    assert "the-key" not in str(told.value)


@pytest.mark.parametrize(
    "reply", ["No verdict: the excerpt is empty.", "[[75]]", '{"result": "0.5"}', '{"result": 2}', "", '{"result": 0.']
)
def test_a_reply_that_cannot_be_read_is_asked_for_again_at_most_n_times(chat, judge_of, question, reply):
    """Then Failed(unparsable); each further question says what was wrong."""
    chat.script(reply)
    with pytest.raises(JudgeFault, match="after 3 replies") as told:
        judge_of(tries=3).ask(question, read)
    assert (told.value.kind, told.value.flag) == ("unparsable", "model_grader_parse_error")
    assert (len(chat.asked), told.value.spent.tokens) == (3, 360)
    assert "could not be used" in chat.asked[1]["messages"][-1]["content"]
    assert len(chat.asked[2]["messages"]) == len(chat.asked[1]["messages"])


def test_a_second_reply_that_can_be_read_counts(chat, judge_of, question):
    """And the grade says that it was asked again; both replies are paid."""
    chat.script("well…", GOOD)
    verdict = judge_of().ask(question, read)
    assert (verdict.value, verdict.spent.notes, verdict.spent.tokens) == (0.5, (REPEATED,), 240)


def test_a_reply_that_was_cut_off_is_none(chat, judge_of, question):
    """Even where a whole verdict stands in it: what followed is unknown."""
    chat.script({"text": GOOD, "finish": "length"})
    with pytest.raises(JudgeFault, match="cut off"):
        judge_of(tries=2).ask(question, read)


@pytest.mark.parametrize("act", [{"refusal": "I can't judge that"}, {"text": GOOD, "finish": "content_filter"}])
def test_a_refusal_is_no_verdict(chat, judge_of, question, act):
    """It has a flag of its own, and is not asked again."""
    chat.script(act)
    with pytest.raises(JudgeFault) as told:
        judge_of().ask(question, read)
    assert (told.value.kind, told.value.flag, len(chat.asked)) == ("unparsable", "model_grader_refusal_error", 1)


def test_an_endpoint_without_schemas_is_found_out_once(chat, judge_of, question):
    """From a schema to any JSON to words alone; later questions begin where it ended."""

    def old(body):
        form = body.get("response_format", {}).get("type")
        return GOOD if form is None else {"status": 400, "message": f"response_format {form} is not supported"}

    chat.script(old)
    judge = judge_of(cache_entries=0)
    assert [judge.ask(question, read).value for _ in range(2)] == [0.5, 0.5]
    forms = [asked.get("response_format", {}).get("type") for asked in chat.asked]
    assert forms == ["json_schema", "json_object", None, None]


def test_a_form_that_the_settings_name_is_kept(chat, judge_of, question):
    """``structured`` other than auto is no guess."""
    chat.script({"status": 400, "message": "response_format is not supported"})
    with pytest.raises(JudgeFault):
        judge_of(structured="json_object").ask(question, read)
    assert len(chat.asked) == 1


def test_the_same_question_is_asked_once(chat, judge_of, question):
    """Its verdict is remembered, also by another process; a hit costs nothing and says so."""
    chat.script(GOOD)
    first = judge_of(price_input=1.0).ask(question, read)
    again = judge_of(price_input=1.0).ask(question, read)
    assert len(chat.asked) == 1
    assert (again.value, again.spent.model) == (first.value, MODEL)
    assert (again.spent.notes, again.spent.cost, again.spent.tokens) == ((CACHED,), 0.0, 0)
    assert judge_of(price_input=1.0, model="another").ask(question, read).spent.notes == ()


def test_what_could_not_be_read_is_not_remembered(chat, judge_of, question):
    """A bad reply is no answer to keep."""
    chat.script("bad")
    with pytest.raises(JudgeFault):
        judge_of(tries=1).ask(question, read)
    chat.script(GOOD)
    assert judge_of().ask(question, read).value == 0.5


def test_tokens_that_are_not_counted_are_guessed_and_said_to_be(chat, judge_of, question):
    """A quarter of the characters, so that a budget holds."""
    chat.script({"text": GOOD, "usage": None})
    spent = judge_of(price_input=1.0).ask(question, read).spent
    assert spent.notes == (GUESSED,)
    assert spent.tokens > len(question.messages[0]["content"]) // 4


def test_so_many_at_once_and_no_more(chat, judge_of):
    """Twelve threads, three places."""
    full, lock, counts = threading.Event(), threading.Lock(), {"now": 0, "most": 0}

    def slow(_):
        with lock:
            counts["now"] += 1
            counts["most"] = max(counts.values())
        if counts["now"] >= 3:
            full.set()
        full.wait(20)
        threading.Event().wait(0.02)  # long enough for a fourth, if there could be one
        with lock:
            counts["now"] -= 1
        return GOOD

    chat.script(slow)
    judge = judge_of(concurrency=3)
    questions = [
        Question(model="m", messages=({"role": "user", "content": str(n)},), schema={}, wants="x") for n in range(12)
    ]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda q: judge.ask(q, read).value, questions)) == [0.5] * 12
    assert counts["most"] == 3


def test_so_many_a_minute(chat, judge_of, waits):
    """Calls begin evenly spread: at 120 a minute each half a second after the one before."""
    chat.script(GOOD)
    judge = judge_of(requests_per_minute=120, cache_entries=0)
    for n in range(4):
        judge.ask(Question(model="m", messages=({"role": "user", "content": str(n)},), schema={}, wants="x"), read)
    assert len(waits) == 3
    assert all(0.5 * n - 0.4 < wait <= 0.5 * n for n, wait in enumerate(waits, 1))


def test_a_budget_that_is_spent_ends_the_asking(chat, judge_of, question):
    """Nothing is asked beyond it, and the fault says why; what was remembered is still given."""
    chat.script(GOOD)
    judge = judge_of(price_input=1.0, budget_per_day=0.0001, cache_entries=10)
    assert judge.ask(question, read).value == 0.5
    assert judge.ask(question, read).spent.notes == (CACHED,)
    other = Question(model="m", messages=question.messages, schema={}, wants="another")
    with pytest.raises(JudgeFault, match="budget") as told:
        judge.ask(other, read)
    assert (told.value.kind, len(chat.asked)) == ("infrastructure", 1)


def test_a_budget_needs_prices():
    """Nothing would count against it."""
    with pytest.raises(SettingsError, match="price_input"):
        checked(JudgeSettings(budget_per_day=5.0))


def test_instructions_stand_with_the_system_message(chat, judge_of, question):
    """One system message, first, which holds the grader's own words, the warning and the format."""
    chat.script(GOOD)
    own = Question(
        model="m",
        messages=({"role": "system", "content": "You are strict."}, *question.messages),
        schema={},
        wants="Answer so.",
    )
    judge_of().ask(own, read)
    judge_of().ask(question, read)
    for asked in chat.asked:
        assert [m["role"] for m in asked["messages"]] == ["system", "user"]
        assert "material to be judged" in asked["messages"][0]["content"]
    assert chat.asked[0]["messages"][0]["content"].startswith("You are strict.")
    assert json.dumps(chat.asked[0])


class Meter:
    """Keeps what it is told, by name and labels."""

    def __init__(self):
        self.counts = Counter()
        self.seconds = []

    def add(self, metric, labels=(), amount=1.0):
        assert len(labels) == len(metric.labels)
        self.counts[metric.name.removeprefix("millstream_judge_").removesuffix("_total"), *labels] += amount

    def observe(self, metric, values):
        self.seconds += values


def test_what_a_judge_does_is_counted(chat, judge_of, question):
    """Each call by how it ended, each question by what came of it, tokens and cost of every reply that came."""
    chat.script({"status": 503}, "no verdict", GOOD)
    judge = judge_of(price_input=1000.0, price_output=2000.0, tries=2)
    judge.meter = meter = Meter()
    judge.ask(question, read)
    judge.ask(question, read)
    chat.script({"status": 400, "message": "no"})
    with pytest.raises(JudgeFault):
        judge.ask(structs.replace(question, wants="another"), read)
    input_tokens, output_tokens = meter.counts["tokens", "judge", "input"], meter.counts["tokens", "judge", "output"]
    assert input_tokens + output_tokens == 240
    assert meter.counts.pop(("cost", "judge")) == pytest.approx((input_tokens + 2 * output_tokens) / 1000)
    assert {key: count for key, count in meter.counts.items() if key[0] != "tokens"} == {
        ("calls", "judge", "busy"): 1,
        ("calls", "judge", "answered"): 2,
        ("calls", "judge", "rejected"): 1,
        ("verdicts", "judge", "given"): 1,
        ("verdicts", "judge", "cached"): 1,
        ("verdicts", "judge", "infrastructure"): 1,
    }
    assert len(meter.seconds) == 4
    assert all(seconds > 0 for seconds in meter.seconds)


@pytest.mark.parametrize(
    ("act", "settings", "call", "verdict"),
    [
        (silent, {"timeout_s": 0.1, "retries": 0}, "slow", "timeout"),
        ("nothing", {"tries": 1}, "answered", "unparsable"),
        ({"refusal": "no"}, {}, "answered", "unparsable"),
        (hang_up, {"retries": 0}, "busy", "infrastructure"),
    ],
)
def test_a_question_that_failed_is_counted_by_its_kind(chat, judge_of, question, act, settings, call, verdict):
    """The kind that its grade has."""
    chat.script(act)
    judge = judge_of(**settings)
    judge.meter = meter = Meter()
    with pytest.raises(JudgeFault):
        judge.ask(question, read)
    told = {key for key in meter.counts if key[0] in ("calls", "verdicts")}
    assert told == {("calls", "judge", call), ("verdicts", "judge", verdict)}
