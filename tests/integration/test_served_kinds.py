"""Every kind of hosted grader, with every field of it, by the stock `openai` client against `serve graders`: sync and
async, behind it a real judge, a real endpoint and the real sandbox.
"""

from __future__ import annotations

import asyncio
import json
import shutil

import openai
import pytest

from millstream.adapters.http_server import Server
from millstream.bootstrap.runtime import Runtime
from millstream.bootstrap.serving import door_of, grader_routes, server
from millstream.loading import load
from millstream.serving import Door, Request, Response, Route, json_response

SETTINGS = """
[judge]
base_url = "{judge}"
[hosted]
endpoints = ["{endpoint}"]
"""
ITEM = {"gold": "Paris", "rows": [{"name": "Seine"}], "image": "https://example.org/seine.png"}
SPOKEN = {"id": "a", "data": "UklGRg==", "expires_at": 1767225600, "transcript": "It is Paris."}
SAMPLE = {
    "role": "assistant",
    "content": '{"city": "Paris"}',
    "audio": SPOKEN,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
}
TEXT = {"type": "string_check", "name": "text", "operation": "ilike", "input": "{{ sample.output_text }}",
        "reference": "{{ item.gold }}"}  # fmt: skip
MESSAGES = [
    {"role": "developer", "content": "Judge the answer."},
    {
        "role": "user",
        "type": "message",
        "content": [
            "River: {{ item.rows[0].name }}",
            {"type": "input_text", "text": "City: {{ sample.output_json.city }}"},
            {"type": "output_text", "text": "{{ sample.output_text }}"},
            {"type": "input_image", "image_url": "{{ item.image }}", "detail": "low"},
            {"type": "input_audio", "input_audio": {"data": "{{ sample.output_audio.data }}", "format": "wav"}},
        ],
    },
]
SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "judge",
    "input": MESSAGES,
    "range": [0, 10],
    "sampling_params": {
        "temperature": 0,
        "top_p": 1,
        "seed": 1,
        "max_completions_tokens": 50,
        "reasoning_effort": "low",
    },
}
LABEL = {"type": "label_model", "name": "label", "model": "judge", "input": MESSAGES, "labels": ["good", "bad"],
         "passing_labels": ["good"]}  # fmt: skip
CODE = "def grade(sample, item):\n    return float(item['gold'] in sample['output_audio']['transcript']) / 2\n"
KINDS = {
    "string_check": (TEXT, 1.0),
    "string_check of a tool call": (
        {**TEXT, "operation": "eq", "input": "{{ sample.output_tools[0].function.name }}", "reference": "look_up"},
        1.0,
    ),
    "string_check of choices": (
        {**TEXT, "operation": "like", "input": "{{ sample.choices[0].message.audio.transcript }}"},
        1.0,
    ),
    "text_similarity": (
        {"type": "text_similarity", "name": "near", "evaluation_metric": "rouge_l", "pass_threshold": 0.5,
         "input": "{{ sample.output_audio.transcript }}", "reference": "It is {{ item.gold }}."},
        1.0,
    ),
    "score_model": (SCORE, 7.0),
    "label_model": (LABEL, 1.0),
    "python": ({"type": "python", "name": "code", "source": CODE, "image_tag": "2025-05-08"}, 0.5),
    "endpoint": ({"type": "endpoint", "name": "theirs", "url": "{endpoint}/grade", "headers": {"x-key": "k"}}, 0.25),
    "multi": (
        {"type": "multi", "name": "all", "graders": {"a": TEXT, "s": SCORE, "l": LABEL},
         "calculate_output": "0.5*a + max(s/10, 0.1)*l"},
        1.2,
    ),
}  # fmt: skip


def judged(body):
    """Seven of ten, and good: whichever is asked for; a text or an image that did not arrive is no verdict."""
    parts = json.dumps(body["messages"])
    arrived = all(one in parts for one in ("Seine", "City: ", "seine.png", "UklGRg=="))
    labelled = "enum" in json.dumps(body["response_format"])
    return json.dumps({"steps": [], "result": ("good" if labelled else 7) if arrived else "?"})


def theirs(request: Request) -> Response:
    """A grader of somebody's own behind a URL."""
    body = json.loads(request.body)
    good = body["sample"]["output_json"]["city"] == body["item"]["gold"] and request.headers.get("x-key") == "k"
    return json_response({"score": 0.25 if good else 0.0})


@pytest.fixture(scope="module")
def endpoint():
    with Server([Route("POST", "/grade", theirs)], Door()) as found:
        yield found.url


@pytest.fixture
def served(tmp_path, chat, endpoint):
    """The base URL of the service, as the settings have it."""
    chat.script(judged)
    file = tmp_path / "millstream.toml"
    file.write_text(SETTINGS.format(judge=chat.url, endpoint=endpoint), encoding="utf-8")
    loaded = load(file, environ={})
    with Runtime(loaded) as runtime, server(grader_routes(runtime), door_of(loaded, "127.0.0.1", 0, None)) as found:
        yield f"{found.url}/v1"


def graders_of(kind, endpoint):
    """The kind's grader, and what it must say."""
    if kind == "python" and not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed (Debian: bubblewrap)")
    grader, reward = KINDS[kind]
    return json.loads(json.dumps(grader).replace("{endpoint}", endpoint)), reward


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_by_the_sync_client(served, endpoint, kind):
    """It validates, comes back as it was, and grades; no flag is set."""
    grader, reward = graders_of(kind, endpoint)
    with openai.OpenAI(base_url=served, api_key="x", max_retries=0) as client:
        calls = client.fine_tuning.alpha.graders
        checked = calls.with_raw_response.validate(grader=grader)
        assert json.loads(checked.content)["grader"] == grader
        found = calls.run(grader=grader, model_sample=SAMPLE, item=ITEM)
    assert found.reward == pytest.approx(reward), found.metadata.errors
    assert (found.metadata.name, found.metadata.type) == (grader["name"], grader["type"])
    assert not any(value for name, value in found.metadata.errors.to_dict().items() if name.endswith("_error"))


def test_all_kinds_side_by_side_by_the_async_client(served, endpoint):
    """Each its own answer."""
    kinds = [kind for kind in KINDS if kind != "python" or shutil.which("bwrap")]

    async def ask():
        async with openai.AsyncOpenAI(base_url=served, api_key="x", max_retries=0) as client:
            run = client.fine_tuning.alpha.graders.run
            return await asyncio.gather(
                *(run(grader=graders_of(kind, endpoint)[0], model_sample=SAMPLE, item=ITEM) for kind in kinds)
            )

    assert [one.reward for one in asyncio.run(ask())] == [pytest.approx(KINDS[kind][1]) for kind in kinds]
