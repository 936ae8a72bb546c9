#!/bin/sh
exec /usr/lib/fogline/edge/bin/python3 -m fogline_edge.cli "$@"
