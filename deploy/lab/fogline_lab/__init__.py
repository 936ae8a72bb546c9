"""Test kit: child processes, faulty lines, a real Kafka broker, and fakes that pass the contract suites of the real ones.

`amqp_bytes`: AMQP frames made by hand
`amqp`: two ends of an AMQP connection
`apsw_connection`: apsw as sqlite3
`ble`: Bluetooth without a radio
`bridge`: doubles of a bridge
`browser`: Debian's Chromium
`clock`: clocks that a test sets
`commands`: a command port without a journal
`console_site`: a tenant whose operators have a page
`cpu_quota`: a process with a share of one CPU
`credentials`: certificates and passwords
`device`: doubles of devices
`disk`: a disk that records writes and syncs
`events`: events for tests
`flow_table`: a table of the flow, with made commits
`gateway`: gateways, whole or in parts
`http_line`: a line that loses answers of an object store
`intermediary`: a router's stand-in and a real Artemis, between gateways and bridges
`kafka_broker`: a Kafka broker on loopback
`kafka_cluster`: three Kafka brokers on loopback
`kafka_line`: a line that loses the end of Kafka transactions
`kafka_mirror`: MirrorMaker, which copies topics to another Kafka
`large_bodies`: large bodies, made and put together again
`ledger_site`: a tenant whose topics and tables the ledger reads
`line`: tenants with bridges and gateways
`loop_disk`: a file system on a loop device
`memory`: memory of a process
`mosquitto`: an MQTT broker and a bridge of it
`mosquitto_process`: an MQTT broker that a test kills and starts again
`mqtt_packets`: a client's half of the MQTT codec
`object_store`: an S3 server on loopback
`port`: an adapter's port without a disk
`postgres`: a PostgreSQL server
`power_cut`: disk images after a power cut
`secure_kafka`: a Kafka broker with TLS, users and ACLs
`site_proxy`: a SOCKS5 and an HTTP proxy on loopback
`spark_cluster`: a cluster of Spark whose workers see nothing of the driver's files
`supervisor`: child processes
`tcp_line`: slow, cut and half-open TCP connections
`udp_line`: lost, duplicated and reordered datagrams
`waiting`: waits for conditions without an event
"""
