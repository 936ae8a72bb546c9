#!/usr/bin/env bash
# Brings a bare Debian 12 / Ubuntu 24.04 / Raspberry Pi OS to where Fogline runs, from any folder:
#
#     deploy/setup/setup.sh            what it takes to run
#     deploy/setup/setup.sh tests      and to test: other people's clients, a broker, promtool, PostgreSQL, a browser
#     deploy/setup/setup.sh bench      and to measure: a broker
#     deploy/setup/setup.sh s3         and for tables in an object store (tests and bench need it too)
#     deploy/setup/setup.sh docs       and to render pictures: Graphviz, a browser
#
# 1. the system packages that are missing, by apt, named aloud before they are installed
# 2. .venv: uv, then the hashed Python dependencies of requirements.lock, then our four distributions
# 3. .fogline/jars: the pinned jars of Kafka, Spark's connectors (s3: a client of S3, a Java compiler; tests: clients of AMQP,
#    of CoAP, of Eclipse Hono, the broker Artemis, MirrorMaker; bench: that broker), by Ivy, checked against their sha256;
#    .fogline/jars/spark.jsa: an archive of Spark's classes; s3: .fogline/jars/s3/fogline-log-store.jar, compiled from cloud/java
# 4. tests: node_modules of tests/contracts/foreign (an AMQP client, an MQTT client, a Kafka client with the CloudEvents SDK) and of
#    tests/cloud/console/libraries (axe-core), by npm, checked against their lock files
# 5. tests: .fogline/bin/cloudevents-go, a Kafka client with the CloudEvents SDK for Go, by go, checked against its go.sum
# 6. tests: .fogline/strangers/aiocoap-oscore, a CoAP client with OSCORE, by uv, from its hashed requirements.lock
#
# Nothing outside the checkout changes but the system packages. What is done is noted by a digest of its inputs in
# .fogline/, so a second run does nothing and needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."

case "${1:-}" in
    "") for_tests="" for_bench="" for_s3="" for_docs="" ;;
    tests) for_tests=yes for_bench="" for_s3=yes for_docs="" ;;
    bench) for_tests="" for_bench=yes for_s3=yes for_docs="" ;;
    s3) for_tests="" for_bench="" for_s3=yes for_docs="" ;;
    docs) for_tests="" for_bench="" for_s3="" for_docs=yes ;;
    *) printf 'usage: %s [tests | bench | s3 | docs]\n' "$0" >&2; exit 2 ;;
esac

state=.fogline
uv=$state/bootstrap/bin/uv
python=.venv/bin/python
export PATH=$PATH:/usr/local/go/bin
export UV_CACHE_DIR="$PWD/$state/uv-cache"
mkdir -p "$state/done"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }

digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
is_done() { [ "$(cat "$state/done/$1" 2>/dev/null)" = "$2" ]; }
mark_done() { printf '%s\n' "$2" >"$state/done/$1"; }

java_version() { java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p;q'; }

# --- 1. system packages -------------------------------------------------------------------------------------------
missing_packages() {
    local has_java
    has_java=$(command -v java >/dev/null && java_version || echo 0)
    command -v python3 >/dev/null || echo python3
    command -v gcc >/dev/null || echo gcc
    command -v pkg-config >/dev/null || echo pkg-config
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    python3 -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
        2>/dev/null || echo python3-dev
    pkg-config --exists openssl 2>/dev/null || echo libssl-dev
    [ "${has_java:-0}" -ge 17 ] 2>/dev/null || java_package
    command -v mosquitto_pub >/dev/null || echo mosquitto-clients
    command -v coap-client-notls >/dev/null || command -v coap-client >/dev/null || echo libcoap3-bin
    command -v dbus-daemon >/dev/null || echo dbus
    [ -z "$for_tests$for_bench" ] || PATH=$PATH:/usr/sbin command -v mosquitto >/dev/null || echo mosquitto
    [ -z "$for_docs" ] || command -v dot >/dev/null || echo graphviz
    [ -z "$for_docs$for_tests" ] || has_browser || echo chromium
    [ -z "$for_tests$for_bench" ] || has_postgres || echo postgresql
    [ -z "$for_tests" ] || missing_packages_for_tests
}

has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null; }

has_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

missing_packages_for_tests() {
    command -v node >/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
    command -v go >/dev/null || echo golang-go
    command -v promtool >/dev/null || echo prometheus
    command -v microsocks >/dev/null || echo microsocks
    PATH=$PATH:/usr/sbin command -v tinyproxy >/dev/null || echo tinyproxy
}

java_package() {
    if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then echo openjdk-17-jre-headless
    else echo openjdk-21-jre-headless; fi
}

check_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || fail "python3 is $(python3 -V 2>&1): Fogline needs 3.11 or newer (Debian 12, Ubuntu 24.04, Raspberry Pi OS 12)"
}

install_packages() {
    ! command -v python3 >/dev/null || check_python
    local packages service root=""
    packages=$(missing_packages | sort -u | tr '\n' ' ')
    [ -n "${packages// /}" ] || return 0
    command -v apt-get >/dev/null || fail "missing: $packages- and this system has no apt-get; install them by hand"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "missing: $packages- run as root: apt-get install $packages"
        root=sudo
    fi
    say "installing system packages: $packages"
    $root apt-get update -qq || say "apt-get update failed; trying with the lists that are here"
    packages=$(missing_packages | sort -u | tr '\n' ' ')
    # shellcheck disable=SC2086  # a list of package names; RUNLEVEL=1: no service that a package brings is started
    $root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $packages >"$state/apt.log" 2>&1 \
        || { tail -n 20 "$state/apt.log" >&2; fail "apt-get could not install: $packages(see $state/apt.log)"; }
    for service in mosquitto prometheus postgresql tinyproxy; do
        case " $packages" in *" $service "*)
            if [ -d /run/systemd/system ]; then
                say "keeping the service of the package $service from starting by itself: systemctl disable $service"
                $root systemctl disable --quiet "$service"
            fi ;;
        esac
    done
    check_python
}

# --- 2. Python ----------------------------------------------------------------------------------------------------
install_python() {
    local want
    want=$(digest requirements.lock shared/pyproject.toml edge/pyproject.toml cloud/pyproject.toml deploy/lab/pyproject.toml deploy/setup/setup.sh)
    is_done python "$want-$PWD" && [ -x "$python" ] && return 0
    if [ ! -x "$uv" ]; then
        say "installing uv into $state/bootstrap"
        python3 -m venv "$state/bootstrap"
        "$state/bootstrap/bin/python" -m pip install -q --disable-pip-version-check 'uv>=0.9'
    fi
    say "installing the Python dependencies into .venv (the first time: about a minute)"
    [ -x "$python" ] || "$uv" venv -q --python "$(command -v python3)" .venv
    "$uv" pip install -q --python "$python" --require-hashes -r requirements.lock
    "$uv" pip install -q --python "$python" --no-deps -e shared -e edge -e cloud -e deploy/lab
    "$python" -c 'import proton, sys; sys.exit(not proton.SSL.present())' \
        || fail "python-qpid-proton was built without TLS: install libssl-dev, remove .venv, and run this again"
    mark_done python "$want-$PWD"
}

# --- 3. jars ------------------------------------------------------------------------------------------------------
install_jars() {
    local name=$1 want size_mb folder=$state/jars/$1
    want=$(digest "deploy/setup/$name-ivy.xml" "deploy/setup/$name-jars.lock")
    is_done "jars-$name" "$want" && return 0
    size_mb=$(awk '{ bytes += $3 } END { printf "%.0f", bytes / 1e6 }' "deploy/setup/$name-jars.lock")
    say "fetching the jars of $name ($size_mb MB) from Maven Central by Ivy into $folder"
    local pyspark
    pyspark=$("$python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
    rm -rf "$folder" && mkdir -p "$folder"
    java -cp "$pyspark/jars/*" org.apache.ivy.Main -ivy "deploy/setup/$name-ivy.xml" -cache "$PWD/$state/ivy" \
        -retrieve "$folder/[artifact]-[revision].[ext]" -types jar bundle >"$state/ivy-$name.log" 2>&1 \
        || { tail -n 20 "$state/ivy-$name.log" >&2; fail "Ivy could not fetch the jars of $name (see $state/ivy-$name.log)"; }
    while read -r path sum _; do
        printf '%s  %s/%s\n' "$sum" "$folder" "${path##*/}"
    done <"deploy/setup/$name-jars.lock" | sha256sum --check --quiet - \
        || fail "a jar of $name is not the one pinned in deploy/setup/$name-jars.lock: remove $folder and run this again"
    [ "$(find "$folder" -name '*.jar' | wc -l)" = "$(grep -c . "deploy/setup/$name-jars.lock")" ] \
        || fail "$folder holds other jars than deploy/setup/$name-jars.lock names: remove it and run this again"
    mark_done "jars-$name" "$want"
}

# Compiles how Spark commits to tables in an object store, by a compiler of those jars: a JDK would be a package of 200 MB.
install_log_store() {
    local want jars=$state/jars classes=$state/log-store source=cloud/java/fogline/PutIfAbsentLogStore.java
    want=$(digest "$source" deploy/setup/{s3,spark,compiler}-jars.lock requirements.lock)
    is_done log-store "$want" && [ -e "$jars/s3/fogline-log-store.jar" ] && return 0
    say "compiling $source into $jars/s3/fogline-log-store.jar"
    local pyspark
    pyspark=$("$python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
    rm -rf "$classes"
    java -cp "$jars/compiler/*" org.eclipse.jdt.internal.compiler.batch.Main -17 -proc:none -g:none -d "$classes" \
        -cp "$(echo "$jars"/spark/delta-storage-*.jar "$pyspark"/jars/hadoop-client-api-*.jar | tr ' ' ':')" "$source" >"$state/log-store.log" 2>&1 \
        || { tail -n 20 "$state/log-store.log" >&2; fail "$source could not be compiled (see $state/log-store.log)"; }
    find "$classes" -exec touch -d 2026-01-01 {} +  # the same bytes each time
    (cd "$classes" && TZ=UTC "$OLDPWD/$python" -m zipfile -c "$OLDPWD/$jars/s3/fogline-log-store.jar" fogline/)
    mark_done log-store "$want"
}

install_class_archive() {
    local want log=$state/class-archive.log
    want=$(digest requirements.lock deploy/setup/spark-jars.lock cloud/fogline_cloud/flows/driver/{class_archive,session}.py)
    want="$want-$(java -version 2>&1 | digest -)-$PWD"
    is_done class-archive "$want" && return 0
    say "writing an archive of Spark's classes, with which Spark starts in half the time (about a minute)"
    if .venv/bin/fogline flow prepare >"$log" 2>&1; then mark_done class-archive "$want"
    else say "no archive could be written (see $log): Spark starts without it"; fi
}

# --- 4. JavaScript ------------------------------------------------------------------------------------------------
install_javascript() {
    local want folder=$1 name=${1##*/}
    want=$(digest "$folder/package.json" "$folder/package-lock.json")
    is_done "javascript-$name" "$want-$PWD" && [ -d "$folder/node_modules" ] && return 0
    say "installing $name by npm into $folder/node_modules"
    npm ci --prefix "$folder" --cache "$PWD/$state/npm-cache" --prefer-offline --ignore-scripts --no-audit --no-fund \
        --no-update-notifier >"$state/npm-$name.log" 2>&1 \
        || { tail -n 20 "$state/npm-$name.log" >&2; fail "npm could not install $name (see $state/npm-$name.log)"; }
    mark_done "javascript-$name" "$want-$PWD"
}

# --- 5. Go --------------------------------------------------------------------------------------------------------
install_go() {
    local want folder=$1 name=${1##*/}
    want=$(digest "$folder/go.mod" "$folder/go.sum" "$folder/main.go")
    is_done "go-$name" "$want" && [ -x "$state/bin/$name" ] && return 0
    say "building $name by go into $state/bin (the first time: a minute or two)"
    env -C "$folder" GOPATH="$PWD/$state/go" GOCACHE="$PWD/$state/go-cache" GOTOOLCHAIN=local CGO_ENABLED=0 \
        GOFLAGS="-mod=readonly -modcacherw -buildvcs=false -trimpath" \
        go build -o "$PWD/$state/bin/$name" . >"$state/go-$name.log" 2>&1 \
        || { tail -n 20 "$state/go-$name.log" >&2; fail "go could not build $name (see $state/go-$name.log)"; }
    mark_done "go-$name" "$want"
}

install_stranger() {
    local want folder=$1 place=$state/strangers/${1##*/}
    want=$(digest "$folder/requirements.lock")
    is_done "stranger-${1##*/}" "$want" && [ -x "$place/bin/python" ] && return 0
    say "installing ${1##*/} into $place, by uv"
    rm -rf "$place"
    "$uv" venv -q --python "$(command -v python3)" "$place"
    "$uv" pip install -q --python "$place/bin/python" --require-hashes -r "$folder/requirements.lock"
    mark_done "stranger-${1##*/}" "$want"
}

install_packages
install_python
install_jars kafka
install_jars spark
install_class_archive
if [ -n "$for_s3" ]; then
    install_jars s3
    install_jars compiler
    install_log_store
fi
if [ -n "$for_bench" ]; then install_jars postgresql; fi
if [ -n "$for_tests$for_bench" ]; then install_jars artemis; fi
if [ -n "$for_tests" ]; then
    install_jars amqp
    install_jars hono
    install_jars californium
    install_jars mirror
    install_javascript tests/contracts/foreign/rhea
    install_javascript tests/contracts/foreign/mqttjs
    install_javascript tests/contracts/foreign/cloudevents-js
    install_javascript tests/cloud/console/libraries
    install_go tests/contracts/foreign/cloudevents-go
    install_stranger tests/contracts/foreign/aiocoap-oscore
fi
