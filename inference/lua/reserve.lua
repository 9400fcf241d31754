-- Admit one exchange under every limit and budget that it falls under, all or nothing.
--
-- KEYS  1 state of the budgets ("open:<generation>" when reservations may be made)
--       2 reservations: exchange -> packed {owner, budgets}
--       3 the same exchanges by the end of their lease, in seconds
-- ARGV  1 packed {exchange, owner, lease_s, window_ms, clock, tokens, limits, budgets}
--         clock:   {the caller's time, how far it may be from Valkey's}, in milliseconds
--         limits:  {name, requests, tokens, at once}, -1 where there is none
--         budgets: {key, amount, cap, {thresholds}}, money in nano-USD; the cap is the class's own, and holds
--       The keys of limits and budgets are made from their names: one Valkey holds all of them.
-- Gives {'admitted', generation, remaining..., stages}; or the limit that refuses and for how many milliseconds; or
-- the budget that has no room and what is spent of it; or 'rebuild' or 'load' where that is not known; or 'clock' and
-- by how many milliseconds the caller's is off, which would count its money in another month.
-- Limits go by Valkey's own time. Should that jump back, what was noted before counts as of now, and blocks nobody for hours.
local ask = cmsgpack.unpack(ARGV[1])
local exchange, owner, lease_s, window_ms, clock, tokens, limits, budgets = unpack(ask)
local now = redis.call('TIME')
local seconds = tonumber(now[1])
local ms = seconds * 1000 + math.floor(tonumber(now[2]) / 1000)

if #budgets > 0 and math.abs(clock[1] - ms) > clock[2] then return {'clock', 0, clock[1] - ms} end

local function keys_of(name)
  local base = 'bursar:limit:' .. name
  return base .. ':requests', base .. ':tokens', base .. ':amounts', base .. ':running'
end

-- What was noted later than now was noted before the clock jumped back: it is of now, at the latest.
local function not_after(key, latest)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. latest, '+inf')) do
    redis.call('ZADD', key, latest, member)
  end
end

-- Forget what has left the window; returns how many tokens are still in it.
local function tokens_in_window(by_time, amounts)
  local old = redis.call('ZRANGEBYSCORE', by_time, '-inf', ms - window_ms)
  for _, member in ipairs(old) do
    local amount = redis.call('HGET', amounts, member)
    if amount then
      redis.call('HINCRBY', amounts, 'sum', -tonumber(amount))
      redis.call('HDEL', amounts, member)
    end
    redis.call('ZREM', by_time, member)
  end
  return tonumber(redis.call('HGET', amounts, 'sum') or '0')
end

-- How long until enough of the window's tokens are gone; where many requests hold them, until the first of these are:
-- a refusal is not counted by any limit, and must not cost everybody's Valkey the whole window.
local function wait_for_tokens(by_time, amounts, excess)
  local members = redis.call('ZRANGE', by_time, 0, 499, 'WITHSCORES')
  local wait = window_ms
  for index = 1, #members, 2 do
    excess = excess - tonumber(redis.call('HGET', amounts, members[index]) or '0')
    wait = tonumber(members[index + 1]) + window_ms - ms
    if excess <= 0 then break end
  end
  return wait
end

local remaining = {-1, -1, -1, -1}  -- requests, of how many; tokens, of how many: the tightest of each

for index, limit in ipairs(limits) do
  local name, max_requests, max_tokens, at_once = unpack(limit)
  local requests_key, tokens_key, amounts_key, running_key = keys_of(name)
  if at_once >= 0 then
    redis.call('ZREMRANGEBYSCORE', running_key, '-inf', seconds)
    not_after(running_key, seconds + lease_s)
    if redis.call('ZCARD', running_key) >= at_once then return {'answers', index, 1000} end
  end
  if max_requests >= 0 then
    redis.call('ZREMRANGEBYSCORE', requests_key, '-inf', ms - window_ms)
    not_after(requests_key, ms)
    local used = redis.call('ZCARD', requests_key)
    if used >= max_requests then
      local oldest = redis.call('ZRANGE', requests_key, 0, 0, 'WITHSCORES')
      return {'requests', index, oldest[2] and tonumber(oldest[2]) + window_ms - ms or window_ms}
    end
    if remaining[1] < 0 or max_requests - used - 1 < remaining[1] then
      remaining[1], remaining[2] = max_requests - used - 1, max_requests
    end
  end
  if max_tokens >= 0 then
    not_after(tokens_key, ms)
    local used = tokens_in_window(tokens_key, amounts_key)
    if used + tokens > max_tokens then
      if tokens > max_tokens then return {'tokens', index, -1} end
      return {'tokens', index, wait_for_tokens(tokens_key, amounts_key, used + tokens - max_tokens)}
    end
    if remaining[3] < 0 or max_tokens - used - tokens < remaining[3] then
      remaining[3], remaining[4] = max_tokens - used - tokens, max_tokens
    end
  end
end

local generation = ''
local shares = {}
if #budgets > 0 then
  local state = redis.call('GET', KEYS[1])
  if not state or string.sub(state, 1, 5) ~= 'open:' then return {'rebuild', 0, 2000} end
  generation = string.sub(state, 6)
  for index, budget in ipairs(budgets) do
    local key, amount, cap, thresholds = unpack(budget)
    local spent = redis.call('HGET', key, 'spent')
    if not spent then return {'load', index, 0} end
    local held = tonumber(spent) + tonumber(redis.call('HGET', key, 'reserved') or '0')
    if held + amount > cap then return {'budget', index, tonumber(spent)} end
    -- The highest threshold that is reached without this request: what it is served with depends on it.
    local stage = 0
    for number, threshold in ipairs(thresholds) do
      if held >= threshold then stage = number end
    end
    shares[index] = stage
  end
end

for _, limit in ipairs(limits) do
  local name, max_requests, max_tokens, at_once = unpack(limit)
  local requests_key, tokens_key, amounts_key, running_key = keys_of(name)
  if max_requests >= 0 then
    redis.call('ZADD', requests_key, ms, exchange)
    redis.call('PEXPIRE', requests_key, window_ms)
  end
  if max_tokens >= 0 then
    redis.call('ZADD', tokens_key, ms, exchange)
    redis.call('HSET', amounts_key, exchange, tokens)
    redis.call('HINCRBY', amounts_key, 'sum', tokens)
    redis.call('PEXPIRE', tokens_key, window_ms)
    redis.call('PEXPIRE', amounts_key, window_ms)
  end
  if at_once >= 0 then
    redis.call('ZADD', running_key, seconds + lease_s, exchange)
    redis.call('EXPIRE', running_key, lease_s * 2)
  end
end
local held = {}
for index, budget in ipairs(budgets) do
  redis.call('HINCRBY', budget[1], 'reserved', budget[2])
  held[index] = {budget[1], budget[2]}
end
if #budgets > 0 then
  redis.call('HSET', KEYS[2], exchange, cmsgpack.pack({owner, held}))
  redis.call('ZADD', KEYS[3], seconds + lease_s, exchange)
end
return {'admitted', generation, remaining[1], remaining[2], remaining[3], remaining[4], unpack(shares)}
