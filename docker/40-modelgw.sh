#!/bin/sh
#
# Run by the image's entry point before nginx: makes the gateway listen for other
# containers, copies secrets from files, and creates what a first start lacks.
#
#     /run/secrets/modelgw_a, modelgw_b    the groups' credentials
#     /etc/nginx/modelgw/keys.conf         the keys
#     /etc/nginx/modelgw/operators.conf    who may sign in to the console
#     /var/lib/modelgw/ledger.db           credit; a volume keeps it
#
# A mounted nginx.conf, keys.conf or operators.conf is left as it is.

set -eu

conf=${MODELGW_CONF:-/etc/nginx}
secrets=${MODELGW_SECRETS:-/run/secrets}
dir=$conf/modelgw

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

hash() {
    printf %s "$1" | sha256sum | cut -d' ' -f1
}

# nginx's workers write the ledger; their user in this image is nginx

ledger=${MODELGW_LEDGER:-/var/lib/modelgw}
mkdir -p "$ledger"
chown nginx:nginx "$ledger" 2>/dev/null || true

umask 077

# compose mounts secrets world-readable, which the module refuses

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
        echo "demo-$group  sha256:$(hash "$key")  $group  account=demo;" \
            >> "$dir/keys.conf"
        echo "modelgw: demo key of group $group: $key"
    done
fi

if [ ! -f "$dir/operators.conf" ]; then
    token=op-eu-$(random)
    echo "operator  sha256:$(hash "$token")  admin;" > "$dir/operators.conf"
    echo "modelgw: token of the console's operator: $token"
fi

# a container's loopback cannot be reached from outside

if [ -w "$conf/nginx.conf" ]; then
    sed 's/listen  127\.0\.0\.1:8080;/listen  8080;/' "$conf/nginx.conf" \
        > "$conf/nginx.conf.new"
    cat "$conf/nginx.conf.new" > "$conf/nginx.conf"
    rm "$conf/nginx.conf.new"
fi
