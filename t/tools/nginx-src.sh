#!/bin/sh
#
# Fetches the sources of an nginx series into build/src/nginx-SERIES.
#
# usage: t/tools/nginx-src.sh 1.22|1.26|1.30
#
# The sources are Debian's: the module is built for what Debian ships, its
# patches included.  Their location is derived from the machine's own apt
# sources, with the suites of the other releases in place of its own; apt's
# lists and cache are private, under build/apt, so that the machine's are not
# touched.  A mirror's index may name files that it does not have (yet).  If
# Debian's patches are missing, the release is used without them; if the
# release is missing, the newest one is used, from the crate nginx-src.
#
# Exit status: 0 the sources are there, 3 they are not available.

set -eu

series=$1
cd "$(dirname "$0")/../.."
case ${BUILD:-build} in
/*)     build=$BUILD ;;
*)      build=$PWD/${BUILD:-build} ;;
esac
apt=$build/apt
dest=$build/src/nginx-$series

[ ! -f "$dest/.complete" ] || { cat "$dest/.complete"; exit 0; }

case $series in
1.22)   suites="bookworm bookworm-security" ;;
1.26)   suites="trixie trixie-security" ;;
*)      suites="forky sid trixie-backports" ;;
esac


# Prints "kind uri signed-by" for the machine's Debian archives, of which kind
# is main or security; both formats of sources, deb822 and one-line.

archives() {
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '
        function flush(    kind, n, u, i) {
            if (types ~ /deb/ && suites != "" && components ~ /main/) {
                kind = suites ~ /-security/ ? "security" : "main"
                n = split(uris, u, " ")
                for (i = 1; i <= n; i++) print kind, u[i], signed
            }
            types = uris = suites = components = signed = ""
        }
        /^#/                { next }
        /^[ \t]*$/          { flush(); next }
        { key = $1; $1 = ""; sub(/^ /, "") }
        key == "Types:"      { types = $0 }
        key == "URIs:"       { uris = $0 }
        key == "Suites:"     { suites = $0 }
        key == "Components:" { components = $0 }
        key == "Signed-By:"  { signed = $1 }
        END                 { flush() }'

    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null \
    | sed -n 's/^deb\(-src\)\{0,1\}[ \t]\{1,\}//p' | awk '
        {
            signed = ""
            if ($0 ~ /^\[/) {
                options = $0; sub(/\].*/, "", options)
                sub(/^[^]]*\][ \t]*/, "")
                if (match(options, /signed-by=[^ \t]*/))
                    signed = substr(options, RSTART + 10, RLENGTH - 10)
            }
            if ($0 ~ /main/)
                print ($2 ~ /-security/ ? "security" : "main"), $1, signed
        }'
}


# Only Debian's archives: those whose path ends as Debian's does.

sources() {
    archives | awk -v suites="$suites" '
        $2 !~ /\/debian(-security)?\/?$/ || seen[$1]++ { next }
        {
            option = $3 == "" ? "" : "[signed-by=" $3 "] "
            n = split(suites, s, " ")
            for (i = 1; i <= n; i++)
                if (($1 == "security") == (s[i] ~ /-security/))
                    print "deb-src " option $2 " " s[i] " main"
        }'
}


private() {
    command=$1
    shift
    "$command" -q \
        -o Dir::State="$apt/state" -o Dir::Cache="$apt/cache" \
        -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Etc::sourcelist="$apt/$series.list" -o Dir::Etc::sourceparts=- \
        -o APT::Update::Post-Invoke-Success::=true \
        -o APT::Sandbox::User=root -o Acquire::Retries=2 "$@"
}


from_debian() {
    command -v apt-get >/dev/null 2>&1 || return 1
    command -v dpkg-source >/dev/null 2>&1 || return 1

    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" \
             "$apt/$series" "$build/src"
    sources > "$apt/$series.list"
    [ -s "$apt/$series.list" ] || return 1

    private apt-get update >"$apt/$series.log" 2>&1 || true

    # newest first: a security update replaces its release's

    versions=$(private apt-cache showsrc nginx 2>/dev/null \
        | sed -n "s/^Version: \($series\..*\)/\1/p" | sort -Vru)

    for version in $versions; do
        if (cd "$apt/$series" \
            && private apt-get source --download-only "nginx=$version" \
               >>"$apt/$series.log" 2>&1)
        then
            rm -rf "$dest"
            dpkg-source --no-check -x "$apt/$series/nginx_${version#*:}.dsc" \
                "$dest" >>"$apt/$series.log" 2>&1 || return 1
            rm -f "$build"/src/*.orig.tar.*
            from="Debian's nginx $version"
            return 0
        fi
        echo "nginx $version is in the index of Debian's mirror," \
             "but its files are not there"
    done

    return 1
}


# The releases that failed downloads of Debian's sources have left, newest
# first.

from_release() {
    for tarball in $(ls -v "$apt/$series"/nginx_*.orig.tar.?z 2>/dev/null \
                     | tac)
    do
        rm -rf "$dest"
        mkdir -p "$dest"
        if tar -xf "$tarball" -C "$dest" --strip-components=1 \
           >>"$apt/$series.log" 2>&1
        then
            from="Debian's mirror, without its patches"
            return 0
        fi
    done

    rm -rf "$dest"
    return 1
}


from_crate() {
    command -v cargo >/dev/null 2>&1 || return 1
    mkdir -p "$build/src/crate-$series"
    cd "$build/src/crate-$series" || return 1

    rm -rf Cargo.lock vendor src
    mkdir -p src
    : > src/lib.rs
    printf '%s\n' '[package]' 'name = "fetch"' 'version = "0.0.0"' \
        'edition = "2021"' '[dependencies]' 'nginx-src = "1"' '[workspace]' \
        > Cargo.toml
    cargo vendor -q vendor >"$build/src/crate-$series.log" 2>&1 || return 1
    tree=$(find vendor/nginx-src* -path '*/auto/configure' 2>/dev/null \
           | head -n 1)
    [ -n "$tree" ] || return 1
    rm -rf "$dest"
    cp -R "${tree%/auto/configure}" "$dest"
    from="the crate nginx-src"
}


# Unit tests compile parts of the packaged nginx, with its headers: another
# series cannot replace it.

packaged() {
    grep -qs "NGINX_VERSION *\"$series\." \
        "${NGINX_SRC:-/usr/share/nginx/src}/src/core/nginx.h"
}


if from_debian || from_release; then
    :
elif ! packaged && from_crate; then
    :
else
    echo "$series: sources not available (log: build/apt/$series.log)"
    exit 3
fi

# a release tarball has ./configure, the repository auto/configure

[ -e "$dest/configure" ] || ln -s auto/configure "$dest/configure"

version=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' \
          "$dest/src/core/nginx.h")
echo "nginx $series: the sources are $version, from $from" \
    | tee "$dest/.complete"

case $version in
$series.*) ;;
*)  echo "NOTICE: $series is not available here: $version is used instead" \
        | tee -a "$dest/.complete" ;;
esac
