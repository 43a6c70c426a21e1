-- Is there a job of that key? One column: most claims are of keys that nobody has seen.
-- tenant, key
select id from paidonce_job where tenant = ? and key = ?
