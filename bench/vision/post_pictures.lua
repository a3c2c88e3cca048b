-- Posts the pictures of a folder in turn, as files of a form, and reports in JSON.
-- wrk ... -s post_pictures.lua URL -- FIRST.jpg SECOND.jpg ...

local boundary = "till-picture-boundary"
local bodies = {}
local turn = 0

local function form(path)
  local file = assert(io.open(path, "rb"))
  local picture = file:read("*a")
  file:close()
  return "--" .. boundary .. "\r\n"
    .. 'Content-Disposition: form-data; name="file"; filename="picture.jpg"\r\n\r\n'
    .. picture .. "\r\n--" .. boundary .. "--"
end

function init(arguments)
  for place = 1, #arguments do
    bodies[place] = form(arguments[place])
  end
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "multipart/form-data; boundary=" .. boundary
end

function request()
  turn = turn % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[turn])
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "mean_s": %f, "p99_s": %f, "not_2xx": %d, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency.mean / 1e6,
    latency:percentile(99) / 1e6, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
