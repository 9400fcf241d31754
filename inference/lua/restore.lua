-- Bring the budgets to what the ledger says, and open them under a generation.
--
-- KEYS  1 state of the budgets
--       2 reservations: exchange -> packed {owner, budgets}
--       3 the same exchanges by the end of their lease
--       4 whose count it is
-- ARGV  1 packed {generation, lease_s, spent, open, closed, keeps}
--         spent: {budget key, nano-USD, seconds until it is forgotten}
--         open:  {exchange, owner, {{budget key, nano-USD}...}}: intents without an outcome
--         closed: exchanges that the ledger has, whose reservation is no longer needed
--         keeps: whether reservations that the ledger does not know yet are kept (they are not, after a loss of data)
--       2 who counted: nothing is brought in where another has begun to count since
if redis.call('GET', KEYS[4]) ~= ARGV[2] then
  return redis.error_reply('SUPERSEDED another process counts the budgets')
end
local generation, lease_s, spent, open, closed, keeps = unpack(cmsgpack.unpack(ARGV[1]))
local until_s = tonumber(redis.call('TIME')[1]) + lease_s

if not keeps then
  redis.call('DEL', KEYS[2], KEYS[3])
end
for _, exchange in ipairs(closed) do
  redis.call('HDEL', KEYS[2], exchange)
  redis.call('ZREM', KEYS[3], exchange)
end
for _, entry in ipairs(open) do
  local exchange, owner, held = unpack(entry)
  redis.call('HSET', KEYS[2], exchange, cmsgpack.pack({owner, held}))
  redis.call('ZADD', KEYS[3], 'NX', until_s, exchange)
end

local reserved = {}
local packed = redis.call('HVALS', KEYS[2])
for _, entry in ipairs(packed) do
  for _, held in ipairs(cmsgpack.unpack(entry)[2]) do
    reserved[held[1]] = (reserved[held[1]] or 0) + held[2]
  end
end
for _, budget in ipairs(spent) do
  local key, amount, seconds = unpack(budget)
  redis.call('HSET', key, 'spent', amount, 'reserved', reserved[key] or 0)
  redis.call('EXPIRE', key, seconds)
end
redis.call('SET', KEYS[1], 'open:' .. generation)
