-- J8 and J9 on the row of a job whose state they leave. An answer may come after the purge.
-- open calls, reserved, cost, late, uncounted, events, now, tenant, id
update paidonce_job set open_calls = ?, reserved = ?, cost = ?, late = ?, uncounted = ?, events = ?, updated_at = ?, purged = 0 where tenant = ? and id = ?
