"""The machine and the process: clocks, health, memory, and the ends of runs.

`boot`: the machine's clocks
`fixed_file`: a file that is overwritten in place
`health`: disk, temperature and supply voltage
`process_end`: causes of the end of a run
`run_record`: the present run, and the ends of the last ones
`watchman`: watches memory and wall clock
"""
