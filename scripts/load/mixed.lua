-- PUT and GET of random keys in turn.
package.path = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "?.lua;" .. package.path
local entity = require("entity")
entity.install()

function request()
  issued = issued + 1
  if issued % 2 == 0 then
    return entity.put(entity.random_index())
  end
  return entity.without_body("GET", entity.random_index())
end
