"""The Lua scripts of the Redis store: one a step of a stage's partition, all keys under one hash tag.

Keys of a stage's partition: ``meta`` (hash: fence, outbox = the last number used, version and reads of its owner),
``positions`` (hash: slot → [topic id, next]), ``journal`` (list of [topic, partition, first, end]), ``snapshot``,
``marks`` (hash: source → number), ``outbox`` (list of outputs, the last one has the number ``outbox``). Whole numbers
travel as texts: Lua's are doubles.
"""

from __future__ import annotations

from typing import Final

PARTS: Final = ("meta", "positions", "journal", "snapshot", "marks", "outbox")
"""The keys of a stage's partition, in the order in which the scripts get them; the namespace's ``format`` follows."""

ASSIGN: Final = """
local meta, positions, journal, snapshot, marks, outbox, format, stages = unpack(KEYS)
local told = redis.call('GET', format)
if not told then
  told = ARGV[2]
  redis.call('SET', format, told)
end
local number = tonumber(string.match(told, '^%d+'))
if number < tonumber(ARGV[3]) or number > tonumber(ARGV[4]) then return {told} end
local fence = redis.call('HINCRBY', meta, 'fence', 1)
redis.call('HSET', meta, 'version', ARGV[5], 'reads', ARGV[4])
redis.call('SADD', stages, ARGV[1])
return {told, fence, redis.call('HGET', meta, 'outbox') or '0', redis.call('HGETALL', positions),
  redis.call('LRANGE', journal, 0, -1), redis.call('GET', snapshot), redis.call('HGETALL', marks),
  redis.call('LRANGE', outbox, 0, -1)}
"""
"""Keys of the partition, then the set of stages; ARGV: the name in the set, the format of a new namespace, the
oldest and the newest that we read, our version. Returns the format and, where we read it, everything a worker
needs to restore."""

COMMIT: Final = """
local meta, positions, journal, snapshot, marks, outbox, format = unpack(KEYS)
local commit = cjson.decode(ARGV[1])
local fence = redis.call('HGET', meta, 'fence') or '0'
if fence ~= commit.fence then return {'fence', fence, ''} end
local told = redis.call('GET', format) or ''
if told ~= commit.format then return {'format', told, ''} end
for _, expected in ipairs(commit.expected) do
  local told = redis.call('HGET', positions, expected[1])
  local at = told and cjson.decode(told)[2] or '0'
  if at ~= expected[2] then return {'position', at, expected[1]} end
end
-- A server that is out of memory refuses a script's first write only: this one, so nothing is written then.
local last = redis.call('HINCRBY', meta, 'outbox', #ARGV - 2)
for _, end_ in ipairs(commit.ends) do redis.call('HSET', positions, end_[1], end_[2]) end
for _, mark in ipairs(commit.marks) do redis.call('HSET', marks, mark[1], mark[2]) end
if commit.snapshot then
  redis.call('SET', snapshot, ARGV[2])
  redis.call('DEL', journal)
else
  for n, run in ipairs(commit.consumed) do
    local told = n == 1 and redis.call('LINDEX', journal, -1)
    local before = told and cjson.decode(told)
    if before and before[1] == run[1] and before[2] == run[2] and before[4] == run[3] then
      run[3] = before[3]
      redis.call('RPOP', journal)
    end
    redis.call('RPUSH', journal, cjson.encode(run))
  end
end
local kept = redis.call('LLEN', outbox)
local dropped = commit.published - (last - (#ARGV - 2) - kept)
if dropped > 0 then redis.call('LTRIM', outbox, dropped, -1) end
for n = 3, #ARGV do redis.call('RPUSH', outbox, ARGV[n]) end
return {'done', '', ''}
"""
"""Keys of the partition; ARGV: the step as JSON, the snapshot, the outputs. Returns what stood in the way:
an old fence, another format or another position, where nothing was written."""

MEND: Final = """
local meta, positions, journal, gaps = unpack(KEYS)
if redis.call('HGET', meta, 'fence') ~= ARGV[1] then return 0 end
local mended = cjson.decode(ARGV[2])
redis.call('HSET', positions, mended.slot, mended.position)
redis.call('DEL', journal)
for _, run in ipairs(mended.journal) do redis.call('RPUSH', journal, run) end
for _, gap in ipairs(mended.gaps) do redis.call('RPUSH', gaps, gap) end
return 1
"""
"""Meta, positions and journal of the partition, and the gaps; ARGV: our fence, what to write. Returns 0
when another worker took the stage."""

RAISE: Final = """
local told = redis.call('GET', KEYS[1])
if told and tonumber(string.match(told, '^%d+')) >= tonumber(string.match(ARGV[1], '^%d+')) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""
"""The format; ARGV: what to raise it to."""
