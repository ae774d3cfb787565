-- GET of random keys. MISSES is the percentage of requests for keys that don't exist (default 0).
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local entity = require("entity")
entity.install()

local MISSES = tonumber(os.getenv("MISSES") or "0")

function request()
  issued = issued + 1
  local index = entity.random_index()
  if MISSES > 0 and math.random(100) <= MISSES then
    -- Never written, and in the middle of what was: absent keys must not be told by their range.
    return entity.without_body("GET", index, "/absent")
  end
  return entity.without_body("GET", index)
end
