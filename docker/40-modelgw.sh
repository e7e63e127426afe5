#!/bin/sh
#
# Runs before nginx starts, by the image's own entry point: listens for other
# containers, takes secrets from files, and makes what a first start lacks.
#
#     /run/secrets/modelgw_a, modelgw_b    the groups' credentials
#     /etc/nginx/modelgw/keys.conf         the keys
#     /var/lib/modelgw/ledger.db           credit; a volume keeps it
#
# Mount your own nginx.conf and keys.conf and neither is touched.

set -eu

conf=${MODELGW_CONF:-/etc/nginx}
secrets=${MODELGW_SECRETS:-/run/secrets}
dir=$conf/modelgw

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

# nginx's workers write the ledger; the image names their user

ledger=${MODELGW_LEDGER:-/var/lib/modelgw}
mkdir -p "$ledger"
chown nginx:nginx "$ledger" 2>/dev/null || true

umask 077

# compose mounts secrets readable by all, which the module refuses

for group in a b; do
    if [ -f "$secrets/modelgw_$group" ]; then
        cat "$secrets/modelgw_$group" > "$dir/$group.secret"
    elif [ ! -f "$dir/$group.secret" ]; then
        random > "$dir/$group.secret"
    fi
done

if [ ! -f "$dir/keys.conf" ]; then
    for group in a b; do
        key=sk-eu-$(random)
        hash=$(printf %s "$key" | sha256sum | cut -d' ' -f1)
        echo "demo-$group  sha256:$hash  $group  account=demo;" \
            >> "$dir/keys.conf"
        echo "modelgw: demo key of group $group: $key"
    done
fi

# a container's loopback is reached by nobody

if [ -w "$conf/nginx.conf" ]; then
    sed 's/listen  127\.0\.0\.1:8080;/listen  8080;/' "$conf/nginx.conf" \
        > "$conf/nginx.conf.new"
    cat "$conf/nginx.conf.new" > "$conf/nginx.conf"
    rm "$conf/nginx.conf.new"
fi
