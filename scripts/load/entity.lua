-- What the load scripts share: keys, values, requests, the choice of keys, and the closing report.
--
-- wrk runs one copy of a script for each of its threads and one more for setup() and done(). A
-- thread's copy knows its `thread_number` (from 0) and the `thread_count`. Settings come by environment:
--   KEYS    keys of the data set (default 1000000)
--   SEED    start of the random choice of keys (default 1)
--   STATUS  0: don't look at each answer's status, which costs the client time; 404s are then
--           counted with the other errors (default 1)

local entity = {}

local KEYS = tonumber(os.getenv("KEYS") or "1000000")
local SEED = tonumber(os.getenv("SEED") or "1")
local VALUE_BYTES = 100

local threads = {}
local head_start, head_end

-- Makes the script's setup(), init(), response() and done().
function entity.install()
  function setup(thread)
    thread:set("thread_number", #threads)
    threads[#threads + 1] = thread
    for _, other in ipairs(threads) do
      other:set("thread_count", #threads)
    end
  end

  function init()
    math.randomseed(SEED * 1000 + thread_number)
    head_start = " /v0/entity?id="
    head_end = " HTTP/1.1\r\nHost: " .. wrk.headers["Host"] .. "\r\n"
    issued, not_found, refused = 0, 0, 0
  end

  if os.getenv("STATUS") ~= "0" then
    function response(status)
      if status == 404 then
        not_found = not_found + 1
      elseif status < 200 or status > 299 then
        refused = refused + 1
      end
    end
  end

  done = entity.report
end

function entity.key(index)
  return string.format("key%09d", index)
end

function entity.value(index)
  local text = string.format("value of key %09d ", index)
  return text .. string.rep("x", VALUE_BYTES - #text)
end

-- Any key of the data set.
function entity.random_index()
  return math.random(0, KEYS - 1)
end

-- First index of this thread's part of the keys, and how many there are in it.
function entity.partition()
  local first = math.floor(KEYS * thread_number / thread_count)
  return first, math.floor(KEYS * (thread_number + 1) / thread_count) - first
end

-- Indexes of this thread's part of the keys one after the other from place `from` on (0 if none is
-- given), again and again. wrk asks thread 0
-- for a request once before it starts and sends it nowhere, so the first index is given out twice.
function entity.next_index(from)
  local first, size = entity.partition()
  local place = math.max(0, issued - 1) + (from or 0)
  issued = issued + 1
  return first + place % size
end

function entity.put(index)
  return "PUT" .. head_start .. entity.key(index) .. head_end
    .. "Content-Length: " .. VALUE_BYTES .. "\r\n\r\n" .. entity.value(index)
end

-- A request without a body, for a key or, with a suffix, for one that was never written.
function entity.without_body(method, index, suffix)
  return method .. head_start .. entity.key(index) .. (suffix or "") .. head_end .. "\r\n"
end

-- Prints what each thread saw, then one line of figures for scripts/load/run.
function entity.report(summary, latency)
  local not_found, refused = 0, 0
  local issued_min = math.huge
  for index, thread in ipairs(threads) do
    local thread_not_found, thread_refused = thread:get("not_found"), thread:get("refused")
    io.write(string.format("thread %d: 404 %d, other non-2xx %d\n",
      index, thread_not_found, thread_refused))
    not_found = not_found + thread_not_found
    refused = refused + thread_refused
    issued_min = math.min(issued_min, thread:get("issued"))
  end
  local errors = summary.errors
  if os.getenv("STATUS") == "0" then
    refused = errors.status
  end
  io.write(string.format(
    "figures requests=%d seconds=%.3f p50_us=%d p90_us=%d p99_us=%d max_us=%d "
      .. "refused=%d not_found=%d socket_errors=%d issued_min=%d\n",
    summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max,
    refused, not_found,
    errors.connect + errors.read + errors.write + errors.timeout, issued_min))
end

return entity
