-- ended at, tenant, job
update paidonce_attempt set state = 'unknown', ended_at = ? where tenant = ? and job = ? and state = 'sent'
