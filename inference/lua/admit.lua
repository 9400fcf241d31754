-- Admit one exchange, or say which limit refuses it and for how many milliseconds.
-- KEYS: 1 the starts of the last window (sorted by time), 2 the running answers (sorted by the end of their lease)
-- ARGV: 1 exchange, 2 requests per window, 3 window in seconds, 4 answers at once, 5 lease in seconds
-- Time is Valkey's own, so that the clocks of the callers do not matter.
local now = redis.call('TIME')
local seconds, micros = tonumber(now[1]), tonumber(now[2])
local ms = seconds * 1000 + math.floor(micros / 1000)
local window_ms = tonumber(ARGV[3]) * 1000

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', seconds)
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  return {'concurrency', 1000}
end

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms - window_ms)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  local wait = window_ms
  if oldest[2] then wait = tonumber(oldest[2]) + window_ms - ms end
  return {'rate', wait}
end

redis.call('ZADD', KEYS[1], ms, ARGV[1])
redis.call('PEXPIRE', KEYS[1], window_ms)
redis.call('ZADD', KEYS[2], seconds + tonumber(ARGV[5]), ARGV[1])
redis.call('EXPIRE', KEYS[2], tonumber(ARGV[5]) * 2)
return {'admitted', 0}
