#!/usr/bin/env bash
# Resolves the workspace's dependencies anew into requirements.lock: every version and hash, no download address.
set -euo pipefail
cd "$(dirname "$0")/../.."
export UV_CACHE_DIR="$PWD/.fogline/uv-cache"
exec .fogline/bootstrap/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 "$@" \
    --no-emit-package fogline --no-emit-package fogline-edge --no-emit-package fogline-cloud --no-emit-package fogline-lab \
    --group dev --no-annotate --no-header --output-file requirements.lock pyproject.toml
