"""What the settings decide about events as they are stored. All of it is pure, and runs within the insert transaction.

`actions`: commands, alarms and messages of rules
`canonical`: one encoding for each value, whatever its spelling
`cel`: conditions in the Common Expression Language
`change`: values that report-on-change compares
`event_rules`: all rules of the settings, in the order of their steps
`explanation`: what the rules do with an event, step by step
`fields`: one value of a payload, named by a JSON pointer or a range of bytes
`identity`: which events are the same, by fields of the payload
`message`: a message on a local topic
`payload`: the payload of one arrival, decoded once for all rules
`private`: private fields are dropped, rounded or hashed
`quantiles`: quantiles of the numbers of a window
`react`: when a rule acts
`react_memory`: what rules that act remember
`reduction`: the events that rules keep back
`selection`: the rules that apply to an arrival
`windows`: windows, their aggregates, and the window of an event
"""
