"""The stock `openai` client against the routes, over a real connection, with nothing changed but its base URL."""

import asyncio
import contextlib

import openai
import pytest

from millstream.adapters.http_server import Server
from millstream.graders.hosted.serving import routes
from millstream.serving import Door
from millstream.settings import HostedSettings

STRING = {
    "type": "string_check",
    "name": "s",
    "operation": "ilike",
    "input": "{{sample.output_text}}",
    "reference": "{{item.gold}}",
}
CLOSE = {
    "type": "text_similarity",
    "name": "c",
    "evaluation_metric": "fuzzy_match",
    "input": "{{sample.output_text}}",
    "reference": "{{item.gold}}",
}
MULTI = {
    "type": "multi",
    "name": "m",
    "calculate_output": "0.5*a + 0.5*max(b, 0.2)",
    "graders": {"a": STRING, "b": CLOSE},
}


@pytest.fixture(scope="module")
def served():
    with Server(routes(HostedSettings()), Door()) as server:
        yield server


@pytest.fixture(scope="module")
def strict():
    with Server(routes(HostedSettings(on_failed="http_error", max_graders=2, source_bytes=100)), Door()) as server:
        yield server


@pytest.fixture
def graders():
    """The client's own calls, for a server."""
    with contextlib.ExitStack() as clients:

        def calls(server):
            client = clients.enter_context(openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0))
            return client.fine_tuning.alpha.graders

        yield calls


def test_validate_gives_the_grader_back(graders, served):
    """A sound grader comes back as the client's own type."""
    found = graders(served).validate(grader=MULTI)
    assert found.grader.type == "multi"
    assert found.grader.calculate_output == MULTI["calculate_output"]


def test_run_gives_reward_parts_and_flags(graders, served):
    """A multi's reward is its formula over its parts, and no flag is set."""
    found = graders(served).run(grader=MULTI, model_sample="It is Paris", item={"gold": "paris"})
    assert found.sub_rewards["a"] == 1.0
    assert found.reward == pytest.approx(0.5 + 0.5 * found.sub_rewards["b"])
    assert (found.metadata.name, found.metadata.type) == ("m", "multi")
    assert not any(v for k, v in found.metadata.errors.to_dict().items() if k.endswith("_error"))


def test_the_async_client_works_too(served):
    """Several at once, each with its own answer."""

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
            ours = client.fine_tuning.alpha.graders
            await ours.validate(grader=STRING)
            samples = ["Paris", "Rome", "PARIS!", ""]
            return await asyncio.gather(
                *(ours.run(grader=STRING, model_sample=s, item={"gold": "paris"}) for s in samples)
            )

    assert [found.reward for found in asyncio.run(ask())] == [1.0, 0.0, 1.0, 0.0]


def test_an_error_is_a_null_reward_with_its_flag(graders, served):
    """Never 0: the missing variable is flagged and there is no reward."""
    found = graders(served).run(grader=STRING, model_sample="x", item={})
    assert found.reward is None
    assert found.metadata.errors.invalid_variable_error is True


def test_an_error_can_be_an_http_error_instead(graders, strict):
    """What can't be graded is 422 with its flag as the code; the client does not try it again."""
    with pytest.raises(openai.UnprocessableEntityError) as told:
        graders(strict).run(grader=STRING, model_sample="x", item={})
    assert told.value.code == "invalid_variable_error"
    assert told.value.response.json()["answer"]["reward"] is None
    judge = {"type": "score_model", "name": "j", "model": "big", "input": [{"role": "user", "content": "x"}]}
    with pytest.raises(openai.InternalServerError) as told:
        graders(strict).run(grader=judge, model_sample="x", item={})
    assert (told.value.status_code, told.value.code) == (503, "model_grader_server_error")


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        ({**STRING, "operation": "equals"}, "did you mean"),
        ({**STRING, "inptu": "x"}, "unknown field 'inptu'"),
        ({"type": "no_such"}, "no kind"),
        ({**MULTI, "calculate_output": "a + nobody"}, "no grader 'nobody'"),
        ([], "must be a JSON object"),
    ],
)
def test_a_grader_that_is_not_sound_is_a_bad_request(graders, served, grader, words):
    """Both calls name the field and the mend."""
    for call in (
        lambda: graders(served).validate(grader=grader),
        lambda: graders(served).run(grader=grader, model_sample="x", item={}),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            call()


@pytest.mark.parametrize(
    "body",
    [
        {"model_sample": 3},
        {"model_sample": None},
        {"model_sample": ["x"]},
        {"model_sample": {"role": "user", "content": "x"}},
        {"model_sample": {}},
        {},
        {"model_sample": "x", "item": [1]},
        {"model_sample": "x", "itme": {}},
    ],
)
def test_a_body_that_is_not_sound_is_a_bad_request(graders, served, body):
    """A sample that is no text, an item that is no object, a field that nobody knows."""
    ours = graders(served)._client
    with pytest.raises(openai.BadRequestError):
        ours.post("/fine_tuning/alpha/graders/run", body={"grader": STRING, **body}, cast_to=object)


BROKEN = [b"", b"{", b'{"grader": NaN}', b'{"grader": 1, "grader": 2}', b"[" * 100_000, b"\xff"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_body_that_is_no_json_is_a_bad_request(graders, served, text):
    """Bytes that are no JSON, or JSON that says two things."""
    ours = graders(served)._client
    with pytest.raises(openai.BadRequestError):
        ours.post("/fine_tuning/alpha/graders/validate", content=text, cast_to=object)


def test_limits_are_the_settings(graders, strict):
    """Fewer graders and smaller sources than the service allowed."""
    three = {**MULTI, "graders": {n: {**STRING, "name": n} for n in "abc"}, "calculate_output": "a"}
    with pytest.raises(openai.BadRequestError, match="1 to 2 graders"):
        graders(strict).validate(grader=three)
    long = {"type": "python", "name": "p", "source": "def grade(sample, item):\n    return 1.0\n" + "#" * 100}
    with pytest.raises(openai.BadRequestError, match="smaller than 100"):
        graders(strict).validate(grader=long)


def test_what_early_clients_sent_is_understood(graders, served):
    """A reference answer instead of an item."""
    grader = {**STRING, "reference": "{{item.reference_answer}}"}
    found = graders(served).run(grader=grader, model_sample="Rome", extra_body={"reference_answer": "rome"})
    assert found.reward == 1.0


TOOL = {**STRING, "input": "{{sample.output_tools[0].function.name}}", "reference": "search"}
HEARD = {**STRING, "input": "{{sample.output_audio.transcript}}"}
CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("grader", "sample"),
    [
        (TOOL, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        (HEARD, {"role": "assistant", "content": None, "audio": {"data": "AAAA", "transcript": "It is Paris"}}),
        (HEARD, {"output_text": "", "output_audio": {"data": "AAAA", "transcript": "It is Paris"}}),
    ],
)
def test_a_message_is_a_sample_too(graders, served, grader, sample):
    """The client sends what it is given: calls and audio reach the templates that name them."""
    item = {"gold": "paris"}
    assert graders(served).run(grader=grader, model_sample=sample, item=item).reward == 1.0
    without = graders(served).run(grader=grader, model_sample="It is Paris", item=item)
    assert (without.reward, without.metadata.errors.invalid_variable_error) == (None, True)
