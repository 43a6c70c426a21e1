-- The first captured answer of a call wins; what is still open of it is not waited for.
-- ended at, tenant, job, generation, call, input key
update paidonce_attempt set state = 'unknown', ended_at = ?
where tenant = ? and job = ? and generation = ? and call_name = ? and input_key = ? and state = 'sent'
