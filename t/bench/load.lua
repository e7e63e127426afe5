-- wrk's script: posts the file BODY to the path of its URL, with the headers in
-- HEADERS ("name: value" lines), and prints what it counted as a line of JSON.

local file = assert(io.open(os.getenv("BODY"), "rb"))

wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/json"

for name, value in (os.getenv("HEADERS") or ""):gmatch("([^:\n]+): ([^\n]+)") do
    wrk.headers[name] = value
end

file:close()

function done(summary, latency, requests)
    local errors = summary.errors

    io.write(string.format(
        '{"requests":%d,"us":%d,"p50":%d,"p99":%d,"failed":%d}\n',
        summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), errors.connect + errors.read + errors.write
                                + errors.status + errors.timeout))
end
