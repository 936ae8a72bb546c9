#!/bin/sh
exec /usr/lib/fogline/edge/bin/python3 -P -m fogline_edge.cli "$@"
