"""Roll-outs: one command for many devices, started and watched in the browser.

`rollout_desk`: the roll-outs of this process, and their files
`rollout_form`: the fields of the form
`rollout_pages`: the handlers
`user_sender`: sends the commands of a roll-out in the name of its user
"""
