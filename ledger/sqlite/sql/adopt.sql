-- J14, beside what save writes.
-- token, tenant, id
update paidonce_job set adoption = ? where tenant = ? and id = ?
