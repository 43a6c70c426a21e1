-- J8 and J9 on the row of a job whose state they leave.
-- open calls, reserved, cost, late, events, now, tenant, id
update paidonce_job set open_calls = ?, reserved = ?, cost = ?, late = ?, events = ?, updated_at = ? where tenant = ? and id = ?
