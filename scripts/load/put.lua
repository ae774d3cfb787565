-- PUT of every key, each thread through its own part from place FROM (default 0) on, again and again.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local entity = require("entity")
entity.install()

local FROM = tonumber(os.getenv("FROM") or "0")

function request()
  return entity.put(entity.next_index(FROM))
end
