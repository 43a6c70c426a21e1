-- J7 on the job's row.
-- reserve, now, tenant, id
update paidonce_job set open_calls = open_calls + 1, attempts = attempts + 1, reserved = reserved + ?, events = events + 1, updated_at = ?
where tenant = ? and id = ?
