-- wrk's script: posts the file BODY to the path of its URL, with the headers in
-- HEADERS ("name: value" lines) and the keys in KEYS (a secret a line) in turn,
-- and prints what it counted as a line of JSON.

local function read(name)
    local file = assert(io.open(os.getenv(name), "rb"))
    local text = file:read("*a")

    file:close()
    return text
end

local requests, n, last = {}, 0, 0

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

for name, value in (os.getenv("HEADERS") or ""):gmatch("([^:\n]+): ([^\n]+)") do
    wrk.headers[name] = value
end

-- the requests are made before the load begins, and in no more than 32 MB

function init(args)
    local body = read("BODY")
    local most = math.max(4, math.floor(32 * 1024 * 1024 / #body))

    for secret in read("KEYS"):gmatch("[^\n]+") do
        if n < most then
            n = n + 1
            wrk.headers["Authorization"] = "Bearer " .. secret
            requests[n] = wrk.format(nil, nil, nil, body)
        end
    end
end

function request()
    last = last % n + 1
    return requests[last]
end

function done(summary, latency, requests)
    local errors = summary.errors

    io.write(string.format(
        '{"requests":%d,"us":%d,"p50":%d,"p99":%d,"failed":%d}\n',
        summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), errors.connect + errors.read + errors.write
                                + errors.status + errors.timeout))
end
