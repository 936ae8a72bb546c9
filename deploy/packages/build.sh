#!/usr/bin/env bash
# Builds the Debian packages in .fogline/packages, in a Debian of their own (mmdebstrap), without the network.
#
#   deploy/packages/build.sh                       for this machine, Debian 12
#   deploy/packages/build.sh --arch arm64          for a Raspberry Pi, emulated (installs qemu-user-static; half an hour)
#   deploy/packages/build.sh --arch armhf          for one with a 32-bit system: fogline-edge alone
#   deploy/packages/build.sh --version 0.1.1       with another version number, to try an upgrade
#   deploy/packages/build.sh --again               a second time, which must give the same bytes
#   deploy/packages/build.sh --only fogline-edge   the gateway's package alone, which takes two minutes
#   deploy/packages/build.sh --sources FILE        with the mirrors that this apt sources file names, not those of this machine
#
# Needs root (chroot). Run deploy/setup/setup.sh s3 first: uv, the lock and the jars come from there.
set -euo pipefail
cd "$(dirname "$0")/../.."

arch=$(dpkg --print-architecture) suite=bookworm version="" again="" only="" mirrors=/etc/apt/sources.list.d/debian.sources
while [ $# -gt 0 ]; do
    case $1 in
        --arch) arch=$2; shift 2 ;;
        --version) version=$2; shift 2 ;;
        --again) again=yes; shift ;;
        --only) only=$2; shift 2 ;;
        --sources) mirrors=$2; shift 2; [ -r "$mirrors" ] || { echo "build.sh: $mirrors cannot be read" >&2; exit 2; } ;;
        -h | --help) sed -n '2,/^set/p' "$0" | sed 's/^# \{0,1\}//;$d'; exit 0 ;;
        *) echo "build.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    esac
done
[[ $only =~ ^(fogline-edge)?$ ]] || { echo "build.sh: --only is fogline-edge, not $only" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "build.sh: run this as root: it makes a Debian to build in" >&2; exit 2; }

. deploy/packages/need.sh
uv=$PWD/.fogline/bootstrap/bin/uv
root=$state/root-$suite-$arch wheels=$state/wheels-$arch
sources="python-qpid-proton pyspark" tools="" absent=""  # no wheels of these are in the registry
case $arch in
    amd64) platform=x86_64 resolved_for=x86_64 ;;
    arm64) platform=aarch64 resolved_for=aarch64 ;;
    armhf)
        platform=armv7l resolved_for=aarch64  # uv knows no 32-bit ARM, where the same packages are needed
        sources+=" cffi dbus-fast msgspec zstandard"
        tools="cython==3.3.1 poetry-core==2.5.0 setuptools==84.2.1 setuptools-scm==10.3.4"  # Debian's are too old for these
        absent="cbor2"  # it is written in Rust, and has no wheels for 32-bit ARM
        only=fogline-edge
        ;;
    *) echo "build.sh: --arch is amd64, arm64 or armhf, not $arch" >&2; exit 2 ;;
esac

need mmdebstrap mmdebstrap
if [ "$arch" != "$(dpkg --print-architecture)" ]; then
    need "qemu-${platform/armv7l/arm}-static" qemu-user-static
    need arch-test arch-test
    need update-binfmts binfmt-support
    [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    update-binfmts --enable "qemu-${platform/armv7l/arm}"
fi

# --- Python packages: the versions and hashes of requirements.lock, for this architecture, and ours
say "fetching the Python packages for $arch"
export UV_CACHE_DIR=$PWD/.fogline/uv-cache
python=$state/../bootstrap/bin/python

# requirements PROJECT [EXTRA]: the requirements of a project
requirements() {
    "$python" -c 'import sys, tomllib; from pathlib import Path
project = tomllib.loads(Path(sys.argv[1], "pyproject.toml").read_text("utf-8"))["project"]
found = project["dependencies"] + [each for extra in sys.argv[2:] for each in project["optional-dependencies"][extra]]
print(*(each for each in found if not each.startswith("fogline==")), sep="\n")' "$@"
}

# lock NAME [OPTION...]: pins what is read, into $state/NAME.lock
lock() {
    local name=$1
    shift
    cat >"$state/$name.in"
    "$uv" pip compile --quiet --no-annotate --no-header --generate-hashes --python-version 3.11 --constraint requirements.lock \
        "$@" --output-file "$state/$name.lock" "$state/$name.in"
}

platform_options=(--python-platform "$resolved_for-unknown-linux-gnu")
for each in $sources $absent; do platform_options+=(--no-emit-package "$each"); done
{ requirements shared; requirements edge; } | lock edge "${platform_options[@]}"
locks=(edge)
if [ -z "$only" ]; then
    { requirements shared; requirements cloud; } | lock cloud "${platform_options[@]}"
    mapfile -t present < <(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package=\1/p' "$state/cloud.lock")
    { requirements shared; requirements cloud spark; } | lock flow "${platform_options[@]}" "${present[@]}"
    locks+=(cloud flow)
fi
printf '%s\n' $sources | lock sources --no-deps
printf '%s\n' $tools | lock tools
mkdir -p "$wheels"
rm -f "$wheels"/fogline*.whl
cmp -s "$state/sources.lock" "$wheels/sources.lock" || rm -rf "$wheels/built" "$wheels"/*.tar.gz  # of former versions
platforms=(--platform "manylinux2014_$platform")
for minor in 17 28 34 31 $(seq 18 36); do platforms+=(--platform "manylinux_2_${minor}_$platform"); done  # Debian 12 has glibc 2.36
fetch() { "$python" -m pip download -q --no-deps --require-hashes -d "$wheels" "$@"; }
for each in "${locks[@]}"; do
    fetch --only-binary :all: --python-version 3.11 "${platforms[@]}" -r "$state/$each.lock"
done
[ -z "$tools" ] || fetch --only-binary :all: --python-version 3.11 "${platforms[@]}" -r "$state/tools.lock"
fetch --no-binary :all: -r "$state/sources.lock"
cp "$state/sources.lock" "$wheels/"
for part in shared edge cloud; do
    "$uv" build --quiet --wheel --out-dir "$wheels" "$part"
done

# --- a Debian to build in
if [ ! -e "$root/.complete" ]; then
    say "making a Debian ($suite, $arch) in $root"
    rm -rf "$root"
    mmdebstrap --quiet --arch="$arch" --variant=buildd --include=debhelper,lintian,fakeroot,libffi-dev,libsasl2-dev,libssl-dev,pkgconf,python3,python3-cffi,python3-dev,python3-pip,python3-setuptools,swig,cmake,adduser \
        "$suite" "$root" $(ls "$mirrors" 2>/dev/null || true)
    touch "$root/.complete"
fi

# --- the packages
source=$root/build/fogline
rm -rf "$root/build" && mkdir -p "$source/docs"
cp -r deploy/packages/debian "$source/"
cp deploy/packages/*.default deploy/packages/fogline*.sh deploy/packages/cloud.toml deploy/packages/*.py README.md "$source/"
cp docs/install-gateway.md docs/install-cloud.md "$source/docs/"
for each in "${locks[@]}" sources tools; do cp "$state/$each.lock" "$source/"; done
cp -r "$wheels" "$source/wheels"
[ -z "$again" ] || rm -rf "$source/wheels/built"
if [ -z "$only" ]; then
    cp -r .fogline/jars/spark "$source/jars"
    cp -r .fogline/jars/s3 "$source/jars-s3"
fi
[ -z "$version" ] || sed -i "1s/(.*)/($version)/" "$source/debian/changelog"
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$source/debian/changelog")
say "building the packages $version for $arch"
chroot "$root" /bin/sh -c "cd /build/fogline && DH_OPTIONS=${only:+-p$only} DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc" >"$state/build-$arch.log" 2>&1 \
    || { tail -n 40 "$state/build-$arch.log" >&2; echo "build.sh: see $state/build-$arch.log" >&2; exit 1; }
mkdir -p "$wheels/built"
cp -r "$source/built/." "$wheels/built/"
if [ -n "$again" ]; then
    for package in "$root"/build/*.deb; do
        cmp "$package" "$state/$(basename "$package")" || { echo "build.sh: the second build differs from the first" >&2; exit 1; }
        say "the second build has the same bytes: $(sha256sum <"$package" | cut -c1-64) $(basename "$package")"
    done
    exit 0
fi
cp "$root"/build/*.deb "$state/"
say "checking with lintian"
chroot "$root" /bin/sh -c "cd /build && lintian --allow-root --fail-on error --suppress-tags bad-distribution-in-changes-file *.deb" >"$state/lintian-$arch.log" 2>&1 \
    || { cat "$state/lintian-$arch.log" >&2; exit 1; }
for package in "$root"/build/*.deb; do
    say "made $state/$(basename "$package"): $(du -m "$package" | cut -f1) MB"
done
