"""A judge that asks a scripted server, with waiting that is counted and not slept."""

import pytest

from millstream.adapters.http_client import HttpChat
from millstream.adapters.sqlite_memory import SqliteMemory
from millstream.graders.judges.judge import Judge, Question
from millstream.settings import JudgeSettings


@pytest.fixture
def waits():
    """How long was waited, each time."""
    return []


@pytest.fixture
def judge_of(chat, tmp_path, waits):
    """A judge with these settings; its memory lies in the test's folder."""
    closers = []

    def made(**settings):
        found = JudgeSettings(**{"base_url": chat.url, **settings})
        memory = SqliteMemory(tmp_path / "judges.db", entries=found.cache_entries)
        endpoint = HttpChat(found.base_url, "the-key", connections=found.concurrency)
        closers.extend([memory.close, endpoint.close])
        return Judge(endpoint, found, memory, sleep=waits.append)

    yield made
    for close in closers:
        close()


@pytest.fixture
def question():
    """A question to no model in particular."""
    return Question(
        model="judge",
        messages=({"role": "user", "content": "how good is it?"},),
        schema={"type": "object"},
        wants='Answer {"result": number}.',
    )
