-- Replace what an exchange holds by what it used. Once: a second time, or after a rebuild from the ledger that already
-- has it, nothing is left to replace.
--
-- KEYS  1 reservations: exchange -> packed {owner, budgets}
--       2 the same exchanges by the end of their lease
-- ARGV  1 packed {exchange, tokens, limits, amounts}
--         limits: {name, has tokens}; amounts: budget key -> nano-USD to be added to what is spent, or nil where the
--         money stays held until it is known
-- Gives {budget key, nano-USD spent now}...
local asked = cmsgpack.unpack(ARGV[1])
local exchange, tokens, limits, amounts = asked[1], asked[2], asked[3], asked[4]

for _, limit in ipairs(limits) do
  local name, counts_tokens = unpack(limit)
  local base = 'bursar:limit:' .. name
  redis.call('ZREM', base .. ':running', exchange)
  if counts_tokens then
    -- Only while it is in the window: what has left it is not counted any more.
    local reserved = redis.call('HGET', base .. ':amounts', exchange)
    if reserved then
      redis.call('HSET', base .. ':amounts', exchange, tokens)
      redis.call('HINCRBY', base .. ':amounts', 'sum', tokens - tonumber(reserved))
    end
  end
end

if not amounts then return {} end
local packed = redis.call('HGET', KEYS[1], exchange)
if not packed then return {} end
local _, budgets = unpack(cmsgpack.unpack(packed))
local now = {}
for _, budget in ipairs(budgets) do
  local key, reserved = unpack(budget)
  -- A count that is gone is not begun anew here, as if nothing else had been spent: the ledger has this amount, too.
  if redis.call('HEXISTS', key, 'spent') == 1 then
    redis.call('HINCRBY', key, 'reserved', -reserved)
    local spent = redis.call('HINCRBY', key, 'spent', amounts[key] or 0)
    now[#now + 1] = {key, spent}
  end
end
redis.call('HDEL', KEYS[1], exchange)
redis.call('ZREM', KEYS[2], exchange)
return now
