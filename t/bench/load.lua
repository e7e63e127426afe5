-- wrk's script: posts the file BODY to the path of its URL, with the headers in
-- HEADERS ("name: value" lines) and the keys in KEYS (a secret a line) in turn,
-- and prints what it counted as a line of JSON.
--
-- The body has a number of 16 digits, NUMBER, which is another in each call, so
-- none is like an earlier one.  With LENGTHS, each key has a conversation: its
-- calls send as many bytes of the body, and END after them, one length after
-- the other, under one number; then another conversation begins.  FIRST is the
-- number to go on with, and "next" of the output the one of another run.

local ffi = require "ffi"

local function read(name)
    local file = assert(io.open(os.getenv(name), "rb"))
    local text = file:read("*a")

    file:close()
    return text
end

local number = os.getenv("NUMBER")
local secrets, requests = {}, {}

calls = tonumber(os.getenv("FIRST"))    -- of this thread's state, see done()

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

for name, value in (os.getenv("HEADERS") or ""):gmatch("([^:\n]+): ([^\n]+)") do
    wrk.headers[name] = value
end

-- the requests are made before the load begins

local function prepare(body)
    local request = wrk.format(nil, nil, nil, body)

    requests[#requests + 1] = {
        text = request,
        secret = request:find(secrets[1], 1, true) - 1,
        number = request:find(number, 1, true) - 1
    }
end

function init(args)
    local body = read("BODY")

    for secret in read("KEYS"):gmatch("[^\n]+") do
        secrets[#secrets + 1] = secret
    end

    wrk.headers["Authorization"] = "Bearer " .. secrets[1]

    for length in (os.getenv("LENGTHS") or ""):gmatch("%d+") do
        prepare(body:sub(1, tonumber(length)) .. os.getenv("END"))
    end

    if #requests == 0 then
        prepare(body)
    end
end

-- wrk copies what this returns before it asks again: so bytes are changed in
-- place, as to make strings of 2 MB would cost it more than to send them

function request()
    local key = calls % #secrets
    local turn = math.floor(calls / #secrets)
    local request = requests[turn % #requests + 1]
    local conversation = math.floor(turn / #requests) * #secrets + key
    local at = ffi.cast("char *", request.text)

    ffi.copy(at + request.secret, secrets[key + 1], #secrets[key + 1])
    ffi.copy(at + request.number, string.format("%016d", conversation), 16)

    calls = calls + 1
    return request.text
end

local thread

function setup(started)
    thread = started
end

function done(summary, latency, requests)
    local errors = summary.errors

    io.write(string.format(
        '{"requests":%d,"us":%d,"p50":%d,"p99":%d,"failed":%d,"next":%d}\n',
        summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), errors.connect + errors.read + errors.write
                                + errors.status + errors.timeout,
        thread:get("calls")))
end
