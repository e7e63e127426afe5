#!/bin/sh
#
# Installs from Debian what is missing for the tasks named.
#
# usage: t/tools/setup.sh [--ask] build|run|unit|test|pictures|fuzz|bench...
#
# A package counts as present if its command or file exists, from whatever
# source: a machine with its own node or python keeps them.  Root installs at
# once; for others the command is printed or, with --ask, run by sudo.  Nothing
# is asked and no package list is fetched if nothing is missing.

set -eu

ask=no
[ "${1:-}" != --ask ] || { ask=yes; shift; }

table() {
    case $1 in
    build)
        cat <<END
make                make
gcc                 cc
libc6-dev           /usr/include/stdlib.h
nginx-dev           /usr/share/nginx/src/conf_flags
libyajl-dev         /usr/include/yajl/yajl_parse.h
libssl-dev          /usr/include/openssl/evp.h
libsqlite3-dev      /usr/include/sqlite3.h
libpq-dev           /usr/include/postgresql/libpq-fe.h
libpcre2-dev        /usr/include/pcre2.h
zlib1g-dev          /usr/include/zlib.h
END
        ;;
    run)
        cat <<END
nginx               /usr/sbin/nginx
python3             python3
curl                curl
npm                 npm
ca-certificates     /etc/ssl/certs/ca-certificates.crt
END
        ;;
    unit)
        cat <<END
libcmocka-dev       /usr/include/cmocka.h
dpkg-dev            dpkg-source
xz-utils            xz
patch               patch
END
        ;;
    test)
        cat <<END
python3-venv        @venv
nodejs              node
npm                 npm
openssl             openssl
libnginx-mod-http-headers-more-filter  /usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so
jq                  jq
prometheus          promtool
chromium            chromium
postgresql          /usr/lib/postgresql
postgresql-client   psql
sqlite3             sqlite3
valgrind            valgrind
fonts-dejavu-core   /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
END
        ;;
    pictures)
        cat <<END
pngquant            pngquant
END
        ;;
    fuzz)
        cat <<END
clang               clang
python3             python3
libclang-rt-14-dev  /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux
END
        ;;
    bench)
        cat <<END
wrk                 wrk
util-linux          taskset
valgrind            valgrind
libnginx-mod-http-js   /usr/lib/nginx/modules/ngx_http_js_module.so
libnginx-mod-http-lua  /usr/lib/nginx/modules/ngx_http_lua_module.so
lua-cjson           /usr/share/lua/5.1/cjson/util.lua
END
        ;;
    *)
        echo "$0: unknown task \"$1\"" >&2
        exit 2
        ;;
    esac
}

present() {
    case $1 in
    /*)     [ -e "$1" ] ;;
    @venv)  python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    *)      command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing() {
    for task; do
        table "$task"
    done | while read -r package probe; do
        present "$probe" || printf ' %s' "$package"
    done
}

list=$(missing "$@")
[ -n "$list" ] || exit 0

install="apt-get install -y --no-install-recommends$list"

if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing:$list (Debian's names); please install them" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    sudo=
elif [ $ask = yes ] && command -v sudo >/dev/null 2>&1; then
    echo "missing:$list; installing them needs root"
    sudo=sudo
else
    echo "missing:$list; as root, run" >&2
    echo "    apt-get update && $install" >&2
    exit 1
fi

echo "installing:$list"
$sudo apt-get update
$sudo env DEBIAN_FRONTEND=noninteractive $install

case "$list " in
*" nginx "*)
    ! systemctl is-active -q nginx 2>/dev/null \
    || echo "note: Debian has started its nginx on port 80 with the" \
            "installation; to stop it: systemctl disable --now nginx"
    ;;
esac

case "$list " in
*" prometheus "*)
    ! systemctl is-active -q prometheus 2>/dev/null \
    || echo "note: Debian has started its prometheus on port 9090 with the" \
            "installation; to stop it: systemctl disable --now prometheus"
    ;;
esac

list=$(missing "$@")
if [ -n "$list" ]; then
    echo "still missing after installation:$list" >&2
    exit 1
fi
