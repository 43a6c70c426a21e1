-- J10a on the attempt.
-- now, tenant, job, attempt
update paidonce_attempt set applied_at = ? where tenant = ? and job = ? and id = ?
