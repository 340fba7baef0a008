"""The proxy before a real server that speaks the API, with the stock client: what passes, and what is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import threading
import time
from urllib.parse import urlsplit

import msgspec
import openai
import pytest
from services.openai_api import answering, call, completion, response, streaming, zipped
from services.openai_api import chunks as chunks_of

from millstream.bootstrap.runtime import Runtime
from millstream.bootstrap.serving import proxy_server
from millstream.codec import encode_lines
from millstream.errors import SettingsError, Unavailable
from millstream.events import Tick
from millstream.loading import load
from millstream.ports import Record
from millstream.serving import Door
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.trajectory import Trajectory

KEY = "sk-test-" + "k3y" * 12
QUESTION = {"role": "user", "content": "what is it?"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


class Proxied:
    """A runtime with a proxy before an upstream, and a stock client of it."""

    def __init__(self, folder, upstream, **options):
        told = {f"{key.partition('__')[0]}.{key.partition('__')[2]}": value for key, value in options.items()}
        self.runtime = Runtime(load(environ={}, options={"storage.data": str(folder), **told}))
        self.server = proxy_server(self.runtime, upstream, Door()).__enter__()
        self.upstream = upstream

    def stop(self):
        """End the proxy as SIGTERM does."""
        if self.server is not None:
            self.server.__exit__()
            self.server = None

    @property
    def url(self):
        return f"{self.server.url}/v1"

    @contextlib.contextmanager
    def client(self, **options):
        with openai.OpenAI(base_url=self.url, api_key=KEY, max_retries=0, **options) as client:
            yield client

    def runs(self):
        """Every run, as assembly makes it of the log, in the order of beginning; the proxy is stopped."""
        self.stop()
        log, found = self.runtime.log, []
        for partition in range(log.partitions("telemetry")):
            assembler = Assembler(Assembly(), topic_id="t")
            closing = encode_lines([Tick(id="close", trajectory_id="-", flags=("close_open",))])
            last = Record("telemetry", partition, 10**6, 0, "k", closing, {})
            records = [*log.read("telemetry", partition, 0, 1 << 30), last]
            outputs = [output for record in records for output in assembler.feed(record)]
            found += [msgspec.json.decode(output.value, type=Trajectory) for output in outputs]
        return sorted(found, key=lambda run: run.started.time_ns)


@pytest.fixture
def proxied(tmp_path, chat):
    """`chat`, the upstream, behind a proxy."""
    with running(tmp_path / "data", chat.url) as made:
        yield made


@contextlib.contextmanager
def running(folder, upstream, **options):
    made = Proxied(folder, upstream, **options)
    try:
        yield made
    finally:
        made.stop()
        made.runtime.close()


def post(url, body, **headers):
    """(status, body, headers) of a call, as bytes."""
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)) as connection:
        connection.request(
            "POST", parts.path, json.dumps(body).encode(), {"content-type": "application/json", **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers


def test_a_run_of_the_chat_api(proxied, chat):
    """Plain and streamed calls, parallel calls of tools and their results, in one run; with the tools it had."""
    asks = completion("Let me see.", [call("c1", "look", at="a"), call("c2", "look", at="b")], identity="one")
    chat.script(answering(asks), answering(completion("It is so.", identity="two")))
    with proxied.client() as client:
        first = client.chat.completions.create(model="m", messages=[QUESTION], tools=TOOLS, temperature=0.5)
        told = [QUESTION, first.choices[0].message]
        told += [{"role": "tool", "tool_call_id": one.id, "content": f"saw {one.id}"} for one in told[1].tool_calls]
        with client.chat.completions.create(model="m", messages=told, tools=TOOLS, stream=True) as stream:
            text = "".join(one.choices[0].delta.content or "" for one in stream if one.choices)
    assert text == "It is so."
    (run,) = proxied.runs()
    assert [(step.response.text, [one.output for one in step.results]) for step in run.steps] == [
        ("Let me see.", ["saw c1", "saw c2"]),
        ("It is so.", []),
    ]
    assert run.steps[0].response.tool_calls[1].arguments == {"at": "b"}
    assert [one.usage.cached_tokens for one in run.responses] == [30, 30]
    assert [one.usage.reasoning_tokens for one in run.responses] == [8, 8]
    assert [one.response_id for one in run.responses] == ["one", "two"]
    assert (run.responses[0].temperature, run.started.tools) == (0.5, tuple(TOOLS))


def test_a_run_of_the_responses_api(proxied, chat):
    """Streamed and not, by ``previous_response_id``, from an async client."""
    asks = response(calls=[call("c1", "look", at="a")], reasoning="I should look.", identity="resp_1")
    chat.script(answering(asks), answering(response("It is so.", identity="resp_2")))

    async def act():
        async with openai.AsyncOpenAI(base_url=proxied.url, api_key=KEY, max_retries=0) as client:
            first = await client.responses.create(model="m", input="what is it?", instructions="be brief")
            result = {"type": "function_call_output", "call_id": "c1", "output": "saw"}
            async with client.responses.stream(model="m", input=[result], previous_response_id=first.id) as stream:
                return (await stream.get_final_response()).output_text

    assert asyncio.run(act()) == "It is so."
    (run,) = proxied.runs()
    assert [event.content for event in run.events if hasattr(event, "content")] == ["be brief", "what is it?"]
    assert [(step.response.text, [one.output for one in step.results]) for step in run.steps] == [
        ("", ["saw"]),
        ("It is so.", []),
    ]
    assert run.responses[0].reasoning == "I should look."
    assert run.responses[1].usage.cached_tokens == 30


@pytest.mark.parametrize("stream", [False, True])
def test_the_bytes_are_those_of_the_upstream(proxied, chat, stream):
    """With the proxy and without it: the same status, body and content type."""
    for whole, path in ((completion("ho" * 50, [call("c", "f")]), "/chat/completions"), (response("ho"), "/responses")):
        chat.script(answering(whole))
        asked = {"model": "m", "messages": [QUESTION], "input": "q", "stream": stream}
        direct = post(chat.url + path, asked)
        through = post(proxied.url + path, asked)
        assert through[:2] == direct[:2]
        assert through[2]["content-type"] == direct[2]["content-type"]


def test_gzip_passes_as_it_is_and_is_read(proxied, chat):
    """Answers that come packed."""
    chat.script(zipped(completion("packed")))
    with proxied.client() as client:
        assert client.chat.completions.create(model="m", messages=[QUESTION]).choices[0].message.content == "packed"
    assert chat.headers[0]["accept-encoding"] == "gzip, deflate"
    (run,) = proxied.runs()
    assert run.responses[0].text == "packed"


def test_a_run_goes_on_after_a_restart(tmp_path, chat):
    """One proxy ends between two calls, the next on its folder goes on."""
    chat.script(answering(completion("", [call("c1", "look")])), answering(completion("done")))
    told = [QUESTION]
    for _ in range(2):
        with running(tmp_path / "data", chat.url) as proxied:
            with proxied.client() as client:
                said = client.chat.completions.create(model="m", messages=told).choices[0].message
            told += [said, {"role": "tool", "tool_call_id": "c1", "content": "saw"}]
            runs = proxied.runs()
    assert [[step.response.text for step in run.steps] for run in runs] == [["", "done"]]
    assert runs[0].unanswered == ()


def test_errors_of_the_upstream_pass_and_are_recorded(proxied, chat):
    """The client raises what it would have raised; a retry goes on with the run."""
    body = json.dumps({"error": {"message": "slow down", "code": "rate_limit_exceeded"}})
    chat.script({"status": 429, "body": body, "headers": {"retry-after": "0"}}, answering(completion("at last")))
    with proxied.client() as client:
        with pytest.raises(openai.RateLimitError, match="slow down") as told:
            client.chat.completions.create(model="m", messages=[QUESTION])
        assert told.value.response.headers["retry-after"] == "0"
        client.chat.completions.create(model="m", messages=[QUESTION])
    (run,) = proxied.runs()
    assert [response.text for response in run.responses] == ["at last"]
    assert [event.flags for event in run.events if hasattr(event, "finish_reason")] == [
        ("call_failed", "status_429"),
        (),
    ]


def test_an_upstream_that_dies_in_a_stream(proxied, chat):
    """The client sees the cut; what came is recorded, and the retry goes on."""
    whole = completion("a long answer of many words")
    chat.script(streaming(chunks_of(whole), stop_after=5), answering(whole))
    with proxied.client() as client:
        with (
            pytest.raises(openai.APIError),
            client.chat.completions.create(model="m", messages=[QUESTION], stream=True) as stream,
        ):
            list(stream)
        client.chat.completions.create(model="m", messages=[QUESTION], stream=True).close()
    (run,) = proxied.runs()
    cut = next(event for event in run.events if "broken_off" in event.flags)
    assert whole["choices"][0]["message"]["content"].startswith(cut.text)
    assert cut.text


def test_a_client_that_leaves_in_a_stream(proxied, chat):
    """What it had seen is recorded; it is no action."""
    hold = threading.Event()
    chat.script(streaming(chunks_of(completion("a long answer of many words")), hold=hold))
    with (
        proxied.client() as client,
        client.chat.completions.create(model="m", messages=[QUESTION], stream=True) as stream,
    ):
        next(iter(stream))
    assert 'outcome="client"' in _until(proxied, 'outcome="client"')
    hold.set()
    (run,) = proxied.runs()
    assert run.responses == ()
    assert next(event for event in run.events if hasattr(event, "finish_reason")).finish_reason == "cancelled"


@pytest.mark.parametrize("key", [KEY, "a plain word of mine".replace(" ", "")])
def test_the_key_is_nowhere(tmp_path, chat, caplog, key):
    """Not in the data folder, not in any log at its finest: though the upstream repeats it in an error and in an
    answer, and the client in its request. The upstream has it.
    """
    caplog.set_level(logging.DEBUG)
    folder, error = tmp_path / "data", {"error": {"message": f"your key {key} is no good"}}
    with running(folder, chat.url, proxy__idle_s=0.2) as proxied:
        whole = completion(f"you are {key}")
        acts = [answering(whole), streaming(chunks_of(whole, size=99)), {"status": 401, "body": json.dumps(error)}]
        for act in acts:
            chat.script(act)
            with openai.OpenAI(base_url=proxied.url, api_key=key, max_retries=0) as client:
                ask = client.chat.completions.create
                with contextlib.suppress(openai.AuthenticationError):
                    told = [QUESTION, {"role": "user", "content": f"key {key}"}]
                    list(ask(model="m", messages=told, stream=act is acts[1], extra_body={"api_key": key}))
                assert chat.headers[0]["authorization"] == f"Bearer {key}"
        assert 'fate="sent"} 15.0' in _until(proxied, 'fate="sent"} 15.0')
        runs = proxied.runs()
    assert [run.status for run in runs] == ["complete", "complete", "interrupted"]
    assert runs[-1].ended.error == "your key [REDACTED:caller_key] is no good"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(b"what is it?" in path.read_bytes() for path in files)
    assert [path for path in files if key.encode() in path.read_bytes()] == []
    assert key not in caplog.text


def test_secrets_are_out_before_the_log(proxied, chat, tmp_path):
    """Those that callers paste into prompts, and models into answers: redaction is that of every door."""
    chat.script(answering(completion("use sk-" + "b" * 30)))
    with proxied.client() as client:
        told = [{"role": "user", "content": "mine is sk-" + "a" * 30}]
        client.chat.completions.create(model="m", messages=told)
    assert chat.asked[0]["messages"] == told
    (run,) = proxied.runs()
    assert "aaaaaaa" not in run.events[1].content
    assert "bbbbbbb" not in run.responses[0].text
    assert "redacted" in run.responses[0].flags


def test_pictures_become_references(proxied, chat):
    """They pass whole; the log has their type, size and hash."""
    chat.script(answering(completion("a cat")))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 400}}
    with proxied.client() as client:
        told = [{"role": "user", "content": [{"type": "text", "text": "what is this?"}, picture]}]
        client.chat.completions.create(model="m", messages=told)
    assert chat.asked[0]["messages"] == told
    (run,) = proxied.runs()
    assert "iVBOR" not in run.events[1].content
    assert "image/png" in run.events[1].content


def test_a_log_that_is_away_does_not_hold_up_a_call(tmp_path, chat, monkeypatch):
    """The call goes on, its events are spooled and counted, and the log has them when it is back."""
    with running(tmp_path / "data", chat.url) as proxied:
        log = proxied.runtime.log
        append = type(log).append

        def away(*_):
            raise Unavailable("away")

        monkeypatch.setattr(type(log), "append", away)
        chat.script(answering(completion("ho")))
        with proxied.client() as client:
            client.chat.completions.create(model="m", messages=[QUESTION])
        page = ""
        deadline = time.monotonic() + 10
        while 'fate="spooled"} 3.0' not in page and time.monotonic() < deadline:
            page = _page(proxied)
            time.sleep(0.02)
        assert 'fate="spooled"} 3.0' in page
        monkeypatch.setattr(type(log), "append", append)
        deadline = time.monotonic() + 20
        while 'fate="replayed"} 3.0' not in page and time.monotonic() < deadline:
            page = _page(proxied)
            time.sleep(0.02)
        (run,) = proxied.runs()
    assert run.responses[0].text == "ho"


def _page(proxied):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxied.server.port, timeout=20)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


@pytest.mark.parametrize(
    ("setting", "why"), [("proxy__max_recorded_bytes", "too_large"), ("proxy__queue_bytes", "no_room")]
)
def test_a_call_that_finds_no_room_passes_unrecorded(tmp_path, chat, setting, why):
    """And is counted; the next small one is recorded."""
    with running(tmp_path / "data", chat.url, **{setting: 20_000}) as proxied:
        chat.script(answering(completion("ho")))
        with proxied.client() as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 50_000}])
            client.chat.completions.create(model="m", messages=[QUESTION])
        assert [len(one["messages"][0]["content"]) for one in chat.asked] == [50_000, 11]
        assert f'millstream_proxy_unrecorded_total{{why="{why}"}} 1.0' in _page(proxied)
        (run,) = proxied.runs()
    assert run.task.question == "what is it?"


def test_other_paths_pass_unrecorded(proxied, chat):
    """Their bodies are not even looked at."""
    item = {"object": "embedding", "index": 0, "embedding": [0.5]}
    chat.script({"body": json.dumps({"object": "list", "data": [item], "model": "e", "usage": {}})})
    with proxied.client() as client:
        client.embeddings.create(model="e", input="private", encoding_format="float")
    assert proxied.runs() == []


def test_many_agents_at_once(proxied, chat):
    """Threads with conversations of their own: a run each, with everything once."""
    chat.script(lambda body: {"body": json.dumps(completion(f"re {body['messages'][-1]['content']}"))})

    def agent(n):
        with proxied.client() as client:
            told = []
            for turn in range(3):
                told.append({"role": "user", "content": f"{n}.{turn}"})
                said = client.chat.completions.create(model="m", messages=told).choices[0].message
                told.append({"role": "assistant", "content": said.content})

    threads = [threading.Thread(target=agent, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted([step.response.text for step in run.steps] for run in proxied.runs())
    assert found == [[f"re {n}.{turn}" for turn in range(3)] for n in range(8)]


def test_a_model_stands_for_a_policy_version(tmp_path, chat):
    """By the settings; what is no version is refused before anything listens."""
    with running(tmp_path / "data", chat.url, proxy__policies={"m": "shop/3", "n": "4"}) as proxied:
        chat.script(answering(completion("ho")))
        with proxied.client() as client:
            for model in ("m", "n", "o"):
                client.chat.completions.create(model=model, messages=[QUESTION])
        started = [run.started for run in proxied.runs()]
    assert [(one.lineage, one.policy_version) for one in started] == [("shop", 3), ("", 4), ("", None)]
    with pytest.raises(SettingsError, match="LINEAGE/VERSION"):
        running(tmp_path / "other", chat.url, proxy__policies={"m": "shop"}).__enter__()


def test_a_request_that_is_none_passes_and_is_counted(tmp_path, chat):
    """What to say to it is the upstream's business."""
    with running(tmp_path / "data", chat.url) as proxied:
        chat.script({"body": json.dumps(completion("ho"))})
        status, _, _ = post(f"{proxied.url}/chat/completions", ["no", "call"])
        assert status == 200
        assert 'why="unreadable"' in _until(proxied, 'why="unreadable"')
        assert proxied.runs() == []


def _until(proxied, words):
    deadline = time.monotonic() + 10
    while words not in (page := _page(proxied)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return page
