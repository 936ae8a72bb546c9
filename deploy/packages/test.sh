#!/usr/bin/env bash
# Builds the packages in two versions, and tries them in a booted Debian 12 (systemd-nspawn); that for arm64 in emulation, if it was built. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in -h | --help) sed -n '2p' "$0" | sed 's/^# //'; exit 0 ;; esac
. deploy/packages/need.sh
deploy/packages/build.sh
deploy/packages/build.sh --again
rm -f "$state"/fogline-*_0.1.1_*.deb  # of a former run: the repository has one version
deploy/packages/apt_repository.sh
deploy/packages/build.sh --version 0.1.1
image=$state/image-amd64
for each in java faketime; do  # of a time without fogline-flow, or without tests of the clock
    [ ! -e "$image" ] || [ -e "$image/usr/bin/$each" ] || rm -f "$image/.complete"
done
need systemd-nspawn systemd-container
if [ ! -e "$image/.complete" ]; then
    say "making a Debian to boot in $image"
    rm -rf "$image"
    # what the packages depend on is there: the container has no network
    # shellcheck disable=SC2046  # no file: mmdebstrap takes Debian's own mirror
    mmdebstrap --quiet --variant=minbase --include=adduser,ca-certificates,dbus,faketime,libsasl2-2,libssl3,openjdk-17-jre-headless,procps,python3,systemd,systemd-sysv \
        bookworm "$image" $(ls /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
    touch "$image/.complete"
fi
FOGLINE_PACKAGES=$state exec .venv/bin/python -m pytest tests/packages "$@"
