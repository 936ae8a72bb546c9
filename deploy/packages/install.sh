#!/bin/sh
# Installs a Fogline package from an apt repository, and nothing else. Read it first: it runs as root.
#
#   sh install.sh URL [PACKAGE]      URL: folder of the repository, for example https://packages.example/fogline
#                                    PACKAGE: fogline-edge (the default), fogline-cloud or fogline-flow
#
# It puts the repository's key into /usr/share/keyrings/fogline.gpg and its address into /etc/apt/sources.list.d/fogline.list.
# To undo it: apt-get purge PACKAGE, and remove these two files.
set -eu
url=${1:?usage: sh install.sh URL [PACKAGE]}
package=${2:-fogline-edge}
[ "$(id -u)" = 0 ] || { echo "install.sh: run this as root: sudo sh install.sh $url" >&2; exit 2; }

case $url in
    file:*) cp "${url#file:}/fogline.gpg" /usr/share/keyrings/fogline.gpg ;;
    https:*)
        command -v curl >/dev/null || apt-get install -y curl ca-certificates
        curl --fail --silent --show-error --proto '=https' --output /usr/share/keyrings/fogline.gpg "$url/fogline.gpg" ;;
    *) echo "install.sh: $url: expected https:// or file:" >&2; exit 2 ;;
esac
chmod 644 /usr/share/keyrings/fogline.gpg
echo "deb [signed-by=/usr/share/keyrings/fogline.gpg] $url ./" >/etc/apt/sources.list.d/fogline.list
apt-get update
apt-get install -y "$package"
