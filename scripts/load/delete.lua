-- DELETE of every key, each thread through its own part, again and again.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local entity = require("entity")
entity.install()

function request()
  return entity.without_body("DELETE", entity.next_index())
end
