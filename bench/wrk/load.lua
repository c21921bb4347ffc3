-- What the load sends, and its results on one line that the harness reads.
-- wrk formats the request once, after `init`. Arguments after `--`: the method, and the octets of a body.

function init(args)
  wrk.method = args[1] or "GET"
  local octets = tonumber(args[2] or "0")
  if octets > 0 then
    wrk.body = string.rep("x", octets)
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    "bench-load requests=%d duration_us=%d bytes=%d connect=%d read=%d write=%d status=%d timeout=%d p50_us=%d p99_us=%d p999_us=%d\n",
    summary.requests, summary.duration, summary.bytes,
    e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
