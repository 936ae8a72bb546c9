"""Parts that all processes of Fogline share.

`cancellation`: ends tasks, also where Python loses a cancellation
`checkup`: the findings of `doctor`, and the checks that gateway and cloud side share
`console`: the command line of a process: words, output, and the log
`crash_points`: named points at which a test kills the process
`files`: files that users write: settings, certificates, and whose rights a process needs for them
`kernel_clock`: the wall clock, and whether it is synchronized
`log_throttle`: repeated log lines
`login_turns`: turns of logins, by address
`loop_calls`: calls from any thread into an event loop
`monitoring`: what a process tells of itself in numbers
`one_cpu`: keeps the threads of one interpreter on one CPU
`rates`: token buckets
`service_manager`: what systemd is told
"""
