-- J10a on the job's row.
-- now, tenant, id
update paidonce_job set events = events + 1, updated_at = ? where tenant = ? and id = ?
