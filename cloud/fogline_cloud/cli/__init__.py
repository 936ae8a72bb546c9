"""The command line `fogline`: one module a group of subcommands, put together in `main`."""
