-- due at, tenant, job
update paidonce_outbox set next_at = ? where tenant = ? and job = ?
