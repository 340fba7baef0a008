"""What asking a judge costs beside the model's time, and text similarity beside the libraries it stands on.

Judge path: a server in another process answers at once, so what is left is ours and HTTP's. "bare" is one POST of the
same question by httpx2, nothing read; the overhead is the difference in this process's CPU time. Similarity: `ours`
is what a hosted grader calls, `library` the bare call of the library on the same texts; values must be equal.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.translate import bleu_score, gleu_score
from rapidfuzz import fuzz, utils
from rouge_score.rouge_scorer import RougeScorer

from millstream.adapters.http_client import HttpChat
from millstream.adapters.sqlite_memory import SqliteMemory
from millstream.graders.hosted.similarity import similarity
from millstream.graders.judges.judge import Judge, Question
from millstream.graders.judges.reading import number
from millstream.settings import JudgeSettings

CALLS = 300
REPEATS = 5
OVERHEAD_MS = 2.0
"""The most CPU that the judge path may add to a bare POST."""
RATIO = 1.5
"""The most that a similarity may take beside the bare library."""
REPLY = json.dumps(
    {
        "model": "instant",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": '{"steps": [], "result": 0.5}'}}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 20},
    }
).encode()


class Instant(BaseHTTPRequestHandler):
    """Answers every question at once."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment: else each answer waits 40 ms for an acknowledgement
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, *_: Any) -> None:
        pass


def serve(port: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instant)
    port.put(server.server_address[1])
    server.serve_forever()


def questions(count: int) -> list[Question]:
    text = "Is this answer right? " * 60
    return [
        Question(
            model="instant",
            messages=({"role": "user", "content": f"{text} {n}"},),
            schema={"type": "object", "properties": {"result": {"type": "number"}}},
            wants='Answer {"result": …}.',
        )
        for n in range(count)
    ]


def per_call(function: Callable[[Question], object], asked: Sequence[Question]) -> float:
    """Milliseconds of CPU a call, the least of some passes."""
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        for question in asked:
            function(question)
        best = min(best, (time.process_time() - begun) / len(asked) * 1000)
    return best


def judge_path(url: str) -> bool:
    asked = questions(CALLS)
    with tempfile.TemporaryDirectory() as folder:
        settings = JudgeSettings(base_url=url, cache_entries=0)
        chat = HttpChat(url)
        judge = Judge(chat, settings, SqliteMemory(Path(folder) / "none.db", entries=0))
        kept = Judge(chat, JudgeSettings(base_url=url), SqliteMemory(Path(folder) / "kept.db"))
        read = lambda reply: number(reply, 0, 1).value  # noqa: E731 — one line
        client = httpx2.Client(trust_env=False)

        def bare(question: Question) -> None:
            body = json.dumps({"model": "instant", "messages": list(question.messages)}).encode()
            client.post(f"{url}/chat/completions", content=body).read()

        for warm in (bare, lambda q: judge.ask(q, read), lambda q: kept.ask(q, read)):
            for question in asked[:20]:
                warm(question)
        floor = per_call(bare, asked)
        full = per_call(lambda q: judge.ask(q, read), asked)
        for question in asked:
            kept.ask(question, read)
        hit = per_call(lambda q: kept.ask(q, read), asked)
        begun = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda q: judge.ask(q, read), asked))
        wall = (time.perf_counter() - begun) / CALLS * 1000
    over = full - floor
    print(f"bare POST {floor:.2f} ms CPU, judge {full:.2f} ms: overhead {over:.2f} ms a call (at most {OVERHEAD_MS:g})")
    print(f"remembered verdict {hit:.2f} ms CPU; 8 at once {wall:.2f} ms of wall time a call")
    return over <= OVERHEAD_MS


def sentences(count: int) -> list[tuple[str, str]]:
    rng = random.Random(0)
    words = ["revenue", "cost", "rose", "fell", "in", "the", "of", "by", "percent", "from", "2019", "million", "sales"]
    made = [" ".join(rng.choice(words) for _ in range(rng.randint(8, 40))) for _ in range(2 * count)]
    return list(zip(made[:count], made[count:], strict=True))


def libraries() -> dict[str, Callable[[str, str], float]]:
    rouge = {name: RougeScorer([name], use_stemmer=False) for name in ("rouge1", "rougeL")}
    smooth, words = bleu_score.SmoothingFunction().method3, NLTKWordTokenizer().tokenize

    def bleu(text: str, reference: str) -> float:
        return float(bleu_score.sentence_bleu([words(reference)], words(text), smoothing_function=smooth))

    return {
        "fuzzy_match": lambda a, b: fuzz.WRatio(a, b, processor=utils.default_process) / 100,
        "bleu": bleu,
        "gleu": lambda a, b: float(gleu_score.sentence_gleu([words(b)], words(a))),
        "rouge_1": lambda a, b: float(rouge["rouge1"].score(b, a)["rouge1"].fmeasure),
        "rouge_l": lambda a, b: float(rouge["rougeL"].score(b, a)["rougeL"].fmeasure),
    }


def timed(function: Callable[[str, str], float], pairs: Sequence[tuple[str, str]]) -> float:
    """Microseconds of CPU a pair, the median of some passes."""
    spent = []
    for _ in range(REPEATS):
        begun = time.process_time()
        for a, b in pairs:
            function(a, b)
        spent.append((time.process_time() - begun) / len(pairs) * 1e6)
    return statistics.median(spent)


def similarities() -> bool:
    pairs, good = sentences(300), True
    for metric, library in libraries().items():
        ours = lambda a, b, metric=metric: similarity(metric, a, b)  # noqa: E731 — one line
        same = all(abs(ours(a, b) - library(a, b)) < 1e-9 for a, b in pairs)
        mine, theirs = timed(ours, pairs), timed(library, pairs)
        good = good and same and mine <= RATIO * theirs + 5
        told = "equal" if same else "NOT EQUAL"
        print(f"{metric:<15} {mine:7.1f} µs, library {theirs:7.1f} µs ({mine / theirs:.2f}×), values {told}")
    return good


def main() -> int:
    port: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(port,), daemon=True)
    server.start()
    try:
        met = judge_path(f"http://127.0.0.1:{port.get(timeout=10)}/v1")
    finally:
        server.terminate()
        server.join()
    return 0 if similarities() and met else 1


if __name__ == "__main__":
    sys.exit(main())
