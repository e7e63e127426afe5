#!/bin/bash
#
# The demo: a stub of both upstreams, nginx with conf/, two fresh keys, an
# operator, and what to paste.  Stays in the foreground; Ctrl-C stops all of it.
#
# From the environment:
#
#     MODELGW_PORT        where to listen on 127.0.0.1 (8080)
#     MODELGW_A_HOST      the host of group a's vendor (messages API), over TLS,
#     MODELGW_A_SECRET    with this credential, instead of the stub
#     MODELGW_A_MODEL     the vendor's id for the model family_a-large
#     MODELGW_B_...       the same for group b (chat API), family_b-chat
#
# and, from the Makefile, MODELGW_MODULE, MODELGW_NGINX, MODELGW_CONSOLE and
# MODELGW_RUN.

set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/.." && pwd)
run=${MODELGW_RUN:-$top/build/run}
conf=$run/conf/modelgw
module=${MODELGW_MODULE:-$top/build/ngx_http_modelgw_module.so}
console=${MODELGW_CONSOLE:-$top/build/console}
nginx=${MODELGW_NGINX:-nginx}
port=${MODELGW_PORT:-8080}
pids=()

die() {
    echo "make run: $*" >&2
    exit 1
}

stop() {
    trap - EXIT
    trap '' INT TERM HUP
    [ ${#pids[@]} -eq 0 ] || { kill -TERM "${pids[@]}"; wait; } 2>/dev/null
    rm -f "$conf"/*.secret
    exit "${1:-0}"
}

trap 'stop $?' EXIT
trap 'echo; echo "stopped"; stop 0' INT TERM HUP


# True if something listens on the port, or it cannot be bound.

taken() {
    ! python3 - "$1" <<'END' 2>/dev/null
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
END
}

# True if nginx is ready for calls.

ready() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port" \
        && printf 'GET /ready HTTP/1.0\r\n\r\n' >&3 \
        && grep -q '^HTTP/1.1 200 ' <&3) 2>/dev/null
}

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

hash() {
    printf %s "$1" | sha256sum | cut -d' ' -f1
}

secret() {
    (umask 077; printf '%s\n' "$2" > "$conf/$1.secret")
}


# Replaces the stub of group $1 by a real vendor.

vendor() {
    local group=$1 host=$2 model=$3 name tls_port

    [[ $host =~ ^[A-Za-z0-9.-]+(:[0-9]+)?$ ]] || die "not a host: $host"
    [[ $model =~ ^[A-Za-z0-9._:/@-]*$ ]] || die "not a model id: $model"
    name=${host%%:*}
    tls_port=443
    [ "$name" = "$host" ] || tls_port=${host##*:}

    # both groups have one host: one upstream block serves them

    if grep -q "upstream $name {" "$run/conf/nginx.conf"; then
        sed -i "/upstream vendor-$group\.example {/,/}/d" "$run/conf/nginx.conf"
    fi

    sed -i -e "/upstream vendor-$group\.example {/,/}/{
                   s/vendor-$group\.example/$name/
                   s/server .*;/server  $name:$tls_port;/
               }" \
        -e "s#http://vendor-$group\.example;#https://$name;#" \
        "$run/conf/nginx.conf"

    [ -z "$model" ] || sed -i -e \
        "s#\(model family_$group-\(large\|chat\)  *\)[^ ]*#\1$model#" \
        "$run/conf/nginx.conf"
}


configure() {
    umask 022
    mkdir -p "$run/modules" || die "cannot write $run"
    rm -f "$run/admin.sock"
    ln -sf "$module" "$run/modules/ngx_http_modelgw_module.so"
    cp -R "$top/conf/." "$run/conf"

    # the packaged nginx has its directories elsewhere, owned by others

    sed -i -e "s/127\.0\.0\.1:8080/127.0.0.1:$port/" \
        -e "s/127\.0\.0\.1:8081/127.0.0.1:${stub_port:-8081}/" \
        -e "s#/var/log/nginx/modelgw\.log#logs/access.log#" \
        -e "s#/var/log/nginx/error\.log#logs/error.log#" \
        -e "s#/var/lib/modelgw/ledger\.db#$run/ledger.db#" \
        -e "s#/run/modelgw-admin\.sock#$run/admin.sock#" \
        -e "/include  modelgw\/log.conf;/i\\
    client_body_temp_path  client_body_temp;\\
    proxy_temp_path        proxy_temp;\\
    fastcgi_temp_path      fastcgi_temp;\\
    uwsgi_temp_path        uwsgi_temp;\\
    scgi_temp_path         scgi_temp;\\
" \
        "$run/conf/nginx.conf"

    sed -i "s#/usr/share/modelgw/console/#$console/#" "$conf/console.conf"

    for group in a b; do
        [ "${host[$group]}" = "" ] \
            || vendor $group "${host[$group]}" "${model[$group]}"
    done

    key_a=sk-eu-$(random)
    key_b=sk-eu-$(random)
    token=op-eu-$(random)
    (
        umask 077
        printf '%s  sha256:%s  %s  account=demo;\n' \
            demo-a "$(hash "$key_a")" a demo-b "$(hash "$key_b")" b \
            > "$conf/keys.conf"
        printf '%s  sha256:%s  %s;\n' operator "$(hash "$token")" admin \
            > "$conf/operators.conf"
    )
}


start_stub() {
    coproc STUB { exec python3 "$here/stub.py" 127.0.0.1:0 \
        "$conf/a.secret" "$conf/b.secret"; }
    pids+=("$STUB_PID")
    read -r -t 10 stub_port <&"${STUB[0]}" || die "the stub does not start"
}

# A ledger that is new gets a day of calls, unless vendors are real: what is in
# their ledger was spent.  nginx makes the file, but may not have it open.

day() {
    [ ! -e "$run/ledger.db" ] && [ -z "${host[a]}${host[b]}" ] || return 0

    start_nginx
    kill -QUIT "${pids[-1]}"
    wait "${pids[-1]}"
    unset 'pids[-1]'

    python3 "$here/day.py" "$run/ledger.db" \
        || die "the ledger gets no day of calls: delete $run/ledger.db"
}


start_nginx() {
    global="daemon off; pid logs/nginx.pid;"

    # workers of root's nginx run as "nobody", which root's directories refuse
    [ "$(id -u)" != 0 ] || global="$global user $(id -un) $(id -gn);"

    "$nginx" -p "$run/" -c conf/nginx.conf -g "$global" -t -q \
        || die "nginx refuses $run/conf/nginx.conf"
    "$nginx" -p "$run/" -c conf/nginx.conf -g "$global" &
    pids+=($!)

    for _ in $(seq 200); do
        ! ready || return 0
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done

    tail -n 5 "$run/logs/error.log" >&2
    die "nginx does not start"
}


# What to paste.  $1 what it shows, the rest is curl's arguments.

show() {
    printf '\n# %s\n%s' "$1" "$curl"
    shift
    printf ' %s' "$@"
    echo
}

call() {
    show "$1" "$base$2" "-H 'Authorization: Bearer $3'" "--json '$4'" "${@:5}"
}

heading() {
    printf '\n\n======== %s ========\n' "$1"
}

usage() {
    # the status on a line of its own, after the body
    curl='curl -sSw "\n%{http_code}\n"'
    base=http://127.0.0.1:$port
    chat=/v1/chat/completions
    messages=/v1/messages
    responses=/v1/responses
    v="-H 'anthropic-version: 2023-06-01'"
    hello='"messages":[{"role":"user","content":"Hello, who are you?"}]'
    a='"model":"family_a-large","max_tokens":256'
    b='"model":"family_b-chat"'

    fail() {
        call "$1" $chat "$key_b" \
            "{$b,\"messages\":[{\"role\":\"user\",\"content\":\"please fail $2\"}]}"
    }

    heading "the API"
    call "chat" $chat "$key_b" "{$b,$hello}"
    call "chat, streamed" $chat "$key_b" "{$b,\"stream\":true,$hello}" -N
    call "chat, translated: group a speaks messages" $chat "$key_a" \
        "{$a,$hello}"
    call "chat, translated and streamed" $chat "$key_a" \
        "{$a,\"stream\":true,\"stream_options\":{\"include_usage\":true},$hello}" \
        -N
    call "messages" $messages "$key_a" "{$a,$hello}" "$v"
    call "messages, streamed; the key may be in x-api-key too" $messages \
        "$key_a" "{$a,\"stream\":true,$hello}" "$v" -N \
        | sed "s/Authorization: Bearer/x-api-key:/"
    call "responses, translated to messages" $responses \
        "$key_a" '{"model":"family_a-large","input":"Hello, who are you?"}'
    call "responses, translated to chat, and streamed" $responses "$key_b" \
        "{$b,\"stream\":true,\"input\":\"Hello, who are you?\"}" -N
    [ -n "${host[b]}" ] || call "embeddings" /v1/embeddings "$key_b" \
        '{"model":"family_b-embed","input":["Hello","Goodbye"]}'
    call "count the tokens of messages" $messages/count_tokens "$key_a" \
        "{\"model\":\"family_a-large\",$hello}" "$v"
    show "the models of a key" $base/v1/models \
        "-H 'Authorization: Bearer $key_a'"
    show "one model" $base/v1/models/family_b-chat \
        "-H 'Authorization: Bearer $key_b'"

    ctl() {
        printf '\n# %s\n%s/conf/modelgwctl --socket %s/admin.sock %s\n' \
            "$1" "$top" "$run" "$2"
    }

    heading "credit: both keys draw on account demo, which was opened with 5 euro"
    ctl "accounts; calls before this run are made up" "accounts"
    ctl "top up; the same id again changes nothing" \
        "topup demo 10.00 invoice-17"
    ctl "usage by model" "usage --by model"
    ctl "usage by hour" "usage --by hour --from -24h"

    heading "keys, health, metrics, the console's interface"
    ctl "a new key, that works at once" "key new erin --group b --account demo"
    ctl "all keys" "key list"
    ctl "its end" "key revoke erin"
    ctl "health" "status"
    show "for Prometheus" $base/metrics
    show "as the operator" $base/console/api/accounts/demo \
        "-H 'Authorization: Bearer $token'"
    show "a key sees its own account" $base/console/api/accounts/demo \
        "-H 'Authorization: Bearer $key_b'"

    heading "errors that the gateway makes"
    show "401 API_KEY_REQUIRED" "$base$chat" "--json '{$b,$hello}'"
    call "401 INVALID_API_KEY" $chat sk-eu-nobody "{$b,$hello}"
    call "400 INVALID_JSON" $chat "$key_b" "{$b,$hello"
    call "400 MISSING_FIELD" $chat "$key_b" "{$b}"
    call "400 INVALID_FIELD" $chat "$key_b" "{$b,\"stream\":\"yes\",$hello}"
    call "400 INVALID_MODEL" $chat "$key_b" "{\"model\":\"gpt-zero\",$hello}"
    call "400 UNSUPPORTED_FIELD: messages has no second choice" $chat "$key_a" \
        "{$a,\"n\":2,$hello}"
    call "400 UNSUPPORTED_FIELD: nothing is stored for responses" $responses \
        "$key_b" "{$b,\"previous_response_id\":\"resp_1\",\"input\":\"Hello\"}"
    call "402 INSUFFICIENT_CREDIT" $chat "$key_b" \
        "{$b,\"max_tokens\":99999999,$hello}"
    call "403 PROVIDER_MISMATCH: a model of the other group" $messages \
        "$key_a" "{\"model\":\"family_b-chat\",\"max_tokens\":9,$hello}" "$v"
    show "404 NOT_FOUND" $base/v1/nothing "-H 'Authorization: Bearer $key_b'"
    show "405 METHOD_NOT_ALLOWED" "$base$chat" \
        "-H 'Authorization: Bearer $key_b'"
    printf '\n# 413 REQUEST_TOO_LARGE\n'
    echo "head -c 40000000 /dev/zero | $curl $base$chat" \
        "-H 'Authorization: Bearer $key_b' --data-binary @-"

    [ "$stub" = yes ] || return 0

    heading "errors of the upstream"
    fail "429 RATE_LIMITED (add -i to see Retry-After)" 429
    fail "400 CONTEXT_LENGTH_EXCEEDED" 400
    fail "502 UPSTREAM_ERROR: the upstream's 500" 500
    fail "503 UPSTREAM_OVERLOADED: the upstream's 529" 529
}


declare -A host=([a]=${MODELGW_A_HOST:-} [b]=${MODELGW_B_HOST:-})
declare -A key=([a]=${MODELGW_A_SECRET:-} [b]=${MODELGW_B_SECRET:-})
declare -A model=([a]=${MODELGW_A_MODEL:-} [b]=${MODELGW_B_MODEL:-})

[[ $port =~ ^[0-9]+$ ]] || die "MODELGW_PORT is not a number: $port"
! taken "$port" \
    || die "port $port is taken: stop the program that listens there, or set MODELGW_PORT"

mkdir -p "$conf" "$run/logs" || die "cannot write $run"
stub=no
for group in a b; do
    upper=${group^^}
    if [ -n "${host[$group]}" ] && [ -z "${key[$group]}" ]; then
        die "MODELGW_${upper}_HOST is set, MODELGW_${upper}_SECRET is not"
    elif [ -n "${key[$group]}" ] && [ -z "${host[$group]}" ]; then
        die "MODELGW_${upper}_SECRET is set, MODELGW_${upper}_HOST is not"
    fi
    [ -n "${host[$group]}" ] || stub=yes
    secret $group "${key[$group]:-$(random)}"
done

[ $stub = no ] || start_stub
configure
day
start_nginx
usage

page=http://127.0.0.1:$port/console/
[ -e "$console/index.html" ] \
    || page="(not there: its files are made by \"make console\", which needs npm)"

cat <<END


modelgw listens on http://127.0.0.1:$port, with these keys (made for this run):

    KEY_A=$key_a   # group a: messages, chat and responses, family_a-*
    KEY_B=$key_b   # group b: chat, responses, embeddings, family_b-*

Paste any line from above into another terminal.  Calls are logged in
    $run/logs/access.log

======== the console ========

    $page

    $token   # signs in the operator, in this run
    KEY_A or KEY_B signs in its holder, who sees the account demo only

Ctrl-C stops everything.
END

# ends when one of the two exits, or by the traps

wait -n "${pids[@]}"
die "$([ -n "$(jobs -r)" ] && echo "one of the two" || echo all) ended:" \
    "see $run/logs/error.log"
