-- What the load sends, and its results on one line that the harness reads.
-- wrk formats the request once, after `init`. Arguments after `--`: the method, the octets of a body, and then
-- nothing, or `bearer TOKEN`, or `bearers FILE` for tokens in turn, a line each, or `basic FILE` or `post FILE` for client-credentials grants, in turn for all clients
-- of a file whose lines are an id, a space and a secret.

function init(args)
  wrk.method = args[1] or "GET"
  local octets = tonumber(args[2] or "0")
  if octets > 0 then
    wrk.body = string.rep("x", octets)
  end
  if args[3] == "bearer" then
    wrk.headers["Authorization"] = "Bearer " .. args[4]
  elseif args[3] == "bearers" then
    bearers(args[4])
  elseif args[3] then
    grants(args[3], args[4])
  end
end

function bearers(file)
  local requests = {}
  local headers = { ["Host"] = wrk.host .. ":" .. wrk.port }
  for token in io.lines(file) do
    headers["Authorization"] = "Bearer " .. token
    requests[#requests + 1] = wrk.format("GET", wrk.path, headers)
  end
  in_turn(requests)
end

-- Prepares a request for each client, so that nothing is formatted while the load runs.
function grants(how, file)
  local requests = {}
  local headers = { ["Host"] = wrk.host .. ":" .. wrk.port, ["Content-Type"] = "application/x-www-form-urlencoded" }
  for line in io.lines(file) do
    local id, secret = line:match("^(%S+) (%S+)$")
    local body = "grant_type=client_credentials"
    if how == "basic" then
      headers["Authorization"] = "Basic " .. base64(id .. ":" .. secret)
    else
      body = body .. "&client_id=" .. id .. "&client_secret=" .. secret
    end
    requests[#requests + 1] = wrk.format("POST", wrk.path, headers, body)
  end
  in_turn(requests)
end

function in_turn(requests)
  local next_one = 0
  function request()
    next_one = next_one % #requests + 1
    return requests[next_one]
  end
end

function base64(text)
  local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  return (text:gsub("..?.?", function(octets)
    local a, b, c = octets:byte(1, 3)
    local number = a * 65536 + (b or 0) * 256 + (c or 0)
    local word = ""
    for place = 0, 3 do
      local digit = math.floor(number / 64 ^ (3 - place)) % 64
      word = word .. (place <= #octets and digits:sub(digit + 1, digit + 1) or "=")
    end
    return word
  end))
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    "bench-load requests=%d duration_us=%d bytes=%d connect=%d read=%d write=%d status=%d timeout=%d p50_us=%d p99_us=%d p999_us=%d\n",
    summary.requests, summary.duration, summary.bytes,
    e.connect, e.read, e.write, e.status, e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
