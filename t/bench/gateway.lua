-- What a gateway in Lua does: see cases.py.  The body is replaced by a string
-- and not made from the table again, which would cost more.

local cjson = require "cjson.safe"
local ffi = require "ffi"

ffi.cdef [[ unsigned char *SHA256(const unsigned char *d, size_t n,
                                  unsigned char *md); ]]

local digest = ffi.new("unsigned char[32]")

local models = {
    ["bench-large"] = "large-2026-01-01", ["bench-small"] = "small-2026-01-01"
}

local keys = {}

for line in io.lines(ngx.config.prefix() .. "keys") do
    keys[line:gsub("%x%x", function(h) return string.char(tonumber(h, 16)) end)]
        = true
end

local function refuse(status, code)
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.print(cjson.encode({ code = code, message = code }))
    ngx.exit(ngx.HTTP_OK)
end

local function check()
    local secret = (ngx.var.http_authorization or ""):match("^Bearer (.+)$")

    if not secret then
        return refuse(401, "API_KEY_REQUIRED")
    end

    ffi.C.SHA256(secret, #secret, digest)

    if not keys[ffi.string(digest, 32)] then
        return refuse(401, "INVALID_API_KEY")
    end

    ngx.req.read_body()

    local body = ngx.req.get_body_data()
    local document = body and cjson.decode(body)

    if type(document) ~= "table" then
        return refuse(400, "INVALID_JSON")
    end

    local model = models[document.model]

    if not model then
        return refuse(400, "INVALID_MODEL")
    end

    local from, to = body:find('"model":"' .. document.model .. '"', 1, true)

    ngx.req.set_body_data(body:sub(1, from - 1) .. '"model":"' .. model .. '"'
                          .. body:sub(to + 1))
    ngx.req.set_header("Authorization", "Bearer an-upstream-credential")
end

return { check = check }
