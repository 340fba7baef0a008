"""An empty Faust agent: takes records, decodes their lines, does nothing. `kafka_workers.py` starts it.

python bench/kafka_empty.py HOST:PORT TOPIC RECORDS
"""

from __future__ import annotations

import logging
import sys
import tempfile

import faust

from millstream.codec import decode_record

address, topic, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = faust.App(
    f"empty-{topic}",
    broker=f"kafka://{address}",
    key_serializer="raw",
    value_serializer="raw",
    topic_disable_leader=True,
    topic_allow_declare=False,
    consumer_auto_offset_reset="earliest",
    store="memory://",
    web_enabled=False,
    autodiscover=False,
    datadir=tempfile.mkdtemp(),
)
source = app.topic(topic, key_type=bytes, value_type=bytes, internal=True)


@app.agent(source, concurrency=1)
async def take(stream):
    seen = events = 0
    async for event in stream.events():
        events += len(decode_record(event.message.value or b"")[0])
        seen += 1
        if seen == wanted:
            print("all", events, flush=True)


logging.disable(logging.CRITICAL)
faust.Worker(app, quiet=True, override_logging=False, redirect_stdouts=False).execute_from_commandline()
