-- Requests for wrk: the lines of the file BODIES in a random order, each the body of a POST to TARGET.
local bodies = {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local target, headers = os.getenv("TARGET"), { ["content-type"] = "application/json" }

function init()
  math.randomseed(os.time())
end

function request()
  return wrk.format("POST", target, headers, bodies[math.random(#bodies)])
end

function done(summary, latency)
  local failed = summary.errors.status + summary.errors.read + summary.errors.timeout + summary.errors.connect
  io.write(string.format(
    "RESULT %d %d %d %f %f\n", summary.requests, failed, summary.duration,
    latency:percentile(50.0), latency:percentile(99.0)))
end
