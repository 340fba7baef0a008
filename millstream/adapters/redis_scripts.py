"""The Lua scripts of the Redis buffer: one script an operation, all keys of one namespace.

Keys: ``meta`` (format, applied, bytes, marks), ``rollouts`` (id → entry), ``payloads`` (id → compressed), ``groups``
(group → count), ``leases`` (training → lease), ``uses`` (trajectory → {lineage@parent: [count, held]}).
"""

from __future__ import annotations

from typing import Final

PARTS: Final = ("meta", "rollouts", "payloads", "groups", "leases", "uses")
"""The keys of a namespace, in the order in which the scripts get them."""

APPLY: Final = """
local meta, rollouts, payloads, groups, leases, uses = unpack(KEYS)
local offset, format, seen = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local applied = tonumber(redis.call('HGET', meta, 'applied') or '0')
if applied < seen or offset < applied then return applied end
local number, mark = tonumber(ARGV[4]), 'mark:' .. ARGV[5]
local taken = tonumber(redis.call('HGET', meta, mark) or '0')

local function evict(id, keep)
  local told = redis.call('HGET', rollouts, id)
  if not told then return end
  local entry = cjson.decode(told)
  redis.call('HDEL', rollouts, id)
  redis.call('HDEL', payloads, id)
  redis.call('HINCRBY', meta, 'bytes', string.format('%d', -entry.bytes))
  if redis.call('HINCRBY', groups, entry.group, -1) <= 0 then redis.call('HDEL', groups, entry.group) end
  if not keep then redis.call('HDEL', uses, entry.trajectory_id) end
end

local function each_use(ids, first, key, change)
  for n = first, #ids do
    local told = redis.call('HGET', rollouts, ids[n])
    if told then
      local trajectory = cjson.decode(told).trajectory_id
      local mine = cjson.decode(redis.call('HGET', uses, trajectory) or '{}')
      local use = change(mine[key])
      if use then
        mine[key] = use
        redis.call('HSET', uses, trajectory, cjson.encode(mine))
      end
    end
  end
end

local run = {}
function run.admit(op)
  evict(op[2], true)
  redis.call('HSET', rollouts, op[2], op[3])
  if op[4] > 0 then redis.call('HSET', payloads, op[2], ARGV[6 + op[4]]) end
  redis.call('HINCRBY', groups, op[5], 1)
  redis.call('HINCRBY', meta, 'bytes', string.format('%d', op[6]))
end
function run.evict(op)
  for n = 3, #op do evict(op[n], op[2]) end
end
function run.lease(op)
  redis.call('HSET', leases, op[2], op[3])
end
function run.acknowledge(op)
  redis.call('HDEL', leases, op[2])
  each_use(op, 4, op[3], function(use) return {(use and use[1] or 0) + 1, true} end)
end
function run.release(op)
  redis.call('HDEL', leases, op[2])
  each_use(op, 5, op[3], function(use)
    if use and use[2] then return {use[1] - (op[4] and 0 or 1), false} end
  end)
end

local ops = cjson.decode(ARGV[6])
if number > 0 and number <= taken then ops = {} end
local grows = false
for _, op in ipairs(ops) do grows = grows or op[1] == 'admit' end
-- A server that is out of memory refuses a script's first write only. What makes nothing larger begins
-- with a delete and goes through; an admission begins with a write, so it is refused whole.
if not grows then redis.call('HDEL', meta, '') end
for _, op in ipairs(ops) do run[op[1]](op) end
if number > taken then redis.call('HSET', meta, mark, ARGV[4]) end
redis.call('HSET', meta, 'applied', string.format('%d', offset + 1), 'format', format)
return offset + 1
"""
"""ARGV: offset, format, what was last seen applied, outbox number and source of the record (a repetition
only moves the offset), operations as JSON, payloads. Returns what is
applied now; less than what was seen means that the server lost data (nothing was done)."""

STATS: Final = """
local gone = 0
for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
  if redis.call('HEXISTS', KEYS[3], id) == 0 then gone = gone + 1 end
end
local told = redis.call('HMGET', KEYS[1], 'applied', 'bytes')
return {redis.call('HLEN', KEYS[2]), redis.call('HLEN', KEYS[4]), tonumber(told[1] or '0'), tonumber(told[2] or '0'),
  gone, redis.call('HVALS', KEYS[5]), redis.call('HVALS', KEYS[6])}
"""
"""Rollouts, groups, applied, bytes, rollouts without their payload, leases and uses. A script and no
transaction: a server that is out of memory refuses to begin one, even to read."""

DUMP: Final = """
return {redis.call('HGET', KEYS[1], 'applied') or '0', redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[4]), redis.call('HGETALL', KEYS[5]), redis.call('HGETALL', KEYS[6])}
"""
"""What is applied, and the tables without payloads, each as a flat list of names and values."""
