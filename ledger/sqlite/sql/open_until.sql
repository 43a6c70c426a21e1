-- Until when an open attempt may land.
-- tenant, job
select max(sent_at + timeout) from paidonce_attempt where tenant = ? and job = ? and state = 'sent'
