#!/usr/bin/env bash
# Builds the packages in two versions, and tries them in a booted Debian 12 (systemd-nspawn). Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in -h | --help) sed -n '2p' "$0" | sed 's/^# //'; exit 0 ;; esac
deploy/packages/build.sh
deploy/packages/build.sh --version 0.1.1
state=$PWD/.fogline/packages
image=$state/image-amd64
for tool in systemd-container; do
    dpkg-query -W "$tool" >/dev/null 2>&1 && continue
    echo "packages: installing the system package $tool" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$tool" >"$state/apt.log" 2>&1 \
        || { tail -n 20 "$state/apt.log" >&2; exit 1; }
done
if [ ! -e "$image/.complete" ]; then
    echo "packages: making a Debian to boot in $image" >&2
    rm -rf "$image"
    # what the packages depend on is there: the container has no network
    # shellcheck disable=SC2046  # no file: mmdebstrap takes Debian's own mirror
    mmdebstrap --quiet --variant=minbase --include=adduser,ca-certificates,dbus,libsasl2-2,libssl3,python3,systemd,systemd-sysv \
        bookworm "$image" $(ls /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
    touch "$image/.complete"
fi
FOGLINE_PACKAGES=$state exec .venv/bin/python -m pytest tests/packages "$@"
