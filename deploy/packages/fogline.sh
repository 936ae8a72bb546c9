#!/bin/sh
export FOGLINE_JARS="${FOGLINE_JARS:-/usr/share/fogline-flow/jars}"
exec /usr/lib/fogline/cloud/bin/python3 -P -m fogline_cloud.cli.main "$@"
