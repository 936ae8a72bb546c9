#!/bin/sh
# Installs a Fogline package from an apt repository, and nothing else. Read it first: it runs as root.
#
#   sh install.sh URL [PACKAGE [FINGERPRINT]]
#
#   URL: folder of the repository, for example https://packages.example/fogline
#   PACKAGE: fogline-edge (the default), fogline-cloud or fogline-flow
#   FINGERPRINT: SHA-256 of the repository's key, as whoever runs the repository has told it. Another key is refused. Without
#   it, the fingerprint is printed, and on a terminal you are asked.
#
# It puts the repository's key into /usr/share/keyrings/fogline.gpg and its address into /etc/apt/sources.list.d/fogline.list.
# If anything fails, both are as before. To undo it: apt-get purge PACKAGE, and remove these two files.
set -eu
fail() { echo "install.sh: $*" >&2; exit 2; }
url=${1:?usage: sh install.sh URL [PACKAGE [FINGERPRINT]]}
package=${2:-fogline-edge} expected=${3:-}
key=/usr/share/keyrings/fogline.gpg list=/etc/apt/sources.list.d/fogline.list
case $url in file:* | https:*) ;; *) fail "$url: expected https:// or file:" ;; esac
case $package in
    fogline-edge) architectures="amd64 arm64 armhf" ;;
    fogline-cloud | fogline-flow) architectures="amd64 arm64" ;;
    *) fail "$package: expected fogline-edge, fogline-cloud or fogline-flow" ;;
esac
[ "$(id -u)" = 0 ] || fail "run this as root: sudo sh install.sh $*"

# --- the packages bring compiled parts for Debian 12
system=$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}") || system="another system"
case $system in
    "debian 12" | "raspbian 12") ;;
    *) fail "this is $system: the packages are for Debian 12 and Raspberry Pi OS 12" ;;
esac
architecture=$(dpkg --print-architecture)
case " $architectures " in
    *" $architecture "*) ;;
    *) fail "this is $architecture: $package is there for $architectures" ;;
esac
[ "$(uname -m)" != armv6l ] || fail "this is ARMv6 (a Pi 1 or Zero): the packages are for ARMv7 and later"

# --- what a failure leaves is what was there
kept=$(mktemp -d)
for each in "$key" "$list"; do [ ! -e "$each" ] || cp -p "$each" "$kept/"; done
restore() {
    status=$?
    trap - EXIT
    if [ "$status" != 0 ]; then
        for each in "$key" "$list"; do
            if [ -e "$kept/${each##*/}" ]; then cp -p "$kept/${each##*/}" "$each"; else rm -f "$each"; fi
        done
        echo "install.sh: $package is not installed; the repository's key and address on this machine are as before" >&2
    fi
    rm -rf "$kept"
    exit "$status"
}
trap restore EXIT
trap 'exit 130' INT TERM

case $url in
    file:*) cp "${url#file:}/fogline.gpg" "$kept/new.gpg" ;;
    https:*)
        if ! command -v curl >/dev/null; then
            apt-get update
            apt-get install -y curl ca-certificates
        fi
        curl --fail --silent --show-error --proto '=https' --output "$kept/new.gpg" "$url/fogline.gpg" ;;
esac
fingerprint=$(sha256sum "$kept/new.gpg" | cut -d' ' -f1)
echo "fingerprint of the repository's key (SHA-256): $fingerprint"
if [ -n "$expected" ]; then
    [ "$fingerprint" = "$expected" ] || fail "the key has another fingerprint than $expected"
elif [ -t 0 ] && ! cmp -s "$kept/new.gpg" "$key"; then
    printf 'Is it the one that whoever runs the repository has told you? [y/N] '
    read -r answer
    case $answer in y | Y | yes) ;; *) fail "the key is not trusted" ;; esac
fi
install -m 644 "$kept/new.gpg" "$key"
echo "deb [signed-by=$key] $url ./" >"$list"
apt-get update
apt-get install -y "$package"
