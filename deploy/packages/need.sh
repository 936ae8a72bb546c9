# Sourced by the scripts beside it. `state`: the folder of everything that they make.
state=$PWD/.fogline/packages
mkdir -p "$state"

say() { echo "packages: $*" >&2; }

# need COMMAND PACKAGE: install the system package that has the command, unless it is there.
need() {
    command -v "$1" >/dev/null && return 0
    say "installing the system package $2"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >"$state/apt.log" 2>&1 \
        || { tail -n 20 "$state/apt.log" >&2; exit 1; }
}
