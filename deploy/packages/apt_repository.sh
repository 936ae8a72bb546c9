#!/usr/bin/env bash
# Makes a signed apt repository of the packages in .fogline/packages: the folder .fogline/packages/apt, for any web server.
#
#   deploy/packages/apt_repository.sh [KEY]
#
# KEY: the GnuPG key that signs (its id or address). Without it, a key is made in .fogline/packages/gnupg: keep it, machines trust it.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in -h | --help) sed -n '2,/^set/p' "$0" | sed 's/^# \{0,1\}//;$d'; exit 0 ;; esac

. deploy/packages/need.sh
key=${1:-} apt=$state/apt
ls "$state"/fogline-*.deb >/dev/null 2>&1 || { echo "apt_repository.sh: there are no packages: run make packages first" >&2; exit 2; }
need apt-ftparchive apt-utils
need gpg gnupg
if [ -z "$key" ]; then
    export GNUPGHOME=$state/gnupg
    mkdir -p -m 700 "$GNUPGHOME"
    key=packages@fogline.example
    if ! gpg --batch --list-secret-keys "$key" >/dev/null 2>&1; then
        say "making a key in $GNUPGHOME"
        gpg --batch --quiet --passphrase '' --quick-generate-key "Fogline packages <$key>" ed25519 sign never
    fi
fi

rm -rf "$apt" && mkdir -p "$apt"
cp "$state"/fogline-*.deb "$apt/"
cp deploy/packages/install.sh "$apt/"
cd "$apt"
gpg --batch --export "$key" >fogline.gpg
apt-ftparchive packages . >Packages
gzip -9nk Packages
apt-ftparchive -o APT::FTPArchive::Release::Origin=Fogline -o APT::FTPArchive::Release::Label=Fogline release . >Release
gpg --batch --yes --local-user "$key" --clearsign -o InRelease Release
gpg --batch --yes --local-user "$key" --armor --detach-sign -o Release.gpg Release
say "fingerprint of the key (SHA-256), to tell those who install: $(sha256sum <fogline.gpg | cut -d' ' -f1)"
say "made $apt: $(ls ./*.deb | wc -l) packages, signed by $(gpg --batch --with-colons --list-keys "$key" | sed -n 's/^fpr:*\([0-9A-F]*\):/\1/p;' | head -n 1)"
