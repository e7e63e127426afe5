#!/bin/sh
#
# Builds the contents of docker/Dockerfile's image without Docker: what "make
# install" has installed under ROOT, the example configuration, the entry
# script; nginx must accept all of it.
#
# usage: t/tools/docker.sh NGINX ROOT

set -eu

cd "$(dirname "$0")/../.."
nginx=$1
root=$(cd "$2" && pwd)
conf=$root/etc/nginx

mkdir -p "$conf/logs"
rm -f "$conf"/modelgw/keys.conf "$conf"/modelgw/operators.conf \
    "$conf"/modelgw/*.secret
ln -sfn "$root/usr/lib/nginx/modules" "$conf/modules"
sed -e "s#/var/log/nginx/#$conf/logs/#" -e "s#/var/lib/modelgw/#$root/ledger/#" \
    -e "s#/run/modelgw-admin#$root/admin#" conf/nginx.conf > "$conf/nginx.conf"

# the image has a user "nginx", which owns the ledger's directory

user=
[ "$(id -u)" != 0 ] || user="user root;"

# started twice: the second start must accept what the first has made

for start in 1 2; do
    MODELGW_CONF=$conf MODELGW_SECRETS=$root/nothing \
        MODELGW_LEDGER=$root/ledger \
        sh docker/40-modelgw.sh > "$root/start$start"
    "$nginx" -p "$conf/" -c nginx.conf -g "pid logs/nginx.pid; $user" -t -q
done

[ "$(grep -c 'demo key of group . *: sk-eu-' "$root/start1")" = 2 ]
[ "$(grep -c 'operator: op-eu-' "$root/start1")" = 1 ]
[ ! -s "$root/start2" ]
grep -q 'listen  8080;' "$conf/nginx.conf"

echo "the image's files are accepted by" \
     "$("$nginx" -v 2>&1 | sed 's/.*: //')"
