"""Parts that all processes of Fogline share.

`cancellation`: ends tasks, also where Python loses a cancellation
`checkup`: the findings of `doctor`, and the checks that gateway and cloud side share
`command_line`: exit statuses, one-line errors, Ctrl-C, logging, no core files
`completion`: completion of the command line in shells
`crash_points`: named points at which a test kills the process
`journal`: the log, with fields if systemd's journal reads it
`kernel_clock`: the wall clock, and whether it is synchronized
`listing`: prints rows, facts and times
`log_throttle`: repeated log lines
`login_turns`: turns of logins, by address
`loop_calls`: calls from any thread into an event loop
`metrics`: the list of all metrics
`metrics_server`: `/metrics` and `/healthz`
`one_cpu`: keeps the threads of one interpreter on one CPU
`owner`: root acts in another user's folder as that user
`rates`: token buckets
`service_manager`: what systemd is told
`settings_file`: TOML files into types
`statistics`: counters that SIGUSR1 prints
`terminal`: prints text on an operator's terminal
`tls_files`: TLS from the files that the settings name
`user_file`: text files that users write
"""
