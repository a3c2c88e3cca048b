-- One row of 64 values as JSON, again and again; what came of it as JSON.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

local values = {}
for place = 1, 64 do
  values[place] = string.format("%.3f", place / 64)
end
wrk.body = '{"instances": [[' .. table.concat(values, ",") .. "]]}"

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50_s": %f, "p99_s": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
