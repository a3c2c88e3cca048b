-- Posts the files' contents in turn, and reports in JSON.
-- wrk ... -s post_bodies.lua URL -- CONTENT-TYPE FIRST SECOND ...

local requests = {}
local turn = 0

function init(arguments)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = arguments[1]
  for place = 2, #arguments do
    local file = assert(io.open(arguments[place], "rb"))
    -- Made once, so that sending costs little beside the server.
    requests[place - 1] = wrk.format(nil, nil, nil, file:read("*a"))
    file:close()
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "mean_s": %f, "p50_s": %f, "p95_s": %f, '
      .. '"p99_s": %f, "not_2xx": %d, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency.mean / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(95) / 1e6,
    latency:percentile(99) / 1e6, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
