-- Named queries of the outbox. Each begins with `-- name: `.

-- name: streams
SELECT number, stream, lane, open, head, settled, settled_commit_id, dropped_upto,
       acknowledged, stored, duplicate, dead, sent, settled_events, quarantined, filtered, dropped, rules
FROM stream ORDER BY number;

-- name: open_stream
-- Salvage keeps quarantined rows under the number of their former stream, so a new stream must not reuse that number.
INSERT INTO stream (number, stream, lane, open, head, settled, settled_commit_id,
                    acknowledged, stored, duplicate, dead, sent, settled_events, quarantined, reason)
VALUES ((SELECT 1 + max((SELECT ifnull(max(number), 0) FROM stream), (SELECT ifnull(max(stream), 0) FROM quarantine))),
        ?, ?, 1, 0, 0, x'', 0, 0, 0, 0, 0, 0, 0, ?) RETURNING number;

-- name: close_stream
UPDATE stream SET open = 0, reason = ? WHERE number = ?;

-- name: forget_streams
-- A quarantined event keeps the number of its stream in use.
DELETE FROM stream WHERE open = 0 AND number <= (SELECT max(number) FROM stream) - ?
AND number NOT IN (SELECT stream FROM quarantine)
AND NOT EXISTS (SELECT 1 FROM event WHERE place > number << 40 AND place < (number + 1) << 40);

-- name: save_stream
UPDATE stream SET head = ?, settled = ?, settled_commit_id = ?, dropped_upto = ?, acknowledged = ?, stored = ?,
                  duplicate = ?, dead = ?, sent = ?, settled_events = ?, quarantined = ?, filtered = ?, dropped = ?, rules = ?
WHERE number = ?;

-- name: sizes
SELECT sequence, length(body) FROM event WHERE place > ? AND place < ? ORDER BY place LIMIT ?;

-- name: gaps
SELECT sequence, body FROM event WHERE place > ? AND place <= ?
AND body >= CAST('{"specversion":"1.0","id":"gap-' AS BLOB) AND body < CAST('{"specversion":"1.0","id":"gap.' AS BLOB)
ORDER BY place;

-- name: pass
INSERT OR IGNORE INTO passed (stream, sequence, commit_id) SELECT stream, sequence, commit_id FROM event WHERE place > ? AND place <= ?;

-- name: drop_passed
DELETE FROM passed WHERE stream = ? AND sequence <= ?;

-- name: insert_event
INSERT INTO event (place, commit_id, body, message) VALUES (?, ?, ?, ?);

-- name: last_event
SELECT place FROM event WHERE place > ? AND place < ? ORDER BY place DESC LIMIT 1;

-- name: delete_events
DELETE FROM event WHERE place > ? AND place <= ?;

-- name: purge_upto
-- The last of the first rows whose bodies fit together into a number of bytes.
SELECT count(*), max(CASE WHEN total <= ?4 THEN place END) FROM (
    SELECT place, sum(length(body)) OVER (ORDER BY place) AS total FROM event WHERE place BETWEEN ?1 AND ?2 ORDER BY place LIMIT ?3);

-- name: unsaved_messages
SELECT message FROM stream CROSS JOIN event ON place > (number << 40) + head AND place < (number + 1) << 40
WHERE message IS NOT NULL;

-- name: read_resends
SELECT number, entries FROM resend ORDER BY number;

-- name: add_resends
INSERT INTO resend (entries) VALUES (?) RETURNING number;

-- name: drop_resends
DELETE FROM resend WHERE number = ? RETURNING entries;

-- name: read_events
SELECT sequence, commit_id, body FROM event WHERE place > ? AND place < ? ORDER BY place LIMIT ?;

-- name: commit_id_at
SELECT commit_id FROM event WHERE place = ?
UNION ALL SELECT commit_id FROM passed WHERE stream = ? AND sequence = ?;

-- name: replace_body
UPDATE event SET body = ? WHERE place = ?;

-- name: quarantine
INSERT INTO quarantine (stream, sequence, condition, description, body, quarantined_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: size_quarantine
SELECT count(*), total(length(body)) FROM quarantine;

-- name: oldest_quarantined
SELECT rowid, stream, sequence, length(body) FROM quarantine ORDER BY rowid LIMIT ?;

-- name: trim_quarantine
DELETE FROM quarantine WHERE rowid <= ?;

-- name: one_quarantined
SELECT body FROM quarantine WHERE stream = ? AND sequence = ?;

-- name: delete_quarantined
DELETE FROM quarantine WHERE stream = ? AND sequence = ?;

-- name: any_unsynced
SELECT EXISTS (SELECT 1 FROM unsynced);

-- name: note_unsynced
INSERT INTO unsynced (stream, first, last, boot, boottime_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (stream, first) DO UPDATE SET last = max(last, excluded.last);

-- name: read_unsynced
SELECT stream, first, last, boot, boottime_ms FROM unsynced ORDER BY stream, first LIMIT ?;

-- name: unsynced_events
SELECT place, body FROM event WHERE place BETWEEN ? AND ? ORDER BY place;

-- name: drop_unsynced
DELETE FROM unsynced WHERE stream = ? AND first = ?;

-- name: drop_unsynced_settled
DELETE FROM unsynced WHERE stream = ? AND last <= ?;

-- name: count_windows
SELECT count(*) FROM window_state;

-- name: next_window
SELECT min(due_ms) FROM window_state;

-- name: find_window
SELECT number, due_ms, open, state FROM window_state WHERE source = ? AND start_ms = ?;

-- name: open_window
INSERT INTO window_state (source, start_ms, due_ms, open, state) VALUES (?, ?, ?, ?, ?) RETURNING number;

-- name: change_window
UPDATE window_state SET due_ms = ?, open = ?, state = ? WHERE number = ?;

-- name: due_windows
SELECT number, source, start_ms, open, state FROM window_state WHERE due_ms <= ? ORDER BY due_ms LIMIT ?;

-- name: forget_window
DELETE FROM window_state WHERE number = ?;

-- name: recall
SELECT value FROM memory WHERE key = ?;

-- name: remember
INSERT INTO memory (key, device, stored_s, value) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET stored_s = excluded.stored_s, value = excluded.value;

-- name: next_device_memory
SELECT device FROM memory WHERE device > ? ORDER BY device LIMIT 1;

-- name: span_memory
SELECT (SELECT min(stored_s) FROM memory WHERE device = ?1), (SELECT max(stored_s) FROM memory WHERE device = ?1);

-- name: newest_memory
SELECT stored_s FROM memory WHERE device = ? ORDER BY stored_s DESC LIMIT 1 OFFSET ?;

-- name: forget_memory
DELETE FROM memory WHERE key IN (SELECT key FROM memory WHERE device = ? AND stored_s < ? ORDER BY stored_s LIMIT ?);

-- name: size_memory
SELECT count(*), total(200 + 3 * length(CAST(device AS BLOB))) FROM memory;

-- name: ages_memory
SELECT stored_s, total(200 + 3 * length(CAST(device AS BLOB))) FROM memory GROUP BY stored_s ORDER BY stored_s;

-- name: all_kept
SELECT key, value FROM kept;

-- name: keep
INSERT INTO kept (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: drop_kept
DELETE FROM kept WHERE key = ?;

-- name: get_meta
SELECT value FROM meta WHERE key = ?;

-- name: set_meta
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: drop_meta
DELETE FROM meta WHERE key = ?;

-- name: command_digest
SELECT digest FROM command WHERE id = ?;

-- name: command_state
SELECT state FROM command WHERE id = ?;

-- name: insert_command
INSERT INTO command (id, device, name, content_type, data, reply, durable, idempotent, correlation, boot, deadline_ms,
                     digest, state, changed_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: set_command_state
UPDATE command SET state = ? WHERE id = ?;

-- name: finish_command
UPDATE command SET state = ?, status = ?, answer_digest = ?, changed_s = ?, data = x'' WHERE id = ?;

-- name: one_command
SELECT id, device, name, content_type, data, reply, durable, idempotent, correlation, boot, deadline_ms, state, answer_digest
FROM command WHERE id = ?;

-- name: open_commands
SELECT id, device, name, content_type, data, reply, durable, idempotent, correlation, boot, deadline_ms, state, answer_digest
FROM command WHERE state IN ('QUEUED', 'SENDING') ORDER BY number;

-- name: forget_commands
DELETE FROM command WHERE number IN
(SELECT number FROM command WHERE state NOT IN ('QUEUED', 'SENDING') AND changed_s < ? ORDER BY number LIMIT ?);

-- name: forget_late_commands
DELETE FROM command WHERE number IN
(SELECT number FROM command WHERE state NOT IN ('QUEUED', 'SENDING', 'IN_DOUBT') AND boot = ? AND deadline_ms < ?
 AND changed_s < ? ORDER BY number LIMIT ?);

-- name: unsettled_replies
SELECT count(*) FROM stream CROSS JOIN event ON place > (number << 40) + settled AND place < (number + 1) << 40 WHERE lane = 'reply';

-- name: nth_last_end
SELECT changed_s FROM command WHERE state NOT IN ('QUEUED', 'SENDING') ORDER BY changed_s DESC LIMIT 1 OFFSET ?;

-- name: count_commands
SELECT count(*) FROM command;

-- name: count_open_commands
SELECT count(*), total(device = ?) FROM command WHERE state IN ('QUEUED', 'SENDING');

-- name: kept_by_rules
SELECT key, value FROM kept WHERE key > 'rules/' AND key < 'rules0';

-- name: rule_messages
SELECT key, value FROM kept WHERE key > 'rule-message/' AND key < 'rule-message0' ORDER BY key;

-- name: count_rule_messages
SELECT count(*) FROM (SELECT 1 FROM kept WHERE key > 'rule-message/' AND key < 'rule-message0' LIMIT ?);

-- name: drop_rule_messages
DELETE FROM kept WHERE key > 'rule-message/' AND key < 'rule-message0';
