"""Acts of the chat server that speak the whole of two APIs: completions and responses, whole and streamed."""

import contextlib
import gzip
import json

from services.chat import raw

MODEL = "scripted-2026-01"
CHAT_USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 20,
    "total_tokens": 70,
    "prompt_tokens_details": {"cached_tokens": 30},
    "completion_tokens_details": {"reasoning_tokens": 8},
}
RESPONSE_USAGE = {
    "input_tokens": 50,
    "output_tokens": 20,
    "total_tokens": 70,
    "input_tokens_details": {"cached_tokens": 30},
    "output_tokens_details": {"reasoning_tokens": 8},
}


def call(identity, name, **arguments):
    """A call that a model asks for."""
    return {"id": identity, "name": name, "arguments": json.dumps(arguments)}


def completion(text=None, calls=(), identity="chatcmpl-1", **choice):
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls
        ]
    finish = "tool_calls" if calls else "stop"
    return {
        "id": identity,
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None, **choice}],
        "usage": CHAT_USAGE,
    }


def chunks(whole, size=3):
    """The same completion as a stream's chunks; the arguments of parallel calls interleave."""
    head = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": whole["model"]}
    choice = whole["choices"][0]
    message = choice["message"]
    parts = [{"role": "assistant", "content": None}]
    parts += [{"content": piece} for piece in pieces(message["content"] or "", size)]
    calls = message.get("tool_calls", [])
    for n, one in enumerate(calls):
        begun = {**one, "index": n, "function": {"name": one["function"]["name"], "arguments": ""}}
        parts.append({"tool_calls": [begun]})
    told = [pieces(one["function"]["arguments"], size) for one in calls]
    for step in range(max(map(len, told), default=0)):
        for n, listed in enumerate(told):
            if step < len(listed):
                parts.append({"tool_calls": [{"index": n, "function": {"arguments": listed[step]}}]})
    made = [{**head, "choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    made.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    made.append({**head, "choices": [], "usage": whole["usage"]})
    return made


def response(text=None, calls=(), reasoning="", identity="resp_1"):
    """A response of the Responses API."""
    output = []
    if reasoning:
        told = [{"type": "summary_text", "text": reasoning}]
        output.append({"type": "reasoning", "id": f"rs_{identity}", "summary": told})
    for one in calls:
        told = {"type": "function_call", "id": f"fc_{one['id']}", "call_id": one["id"], "status": "completed"}
        output.append({**told, "name": one["name"], "arguments": one["arguments"]})
    if text is not None:
        part = {"type": "output_text", "text": text, "annotations": []}
        told = {"type": "message", "id": f"msg_{identity}", "status": "completed", "role": "assistant"}
        output.append({**told, "content": [part]})
    return {
        "id": identity,
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": RESPONSE_USAGE,
    }


def response_events(whole, size=3):
    """The same response as a stream's events."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    told = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    for place, item in enumerate(whole["output"]):
        where = {"output_index": place, "item_id": item["id"]}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": []}
            told.append({"type": "response.output_item.added", **where, "item": {**item, "content": []}})
            told.append({"type": "response.content_part.added", **where, "content_index": 0, "part": part})
            said = {"type": "response.output_text.delta", **where, "content_index": 0, "logprobs": []}
            told += [{**said, "delta": piece} for piece in pieces(text, size)]
        elif item["type"] == "function_call":
            told.append({"type": "response.output_item.added", **where, "item": {**item, "arguments": ""}})
            said = {"type": "response.function_call_arguments.delta", **where}
            told += [{**said, "delta": piece} for piece in pieces(item["arguments"], size)]
        else:
            told.append({"type": "response.output_item.added", **where, "item": {**item, "summary": []}})
        told.append({"type": "response.output_item.done", **where, "item": item})
    told.append({"type": "response.completed", "response": whole})
    return [{**one, "sequence_number": n} for n, one in enumerate(told)]


def pieces(text, size):
    """A text in pieces."""
    return [text[n : n + size] for n in range(0, len(text), size)]


def answering(whole):
    """Answers as the request asks for it: whole, or as a stream."""

    def act(body):
        if not body.get("stream"):
            return {"body": json.dumps(whole)}
        return streaming(chunks(whole)) if whole["object"] == "chat.completion" else streaming(response_events(whole))

    return act


def zipped(whole):
    """The answer, gzipped, as the services behind a CDN send it."""

    @raw
    def act(handler):
        body = gzip.compress(json.dumps(whole).encode())
        handler.send_response(200)
        for name, value in {"Content-Type": "application/json", "Content-Encoding": "gzip"}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return act


def streaming(events, *, stop_after=None, hold=None):
    """Server-sent events, one write each. ``stop_after``: the connection breaks after so many; ``hold``: an event of
    threading that is waited for after the first half.
    """

    @raw
    def act(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with contextlib.suppress(OSError):
            for n, told in enumerate(events):
                if n == stop_after:
                    handler.close_connection = True
                    return
                if hold is not None and n == len(events) // 2:
                    hold.wait(10)
                name = f"event: {told['type']}\n" if "type" in told else ""
                write_chunk(handler, f"{name}data: {json.dumps(told)}\n\n".encode())
            if "type" not in events[0]:
                write_chunk(handler, b"data: [DONE]\n\n")
            handler.wfile.write(b"0\r\n\r\n")

    return act


def write_chunk(handler, data):
    """One chunk of a chunked body, flushed."""
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


__all__ = ["answering", "call", "chunks", "completion", "response", "response_events", "streaming", "zipped"]
