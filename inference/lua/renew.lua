-- Keep the places and reservations of a process for another lease. What is no longer held is not taken again.
--
-- KEYS  1 the exchanges with a reservation, by the end of their lease
-- ARGV  1 packed {lease_s, {exchange, {limit names}}...}
local asked = cmsgpack.unpack(ARGV[1])
local until_s = tonumber(redis.call('TIME')[1]) + asked[1]
for index = 2, #asked do
  local exchange, names = unpack(asked[index])
  redis.call('ZADD', KEYS[1], 'XX', until_s, exchange)
  for _, name in ipairs(names) do
    local key = 'bursar:limit:' .. name .. ':running'
    redis.call('ZADD', key, 'XX', until_s, exchange)
    redis.call('EXPIRE', key, asked[1] * 2)
  end
end
